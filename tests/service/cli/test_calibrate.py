"""`vicinal calibrate`: which pipeline and which queries it calibrates with, groups and coarse labels."""

from __future__ import annotations

import csv
import json
import re
import shutil
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import ExifTags, Image

from tests.s3_server import serving_bucket
from tests.service.types import Fail, Run
from vicinal.indexer.gallery import Gallery
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.search.pipeline import ActivePipelineFile, ChosenPipeline, Pipeline, Rerank


@pytest.fixture
def broken_queries(catalog: Path, tmp_path: Path) -> Path:
    """The catalog as labelled queries, with a file that is no image, and a blank page."""
    folder = tmp_path / "queries"
    shutil.copytree(catalog, folder)
    (folder / "plain" / "broken.png").write_bytes(b"words")
    Image.new("RGB", (64, 64), "white").save(folder / "plain" / "blank.png")
    return folder


@pytest.mark.slow
def test_the_pipeline_in_force_is_calibrated_and_searches_use_it(
    run: Run, gallery: Gallery, matcher: Matcher, catalog: Path
) -> None:
    """Not the one of the settings, whose threshold no search would ask for."""
    off = Pipeline(rerank=Rerank(method="off"))
    chosen = ChosenPipeline(
        pipeline=off,
        bundle=matcher.embedder.bundle.fingerprint,
        comparison="one",
        calibration="one",
        at=datetime.now(UTC),
    )
    ActivePipelineFile(gallery.calibrations_path).put_in_force(chosen)
    record = json.loads(run("calibrate", "-g", "shoes", "--json").stdout)
    assert Pipeline.model_validate(record["pipeline"]) == off
    answer = json.loads(run("search", catalog / "plain" / "view 0.png", "-g", "shoes", "--json").stdout)
    assert (answer["pipeline"], answer["threshold"]["calibration"]) == (off.key, record["id"])


@pytest.mark.slow
def test_a_query_image_that_cannot_be_used_is_named_and_left_out(
    run: Run, data_dir: Path, broken_queries: Path
) -> None:
    result = run("calibrate", "-g", "shoes", "--queries", broken_queries)
    assert "plain/broken.png: the bytes are no image" in result.output
    assert "plain/blank.png: the picture is blank" in result.output
    assert "2 of 62 queries were left out" in result.output
    assert "photos from outside: 60 of 10 labels" in result.stdout


@pytest.mark.slow
def test_a_record_says_how_many_queries_were_left_out(run: Run, data_dir: Path, broken_queries: Path) -> None:
    result = run("calibrate", "-g", "shoes", "--queries", broken_queries, "--json")
    record = json.loads(result.stdout)
    assert (record["source"], record["n_with_mate"]) == ("queries", 60)
    assert any("2 of 62 queries were left out" in one for one in record["warnings"])
    assert "broken.png" in result.stderr


@pytest.mark.slow
def test_queries_may_come_as_embeddings(run: Run, matcher: Matcher, tmp_path: Path) -> None:
    """As they may for a job."""
    snapshot = matcher.snapshot
    labels = snapshot.labels.astype(np.str_)
    np.savez(tmp_path / "queries.npz", embeddings=np.asarray(snapshot.embeddings), labels=labels)
    arguments = ("calibrate", "-g", "shoes", "--queries", tmp_path / "queries.npz", "--json")
    record = json.loads(run(*arguments).stdout)
    assert (record["source"], record["n_with_mate"]) == ("queries", 60)


@pytest.fixture
def manifest(catalog: Path, tmp_path: Path) -> Path:
    """The catalog with two visits a label, of three photos each, and kinds of five labels each."""
    path = tmp_path / "items.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["path", "id", "label", "visit", "kind"])
        for number, folder in enumerate(sorted(catalog.iterdir())):
            for view, image in enumerate(sorted(folder.iterdir())):
                name = f"{number}-{view}"
                writer.writerow([image, name, folder.name, 10 * number + view // 3, f"kind {number // 5}"])
    return path


@pytest.mark.slow
def test_photos_of_one_visit_are_kept_apart(run: Run, manifest: Path) -> None:
    run("index", manifest, "--gallery", "visits")
    arguments = (
        "calibrate",
        "-g",
        "visits",
        "--visits-by",
        "visit",
        "--coarse-by",
        "kind",
        "--target",
        "fnir=20%",
    )
    record = json.loads(run(*arguments, "--json").stdout)
    visits = record["evidence"]["visits"]
    assert (visits["by"], visits["n_visits"], visits["n_alone"]) == ("visit", 20, 0)
    assert record["n_positive_pairs"] == 60 * 3
    assert record["evidence"]["near_fpir"]["n_labels"] == 10
    assert set(visits["promised"]) == set(visits["shown"])


@pytest.mark.slow
def test_the_optimism_and_opis_are_said_in_words(run: Run, manifest: Path) -> None:
    run("index", manifest, "--gallery", "visits")
    lines = run("calibrate", "-g", "visits", "--visits-by", "visit", "--details").stdout
    assert "Photos of one visit were kept apart: 20 visits" in lines
    assert "A calibration that mixes them" in lines
    assert "OPIS of final scores" in lines
    assert "No label is served noticeably worse than others by this one threshold." in lines


@pytest.mark.slow
def test_queries_from_outside_are_kept_from_photos_of_their_visit(run: Run, manifest: Path) -> None:
    """The queries are the items themselves: with their visit left out none finds itself."""
    run("index", manifest, "--gallery", "visits")
    arguments = ("calibrate", "-g", "visits", "--queries", manifest, "--visits-by", "visit", "--json")
    record = json.loads(run(*arguments).stdout)
    assert (record["source"], record["n_positive_pairs"]) == ("queries", 60 * 3)


@pytest.mark.slow
def test_an_unknown_column_is_named(run: Run, fail: Fail, manifest: Path) -> None:
    run("index", manifest, "--gallery", "visits")
    line = fail("calibrate", "-g", "visits", "--visits-by", "session")
    assert "'session'" in line
    assert "kind, visit" in line


@pytest.mark.slow
def test_a_calibration_with_photos_from_outside_is_not_replaced_unasked(
    run: Run, gallery: Gallery, matcher: Matcher, catalog: Path
) -> None:
    first = json.loads(run("calibrate", "-g", "shoes", "--queries", catalog, "--json").stdout)
    second = run("calibrate", "-g", "shoes", "--json")
    assert "was measured with photos from outside" in second.stderr
    assert "vicinal calibration activate" in second.stderr
    assert matcher.calibrations.active(matcher.pipeline).id == first["id"]
    third = json.loads(run("calibrate", "-g", "shoes", "--json", "--yes").stdout)
    assert matcher.calibrations.active(matcher.pipeline).id == third["id"]


@pytest.mark.slow
def test_the_first_line_says_how_many_of_a_hundred_are_found(run: Run, data_dir: Path) -> None:
    lines = run("calibrate", "-g", "shoes").stdout.splitlines()
    assert lines[0].startswith("Of 100 matches that are shown, between ")
    assert "; of 100 photos of things you have, between " in lines[0]
    assert not any("FNIR" in line or "OPIS" in line for line in lines)
    assert any(
        "FNIR" in line for line in run("calibrate", "-g", "shoes", "-y", "--details").stdout.splitlines()
    )


@pytest.fixture
def dated(catalog: Path, tmp_path: Path) -> Path:
    """The catalog with capture times: three photos of each label in the morning, three a day later."""
    folder = tmp_path / "dated"
    for kind in sorted(catalog.iterdir()):
        (folder / kind.name).mkdir(parents=True)
        for view, path in enumerate(sorted(kind.iterdir())):
            exif = Image.Exif()
            exif[ExifTags.Base.Make] = "Acme"
            taken = f"2026:11:{2 + view // 3:02} 09:00:{view:02}"
            exif[ExifTags.IFD.Exif] = {ExifTags.Base.DateTimeOriginal: taken}
            with Image.open(path) as image:
                image.save(folder / kind.name / f"{chr(97 + view)}.png", exif=exif)
    return folder


@pytest.mark.slow
def test_capture_times_tell_visits_apart_without_being_asked(run: Run, dated: Path) -> None:
    run("index", dated, "--gallery", "dated")
    record = json.loads(run("calibrate", "-g", "dated", "--json").stdout)
    visits = record["evidence"]["visits"]
    assert (visits["by"], visits["n_visits"], visits["joined"]["times"]) == ("auto", 20, 60)
    assert (visits["are_told"], record["evidence"]["another_day"]["fnir"]["apart"]) == (True, None)
    assert record["n_positive_pairs"] == 60 * 3
    ignored = json.loads(run("calibrate", "-g", "dated", "--visits-by", "none", "--json", "-y").stdout)
    assert (ignored["evidence"]["visits"], ignored["n_positive_pairs"]) == (None, 60 * 5)


def _written(catalog: Path, folder: Path, kind: str) -> tuple[Path | str, list[str]]:
    """The catalog as labelled queries of a kind of source, and the options that it is read with."""
    files = sorted(catalog.rglob("*.png"))
    labels = [one.parent.name for one in files]
    if kind == "table":
        rows = [f"{file},{label}" for file, label in zip(files, labels, strict=True)]
        (folder / "queries.csv").write_text("\n".join(["photo,kind", *rows]), encoding="utf-8")
        return folder / "queries.csv", ["--path-column", "photo", "--label-column", "kind"]
    if kind == "parquet":
        table = pa.table(
            {"photo": [one.read_bytes() for one in files], "kind": labels, "id": ["same"] * len(files)}
        )
        pq.write_table(table.append_column("sku", pa.array(range(len(files)))), folder / "queries.parquet")
        options = ["--path-column", "photo", "--label-column", "kind", "--id-column", "sku"]
        return folder / "queries.parquet", options
    if kind == "shards":
        with tarfile.open(folder / "queries.tar", "w") as shard:
            for file, label in zip(files, labels, strict=True):
                shard.add(file, f"{label}/{file.name}")
        return folder / "queries.tar", []
    shutil.copytree(catalog, folder / "deeper" / "queries")
    return folder / "deeper", ["--label-from", "regex:^queries/([^/]+)/"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["table", "parquet", "shards", "folder"])
def test_queries_are_of_any_source_that_is_indexed(
    run: Run, data_dir: Path, catalog: Path, tmp_path: Path, kind: str
) -> None:
    wanted = json.loads(run("calibrate", "-g", "shoes", "--queries", catalog, "--json").stdout)
    source, options = _written(catalog, tmp_path, kind)
    found = json.loads(run("calibrate", "-g", "shoes", "--queries", source, *options, "--json").stdout)
    assert (found["threshold"], found["n_with_mate"]) == (wanted["threshold"], wanted["n_with_mate"])
    checked = run("calibration", "check", "-g", "shoes", "--queries", source, *options, "--json").stdout
    assert json.loads(checked)["calibration"] == found["id"]


@pytest.mark.slow
def test_queries_of_a_bucket_are_read_where_they_are(run: Run, data_dir: Path, catalog: Path) -> None:
    wanted = json.loads(run("calibrate", "-g", "shoes", "--queries", catalog, "--json").stdout)
    with serving_bucket() as (client, bucket):
        for one in catalog.rglob("*.png"):
            key = one.relative_to(catalog).as_posix()
            client.put_object(Bucket=bucket, Key=key, Body=one.read_bytes())
        record = json.loads(run("calibrate", "-g", "shoes", "--queries", f"s3://{bucket}", "--json").stdout)
    assert record["threshold"] == wanted["threshold"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--label-column", "lost"], "no column 'lost'"),
        (["--path-column", "lost"], "no column 'lost'"),
        (["--label-from", "none"], "60 of 60 queries .* have no label: .* by --label-from or --label-column"),
        (["--label-from", "words"], "labels cannot be taken from 'words'"),
    ],
)
def test_queries_that_are_read_in_vain_are_one_line(
    fail: Fail, data_dir: Path, catalog: Path, tmp_path: Path, options: list[str], sentence: str
) -> None:
    source, wanted = _written(catalog, tmp_path, "table")
    assert re.search(sentence, fail("calibrate", "-g", "shoes", "--queries", source, *wanted, *options))
