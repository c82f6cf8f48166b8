"""Ready embeddings on the command line: indexed, searched, calibrated and rolled back without a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.service.types import Fail, Run
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.reader import GalleryReader

N_LABELS, PER_LABEL, DIM = 40, 6, 16
CENTERS = np.random.default_rng(0).normal(size=(N_LABELS, DIM))


def near(label: int, seed: int) -> FloatArray:
    """An embedding of a label; those of one label are alike."""
    noise = np.random.default_rng([label, seed]).normal(size=DIM)
    return (CENTERS[label] + 0.3 * noise).astype(np.float32)


def write(file: Path, views: range = range(PER_LABEL), **columns: Any) -> Path:
    places = [(label, view) for view in views for label in range(N_LABELS)]
    rows = {
        "id": [f"item {label}/{view}" for label, view in places],
        "label": [f"label {label}" for label, _ in places],
        "embedding": [near(*place) for place in places],
    }
    parquet.write_table(pa.table({**rows, **columns}), file)
    return file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "clip.parquet")


@pytest.fixture
def indexed(run: Run, path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Gallery:
    """A gallery that is searched although the bundle of the settings is not there."""
    monkeypatch.setenv("VICINAL_BUNDLE", str(tmp_path / "no bundle"))
    run("index", path, "-g", "shop", "--space", "clip-vit-b32")
    return Gallery(tmp_path / "data" / "galleries" / "shop")


def answers(run: Run, *query: object) -> Any:
    return json.loads(run("search", "-g", "shop", "--json", *query).stdout)


@pytest.mark.slow
def test_from_a_file_to_a_decision_and_back(run: Run, indexed: Gallery, tmp_path: Path) -> None:
    query, stranger = tmp_path / "query.npy", tmp_path / "stranger.npy"
    np.save(query, near(7, 100))
    np.save(stranger, np.random.default_rng(98).normal(size=DIM))
    assert "No threshold to decide by" in run("search", query, "-g", "shop").stdout
    assert "This rests on 240 items of 40 labels" in run("calibrate", "-g", "shop").stdout
    found = answers(run, query)
    assert (found["no_match"], {one["label"] for one in found["matches"]}) == (False, {"label 7"})
    assert answers(run, stranger)["no_match"]
    run("calibrate", "-g", "shop", "--group-by", "label")
    (group,) = answers(run, query, "--group-by", "label")["groups"]
    assert group["group"] == "label 7"
    before = indexed.active_version
    run("index", write(tmp_path / "clip.parquet", range(PER_LABEL + 1)), "-g", "shop")
    assert answers(run, query)["n_searched"] == N_LABELS * (PER_LABEL + 1)
    run("gallery", "activate", "shop", before)
    back = answers(run, query)
    assert (back["n_searched"], back["matches"]) == (N_LABELS * PER_LABEL, found["matches"])
    assert back["threshold"]["calibration"] == found["threshold"]["calibration"]


def spoil(file: Path, **rows: tuple[int, Any]) -> None:
    """Give values of some columns to a row."""
    columns = parquet.read_table(file).to_pydict()
    for name, (row, value) in rows.items():
        columns[name][row] = value
    parquet.write_table(pa.table(columns), file)


@pytest.mark.slow
def test_rows_that_cannot_be_used_are_named_and_take_no_other_with_them(
    run: Run, fail: Fail, path: Path
) -> None:
    spoil(path, embedding=(3, [0.0] * DIM), label=(4, "x" * 1025), id=(5, "a\nb"))
    command = ("index", path, "-g", "shop", "--space", "clip")
    look = run(*command, "--dry-run").stdout
    assert "2 items cannot be used, such as 'item 4/0': row 5 of 'clip.parquet' cannot be kept" in look
    said = "3 rows could not be used, at most 2 were allowed; the last is"
    assert said in fail(*command, "--max-failures", 2)
    output = run(*command, "--max-failures", 3).stdout
    assert "237 items with 40 labels" in output
    for what in ("row 4 of 'clip.parquet' has an embedding that is zero", "row 5 of", "row 6 of"):
        assert what in output
    assert [one["id"] for one in json.loads(run(*command, "--json").stdout)["failures"]] == [
        "item 3/0",
        "item 4/0",
        "row 6",
    ]


@pytest.mark.slow
def test_nothing_is_deleted_where_the_id_of_a_row_cannot_be_read(run: Run, fail: Fail, path: Path) -> None:
    run("index", path, "-g", "shop", "--space", "clip")
    spoil(path, embedding=(3, [0.0] * DIM), id=(5, None))
    said = "row 6 of 'clip.parquet' has no id: give every row one, each another; nobody knows what is gone"
    assert said in fail("index", path, "-g", "shop", "--delete")
    output = run("index", path, "-g", "shop").stdout
    assert "1 item of this source is gone: 'item 5/0'" in output
    assert "the item stays as it was" in output
    spoil(path, id=(5, "item 5/0"))
    assert "unchanged 239" in run("index", path, "-g", "shop", "--delete").stdout


@pytest.mark.slow
def test_labelled_queries_that_cannot_be_used_are_left_out(
    run: Run, indexed: Gallery, tmp_path: Path
) -> None:
    queries = write(tmp_path / "queries.parquet", range(PER_LABEL, PER_LABEL + 2))
    spoil(queries, embedding=(3, [0.0] * DIM))
    output = run("calibrate", "-g", "shop", "--queries", queries).stdout
    assert "1 of 80 queries were left out" in output


def test_it_says_what_it_made(run: Run, path: Path) -> None:
    output = run("index", path, "-g", "shop", "--space", "openai/clip@2").stdout
    assert "240 items with 40 labels" in output
    assert "rows/s" in output
    assert "images/s" not in output


def test_several_embeddings_are_searched_for_at_once(run: Run, indexed: Gallery, tmp_path: Path) -> None:
    np.save(tmp_path / "both.npy", np.stack([near(7, 100), near(8, 100)]))
    found = answers(run, tmp_path / "both.npy", "--limit", 1)
    assert [one["candidates"][0]["label"] for one in found] == ["label 7", "label 8"]
    output = run("search", tmp_path / "both.npy", "-g", "shop", "--limit", 1).stdout
    assert [line for line in output.splitlines() if line.startswith("Embedding")] == [
        "Embedding 1 of 2",
        "Embedding 2 of 2",
    ]


def test_an_item_is_searched_for_as_if_it_were_not_there(run: Run, indexed: Gallery) -> None:
    found = answers(run, "--item", "item 7/2", "--limit", PER_LABEL - 1)
    assert {one["label"] for one in found["candidates"]} == {"label 7"}
    assert "item 7/2" not in {one["id"] for one in found["candidates"]}


@pytest.mark.slow
def test_arrays_are_indexed_and_searched_alike(run: Run, indexed: Gallery, tmp_path: Path) -> None:
    rows = parquet.read_table(tmp_path / "clip.parquet")
    vectors, query = np.stack(rows["embedding"].to_pylist()), tmp_path / "query.npy"
    np.save(query, near(7, 100))
    expected = answers(run, query)["candidates"]
    names = {"ids": rows["id"].to_pylist(), "labels": rows["label"].to_pylist()}
    np.savez(tmp_path / "a.npz", embeddings=vectors, **names)
    run("index", tmp_path / "a.npz", "-g", "shop")
    assert answers(run, query)["candidates"] == expected


@pytest.mark.slow
def test_a_file_of_photos_and_embeddings_is_one_of_photos_without_a_space(
    run: Run, fail: Fail, tmp_path: Path
) -> None:
    n = N_LABELS * PER_LABEL
    both = write(tmp_path / "both.parquet", path=[f"{i}.jpg" for i in range(n)])
    assert "none of 240 images could be used" in fail("index", both, "-g", "shop")
    run("index", both, "-g", "shop", "--space", "clip")
    assert answers(run, "--item", "item 0/0")["candidates"][0]["uri"].endswith(".jpg")


def test_columns_are_named_by_options(run: Run, tmp_path: Path) -> None:
    columns = {"sku": ["x", "y"], "vec": [near(0, 0), near(1, 0)]}
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    names = ("--embedding-column", "vec", "--id-column", "sku")
    run("index", tmp_path / "a.parquet", "-g", "shop", "--space", "clip", *names)
    assert [one["id"] for one in answers(run, "--item", "x")["candidates"]] == ["y"]


@pytest.mark.slow
def test_the_own_embeddings_are_indexed_again(run: Run, indexed: Gallery, path: Path) -> None:
    path.unlink()
    output = run("index", "-g", "shop", "--index", "IVF4,Flat").stdout
    assert "240 items with 40 labels, index IVF4,Flat" in output


@pytest.mark.slow
def test_the_first_time_needs_a_name_and_the_next_does_not(run: Run, fail: Fail, path: Path) -> None:
    assert fail("index", path, "-g", "shop") == (
        "vicinal: say what made these embeddings by --space, such as --space clip-vit-b32: only those of one "
        "space are compared"
    )
    assert "is no name of a space" in fail("index", path, "-g", "shop", "--space", "CLIP B32")
    run("index", path, "-g", "shop", "--space", "clip@2")
    run("index", path, "-g", "shop")
    run("index", path, "-g", "shop", "--space", "clip@2")
    refused = fail("index", path, "-g", "shop", "--space", "clip")
    assert "holds ready 16-d embeddings of 'clip@2', not ready 16-d embeddings of 'clip@1'" in refused


def test_whatever_needs_a_picture_is_refused_in_one_sentence(
    indexed: Gallery, fail: Fail, catalog: Path, tmp_path: Path
) -> None:
    holds = "vicinal: gallery 'shop' holds ready embeddings of 'clip-vit-b32': "
    (picture, *_) = catalog.glob("*/*.png")
    searched = f"{holds}search with an embedding or an item id"
    assert fail("search", picture, "-g", "shop") == searched
    assert fail("calibrate", "-g", "shop", "--queries", catalog) == searched


@pytest.mark.slow
def test_there_is_nothing_to_label(run: Run, fail: Fail, path: Path) -> None:
    run("index", path, "-g", "shop", "--space", "clip")
    assert fail("label", "-g", "shop", "--no-browser") == (
        "vicinal: gallery 'shop' holds ready embeddings of 'clip': there are no photos to look at; calibrate "
        "it with labels"
    )


@pytest.mark.slow
def test_images_are_refused(fail: Fail, run: Run, path: Path, catalog: Path) -> None:
    run("index", path, "-g", "shop", "--space", "clip")
    expected = "of 'clip@1', not images embedded by bundle 'tiny': index these into a gallery of their own"
    assert expected in fail("index", catalog, "-g", "shop")


@pytest.mark.slow
def test_a_gallery_of_images_takes_none_and_is_searched_by_its_own(
    data_dir: Path, fail: Fail, run: Run, path: Path, tmp_path: Path
) -> None:
    refused = fail("index", path, "-g", "shoes", "--space", "clip")
    assert "gallery 'shoes' holds images embedded by bundle 'tiny', not ready 16-d embeddings" in refused
    first = Gallery(data_dir / "galleries" / "shoes").snapshot().embeddings[0]
    np.save(tmp_path / "query.npy", first)
    found = json.loads(run("search", tmp_path / "query.npy", "-g", "shoes", "--json").stdout)
    assert found["candidates"][0]["similarity"] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"", b"words", b"\x93NUMPY\x01\x00"])
def test_a_file_that_is_no_array_is_refused(
    indexed: Gallery, fail: Fail, tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "query.npy").write_bytes(content)
    assert "query.npy' is no .npy file of embeddings" in fail("search", tmp_path / "query.npy", "-g", "shop")


@pytest.mark.slow
def test_a_query_of_another_length_or_kind_is_refused(indexed: Gallery, fail: Fail, tmp_path: Path) -> None:
    np.save(tmp_path / "short.npy", np.ones(3))
    assert "expected 16 numbers an embedding, got 3" in fail("search", tmp_path / "short.npy", "-g", "shop")
    np.save(tmp_path / "zero.npy", np.zeros(DIM))
    assert "embedding 0 is zero" in fail("search", tmp_path / "zero.npy", "-g", "shop")
    assert "give exactly one of image, embedding and item_id" in fail("search", "-g", "shop")
    assert "has no item 'nobody'" in fail("search", "-g", "shop", "--item", "nobody")


def ids(gallery: Gallery) -> list[str]:
    return [item["id"] for _, item in GalleryReader(gallery).view().page(None, 1000)]


@pytest.mark.slow
def test_embeddings_are_added_while_the_gallery_is_searched(
    run: Run, indexed: Gallery, tmp_path: Path
) -> None:
    more = write(tmp_path / "more.parquet", range(PER_LABEL, PER_LABEL + 1))
    output = run("gallery", "add", "shop", more, "--space", "clip-vit-b32").stdout
    assert "Added 40 items, replaced 0, skipped 0, unchanged 0; gallery shop holds 280" in output
    np.save(tmp_path / "query.npy", near(7, PER_LABEL))
    assert answers(run, tmp_path / "query.npy")["candidates"][0]["id"] == f"item 7/{PER_LABEL}"
    assert "unchanged 40" in run("gallery", "add", "shop", more).stdout
    named = ("--prefix", "new", "--label", "boots")
    run("gallery", "add", "shop", more, *named)
    found = answers(run, "--item", f"new/item 7/{PER_LABEL}")["candidates"][0]
    assert (found["id"], found["label"]) == (f"item 7/{PER_LABEL}", "label 7")
    assert len(ids(indexed)) == 320


@pytest.mark.slow
def test_arrays_are_added_alike(run: Run, indexed: Gallery, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", embeddings=[near(0, 50)], ids=["x"], labels=["y"])
    np.save(tmp_path / "b.npy", np.stack([near(1, 50)]))
    (tmp_path / "b.csv").write_text("sku\nz\n", encoding="utf-8")
    run("gallery", "add", "shop", tmp_path / "a.npz")
    run("gallery", "add", "shop", tmp_path / "b.npy", "--id-column", "sku")
    assert ids(indexed)[-2:] == ["x", "z"]


@pytest.mark.slow
def test_other_embeddings_of_taken_ids_need_a_word(
    run: Run, fail: Fail, indexed: Gallery, tmp_path: Path
) -> None:
    changed = write(tmp_path / "more.parquet", range(1), embedding=[near(i, 60) for i in range(N_LABELS)])
    names = "'item 0/0', 'item 1/0', 'item 2/0' and 37 more"
    assert fail("gallery", "add", "shop", changed) == (
        f"vicinal: in gallery 'shop' 40 ids belong to other embeddings: {names}; nothing was added: take "
        "--replace or --skip"
    )
    assert "skipped 40" in run("gallery", "add", "shop", changed, "--skip").stdout
    assert "replaced 40" in run("gallery", "add", "shop", changed, "--replace").stdout
    np.save(tmp_path / "query.npy", near(7, 60))
    best = answers(run, tmp_path / "query.npy")["candidates"][0]
    assert (best["id"], best["similarity"]) == ("item 7/0", pytest.approx(1.0, abs=1e-6))


@pytest.mark.slow
def test_a_bad_row_is_not_added_and_takes_no_other_with_it(
    run: Run, indexed: Gallery, tmp_path: Path
) -> None:
    vectors = np.stack([near(i % N_LABELS, 60 + i) for i in range(600)])
    vectors[577], vectors[30] = 0, np.nan
    np.savez(tmp_path / "bad.npz", embeddings=vectors, ids=[f"new {i}" for i in range(len(vectors))])
    output = run("gallery", "add", "shop", tmp_path / "bad.npz").stdout
    assert "Added 598 items" in output
    assert "row 578 of 'bad.npz' has an embedding that is zero" in output
    assert "row 31 of 'bad.npz' has an embedding that holds NaN" in output
    assert len(ids(indexed)) == N_LABELS * PER_LABEL + 598


@pytest.mark.slow
def test_nothing_but_its_space_is_added(
    run: Run, fail: Fail, indexed: Gallery, catalog: Path, tmp_path: Path
) -> None:
    more = write(tmp_path / "more.parquet", range(1))
    holds = "vicinal: gallery 'shop' holds ready 16-d embeddings of 'clip-vit-b32@1', not"
    apart = "index these into a gallery of their own"
    other = fail("gallery", "add", "shop", more, "--space", "siglip")
    assert other == f"{holds} ready 16-d embeddings of 'siglip@1': {apart}"
    assert fail("gallery", "add", "shop", catalog) == f"{holds} images: {apart}"
    np.savez(tmp_path / "short.npz", embeddings=np.ones((1, 3)), ids=["x"])
    assert "holds 16-d embeddings, got 3-d" in fail("gallery", "add", "shop", tmp_path / "short.npz")


def test_a_gallery_of_images_takes_no_embeddings(data_dir: Path, fail: Fail, path: Path) -> None:
    refused = fail("gallery", "add", "shoes", path)
    assert "gallery 'shoes' holds images embedded by bundle 'tiny', not ready embeddings" in refused


@pytest.mark.slow
def test_a_gallery_is_told_by_its_space_and_in_items(run: Run, indexed: Gallery) -> None:
    (line,) = (one for one in run("gallery", "list").stdout.splitlines() if "shop" in one)
    assert line.split()[-1] == "clip-vit-b32@1"
    assert json.loads(run("gallery", "show", "shop", "--json").stdout)["space"] == "clip-vit-b32@1"
    calibrated = run("calibrate", "-g", "shop").stdout
    shown = run("gallery", "show", "shop").stdout
    assert "Gallery shop: 240 items with 40 labels" in shown
    assert "Space clip-vit-b32@1 of 16 dimensions, index Flat" in shown
    figures = run("calibrate", "-g", "shop", "--details").stdout
    assert "OPIS of" in figures
    for text in (calibrated, shown, figures):
        assert "of 100 items of things you have" in text
        assert "photo" not in text
        assert "vicinal fit" not in text


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet", "npz", "npy", "lance"])
def test_queries_from_outside_are_embeddings_of_any_kind(
    run: Run, indexed: Gallery, tmp_path: Path, kind: str
) -> None:
    places = [(label, view) for view in range(50, 53) for label in range(N_LABELS)]
    labels, vectors = [f"label {label}" for label, _ in places], [near(*place) for place in places]
    path = tmp_path / f"queries.{kind}"
    if kind == "npz":
        np.savez(path, embeddings=vectors, labels=labels)
    elif kind == "npy":
        np.save(path, vectors)
        path.with_suffix(".csv").write_text("label\n" + "\n".join(labels) + "\n", encoding="utf-8")
    elif kind == "lance":
        lance.write_dataset(pa.table({"label": labels, "embedding": vectors}), path)
    else:
        parquet.write_table(pa.table({"sku": labels, "vec": vectors}), path)
    named = ("--embedding-column", "vec", "--label-column", "sku") if kind == "parquet" else ()
    output = run("calibrate", "-g", "shop", "--target", "fnir=10%", "--queries", path, *named).stdout
    assert "This rests on items from outside: 120 of 40 labels that the gallery has" in output, output
    if not named:
        checked = run("calibration", "check", "-g", "shop", "--queries", path, "--details").stdout
        assert "of 120 items of things you have (40 labels)" in checked
        assert "on 120 items of 40 labels" in checked
        assert "photo" not in checked


@pytest.mark.slow
def test_queries_that_cannot_be_used_are_refused(
    run: Run, fail: Fail, indexed: Gallery, tmp_path: Path
) -> None:
    path = tmp_path / "queries.npz"
    np.savez(path, embeddings=np.ones((2, 3)), labels=["a", "b"])
    assert "expected 16 numbers an embedding, got 3" in fail("calibrate", "-g", "shop", "--queries", path)
    np.savez(path, embeddings=[near(0, 0), near(1, 0)], labels=["a", ""])
    assert "1 of 2 queries in " in fail("calibrate", "-g", "shop", "--queries", path)
    np.savez(path, embeddings=np.zeros((2, DIM)), labels=["a", "b"])
    refused = fail("calibrate", "-g", "shop", "--queries", path)
    assert (
        "none of 2 queries can be used; the first: row 1 of 'queries.npz' has an embedding that is zero"
        in refused
    )
