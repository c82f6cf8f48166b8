"""`vicinal calibrate`: which pipeline and which queries it calibrates with, groups and coarse labels."""

from __future__ import annotations

import csv
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from tests.service.types import Fail, Run
from vicinal.indexer.gallery import Gallery
from vicinal.service.matcher.matcher import Matcher
from vicinal.service.scoring.pipeline import ActivePipelineFile, ChosenPipeline, Pipeline, Rerank


@pytest.fixture
def broken_queries(catalog: Path, tmp_path: Path) -> Path:
    """The catalog as labelled queries, with one file more that is no image."""
    folder = tmp_path / "queries"
    shutil.copytree(catalog, folder)
    (folder / "plain" / "broken.png").write_bytes(b"words")
    return folder


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


def test_a_query_image_that_cannot_be_used_is_named_and_left_out(
    run: Run, data_dir: Path, broken_queries: Path
) -> None:
    result = run("calibrate", "-g", "shoes", "--queries", broken_queries)
    assert "plain/broken.png: the bytes are no image" in result.output
    assert "1 of 61 queries were left out" in result.output
    assert "FPIR 5 %" in result.stdout


def test_a_record_says_how_many_queries_were_left_out(run: Run, data_dir: Path, broken_queries: Path) -> None:
    result = run("calibrate", "-g", "shoes", "--queries", broken_queries, "--json")
    record = json.loads(result.stdout)
    assert (record["source"], record["n_with_mate"]) == ("queries", 60)
    assert any("1 of 61 queries were left out" in one for one in record["warnings"])
    assert "broken.png" in result.stderr


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
        "--group-by",
        "visit",
        "--coarse-by",
        "kind",
        "--target",
        "fnir=20%",
    )
    record = json.loads(run(*arguments, "--json").stdout)
    grouping = record["evidence"]["grouping"]
    assert (grouping["column"], grouping["n_groups"], grouping["n_without_group"]) == ("visit", 20, 0)
    assert record["n_positive_pairs"] == 60 * 3
    assert record["evidence"]["near_fpir"]["n_labels"] == 10
    assert set(grouping["promised"]) == set(grouping["shown"])


def test_the_optimism_and_opis_are_said_in_words(run: Run, manifest: Path) -> None:
    run("index", manifest, "--gallery", "visits")
    lines = run("calibrate", "-g", "visits", "--group-by", "visit").stdout
    assert "Photos of one visit were kept apart: 20 groups" in lines
    assert "A calibration that mixes them" in lines
    assert "OPIS of final scores" in lines
    assert "labels with the lowest utility" in lines


@pytest.mark.slow
def test_queries_from_outside_are_kept_from_photos_of_their_visit(run: Run, manifest: Path) -> None:
    """The queries are the items themselves: with their visit left out none finds itself."""
    run("index", manifest, "--gallery", "visits")
    arguments = ("calibrate", "-g", "visits", "--queries", manifest, "--group-by", "visit", "--json")
    record = json.loads(run(*arguments).stdout)
    assert (record["source"], record["n_positive_pairs"]) == ("queries", 60 * 3)


def test_an_unknown_column_is_named(run: Run, fail: Fail, manifest: Path) -> None:
    run("index", manifest, "--gallery", "visits")
    line = fail("calibrate", "-g", "visits", "--group-by", "session")
    assert "'session'" in line
    assert "kind, visit" in line
