"""`vicinal calibrate`: which pipeline and which queries it calibrates with, and groups."""

from __future__ import annotations

import json
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from PIL import Image

from tests.service.types import Fail, Run
from vicinal.indexer.gallery import Gallery
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.search.pipeline import ChosenPipeline, Pipeline, PipelineStore, Rerank


@pytest.fixture
def broken_queries(catalog: Path, tmp_path: Path) -> Path:
    """The catalog as labelled queries, with a file that is no image, and a blank page."""
    folder = tmp_path / "queries"
    shutil.copytree(catalog, folder)
    (folder / "plain" / "broken.png").write_bytes(b"words")
    Image.new("RGB", (64, 64), "white").save(folder / "plain" / "blank.png")
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
    PipelineStore(gallery.path).put_in_force(chosen)
    record = json.loads(run("calibrate", "-g", "shoes", "--json").stdout)
    assert Pipeline.model_validate(record["pipeline"]) == off
    answer = json.loads(run("search", catalog / "plain" / "view 0.png", "-g", "shoes", "--json").stdout)
    assert (answer["pipeline"], answer["threshold"]["calibration"]) == (off.key, record["id"])


def test_a_query_image_that_cannot_be_used_is_named_and_left_out(
    run: Run, data_dir: Path, broken_queries: Path
) -> None:
    result = run("calibrate", "-g", "shoes", "--queries", broken_queries)
    assert "plain/broken.png: the bytes are no image" in result.output
    assert "plain/blank.png: the picture is blank" in result.output
    assert "2 of 62 queries were left out" in result.output
    assert "photos from outside: 60 of 10 labels" in result.stdout


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
    rows = [f"{file},{file.parent.name}" for file in sorted(catalog.rglob("*.png"))]
    (tmp_path / "queries.csv").write_text("\n".join(["photo,kind", *rows]), encoding="utf-8")
    columns = ("--path-column", "photo", "--label-column", "kind")
    line = fail("calibrate", "-g", "shoes", "--queries", tmp_path / "queries.csv", *columns, *options)
    assert re.search(sentence, line)
