"""`vicinal duplicates`: from a folder of photos to a list of what could go, and its removal."""

from __future__ import annotations

import io
import json
import os
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from tests.conftest import SHARED
from tests.photos import draw_photo, write_album
from tests.service.types import Fail, Run
from vicinal.indexer.duplicates.made_copies import CHANGES, make_copy
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.reader import GalleryReader

# Read before the tests take all variables of the program away.
IMAGE_SETS = Path(os.environ.get("VICINAL_TEST_DATA", SHARED / "data"))


@pytest.fixture
def album(run: Run, tmp_path: Path) -> dict[str, str]:
    """Gallery `album` of 40 photos and their copies; the photo of each copy."""
    origin = write_album(tmp_path / "album")
    run("index", tmp_path / "album", "-g", "album")
    return {f"album/{copy}": f"album/{photo}" for copy, photo in origin.items()}


def found(run: Run, *options: object) -> dict[str, Any]:
    return dict(json.loads(run("duplicates", "-g", "album", "--json", *options).stdout))


def held(tmp_path: Path, gallery: str = "album") -> set[str]:
    view = GalleryReader(Gallery.open(tmp_path / "data" / "galleries" / gallery)).view()
    return {item["id"] for item in view.items(view.positions_of_sequences(view.sequences(live(view))))}


def live(view: Any) -> np.ndarray:
    positions = np.arange(view.n_positions)
    return positions[~view.is_dead(positions)]


@pytest.mark.slow
def test_from_photos_to_a_list_to_their_removal(run: Run, album: dict[str, str], tmp_path: Path) -> None:
    listed = tmp_path / "delete.txt"
    output = run("duplicates", "-g", "album", "--delete-list", listed).stdout
    gone = set(listed.read_text(encoding="utf-8").splitlines())
    assert gone <= set(album)
    assert len(gone) >= 0.9 * len(album)
    assert "Nothing was deleted" in output
    assert "most pixels, then most bytes" in output
    assert len(held(tmp_path)) == 80
    run("gallery", "remove", "album", "--from", listed)
    assert held(tmp_path) == {*album, *album.values()} - gone


@pytest.mark.slow
def test_each_copy_stands_with_its_photo_and_says_what_was_done(run: Run, album: dict[str, str]) -> None:
    record = found(run)
    wrong = {"rotated": "rotated by", "mixed": "", "recompressed": "recompressed"}
    for group in record["groups"]:
        for copy in group["copies"]:
            assert album[copy["id"]] == group["kept"]["id"]
            made = copy["id"].removesuffix(".jpg").rpartition(" ")[2]
            assert wrong.get(made, made) in " ".join(copy["kinds"])
    assert record["n_exact"] == 10
    assert record["n_bytes"] == sum(one["n_bytes"] for group in record["groups"] for one in group["copies"])


@pytest.mark.slow
def test_the_sentence_says_how_sure_that_is(run: Run, album: dict[str, str]) -> None:
    output = run("duplicates", "-g", "album").stdout
    assert "copies made of" in output
    assert "95 % interval" in output
    assert "are expected to be no copies" in output


@pytest.mark.slow
def test_how_long_it_takes_is_said_beside_the_output(run: Run, album: dict[str, str]) -> None:
    said = run("duplicates", "-g", "album", "--json")
    assert "comparisons of 70 photos take about 0:0" in said.stderr
    assert json.loads(said.stdout)["n_exact"] == 10


@pytest.mark.slow
def test_exact_copies_alone(run: Run, album: dict[str, str]) -> None:
    record = found(run, "--exact")
    assert (record["n_exact"], record["n_near"], record["threshold"]) == (10, 0, None)
    assert {copy["id"] for group in record["groups"] for copy in group["copies"]} == {
        one for one in album if "exact" in one
    }


@pytest.mark.slow
def test_the_list_can_name_files(run: Run, album: dict[str, str], tmp_path: Path) -> None:
    listed = tmp_path / "delete.txt"
    run("duplicates", "-g", "album", "--exact", "--delete-list", listed, "--paths")
    paths = [Path(line) for line in listed.read_text(encoding="utf-8").splitlines()]
    assert len(paths) == 10
    assert all(path.is_file() and path.is_absolute() for path in paths)


@pytest.mark.slow
def test_a_page_is_written(run: Run, album: dict[str, str], tmp_path: Path) -> None:
    run("duplicates", "-g", "album", "--report", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("data:image/jpeg") >= 72
    assert "Nothing was deleted" in page


@pytest.mark.slow
def test_a_seed_gives_the_same_groups(run: Run, album: dict[str, str]) -> None:
    first, second = (found(run, "--seed", 3) for _ in range(2))
    assert [first[name] for name in ("groups", "threshold")] == [
        second[name] for name in ("groups", "threshold")
    ]


@pytest.mark.slow
def test_live_changes_count(run: Run, album: dict[str, str], tmp_path: Path) -> None:
    """What was added is compared, and what was removed is not."""
    (tmp_path / "more").mkdir()
    copy = make_copy(Image.open(tmp_path / "album" / "photo 01.jpg"), "mirrored", np.random.default_rng(0))
    (tmp_path / "more" / "late.jpg").write_bytes(copy)
    run("gallery", "add", "album", tmp_path / "more")
    exact = [one for one in album if "exact" in one]
    run("gallery", "remove", "album", *exact)
    record = found(run)
    copies = {copy["id"]: group["kept"]["id"] for group in record["groups"] for copy in group["copies"]}
    assert record["n_exact"] == 0
    assert copies["more/late.jpg"] == "album/photo 01.jpg"


@pytest.mark.slow
def test_photos_that_are_all_different_have_no_copies(run: Run, tmp_path: Path) -> None:
    """Negative control."""
    (tmp_path / "album").mkdir()
    for seed in range(30):
        draw_photo(seed).save(tmp_path / "album" / f"{seed}.jpg")
    run("index", tmp_path / "album", "-g", "album")
    record = found(run, "--precision", 0.5)
    assert record["groups"] == []
    assert "No photos" in run("duplicates", "-g", "album").stdout or record["n_near"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 2])
def test_hardly_any_photos_are_no_trouble(run: Run, tmp_path: Path, n: int) -> None:
    (tmp_path / "album").mkdir()
    for seed in range(n):
        draw_photo(seed).save(tmp_path / "album" / f"{seed}.jpg")
    run("index", tmp_path / "album", "-g", "album")
    assert found(run)["groups"] == []


def test_ready_embeddings_have_exact_copies_only(run: Run, tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(12, 8)).astype(np.float32)
    vectors[11] = vectors[3]
    vectors[10] = vectors[2] * 1.001 + 1e-4
    rows = {"id": [f"item {i}" for i in range(12)], "embedding": list(vectors)}
    parquet.write_table(pa.table(rows), tmp_path / "clip.parquet")
    run("index", tmp_path / "clip.parquet", "-g", "album", "--space", "clip-vit-b32")
    record = found(run)
    assert [[copy["id"] for copy in group["copies"]] for group in record["groups"]] == [["item 3"]]
    assert "holds ready embeddings and no pictures" in record["sentence"]
    output = run("duplicates", "-g", "album").stdout
    assert output.startswith(
        "1 of 12 items of gallery album could go: 1 exact copy and 0 changed in 1 group, "
    )
    assert "photo" not in output


@pytest.mark.slow
def test_paths_without_a_list_are_refused(album: dict[str, str], fail: Fail) -> None:
    assert "--delete-list" in fail("duplicates", "-g", "album", "--paths")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("remove", "album"), ("remove", "album", "a", "--from", "{list}")])
def test_remove_takes_ids_or_a_list(
    album: dict[str, str], fail: Fail, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "list.txt").write_text("a\n")
    given = [one.format(list=tmp_path / "list.txt") for one in arguments]
    assert "name the items, or give --from FILE" in fail("gallery", *given)


@pytest.mark.slow
@pytest.mark.parametrize("content", ["", "\n\n"])
def test_an_empty_list_removes_nothing(run: Run, album: dict[str, str], tmp_path: Path, content: str) -> None:
    (tmp_path / "list.txt").write_text(content)
    run("gallery", "remove", "album", "--from", tmp_path / "list.txt")
    assert len(held(tmp_path)) == 80


def read_photos(data: Path, n: int) -> list[Image.Image]:
    """Photos of both image sets, or drawn ones where they are missing."""
    files = [data / name / "train.zip" for name in ("grocery", "dogfacenet")]
    if not all(file.is_file() for file in files):
        return [draw_photo(seed, (224, 168)) for seed in range(n)]
    images = []
    for file in files:
        with zipfile.ZipFile(file) as archive:
            names = [one for one in archive.namelist() if one.endswith(".jpg")]
            chosen = np.random.default_rng(0).choice(len(names), n // 2, replace=False)
            images += [Image.open(io.BytesIO(archive.read(names[one]))).convert("RGB") for one in chosen]
    return images


@pytest.mark.slow
def test_some_hundred_personal_photos(run: Run, tmp_path: Path) -> None:
    """350 photos and 150 copies: 95 % of the copies are listed, and 99 % of the list are copies."""
    rng = np.random.default_rng(11)
    (tmp_path / "phone").mkdir()
    photos = read_photos(IMAGE_SETS, 350)
    for number, photo in enumerate(photos):
        photo.save(tmp_path / "phone" / f"photo {number:04}.jpg", quality=97)
    for number, of in enumerate(rng.choice(len(photos), 150, replace=False)):
        copy = make_copy(photos[of], CHANGES[number % len(CHANGES)], rng)
        (tmp_path / "phone" / f"x copy {number:04}.jpg").write_bytes(copy)
    run("index", tmp_path / "phone", "-g", "phone")
    started = time.monotonic()
    run("duplicates", "-g", "phone", "--delete-list", tmp_path / "list.txt")
    assert time.monotonic() - started < 600
    listed = (tmp_path / "list.txt").read_text(encoding="utf-8").splitlines()
    n_copies = sum("x copy" in line for line in listed)
    assert n_copies >= 0.95 * 150
    assert n_copies >= 0.99 * len(listed)
