"""`vicinal compare` and `vicinal use`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.service.types import Calibrate, Fail, Run
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.models.embedder import Embedder
from vicinal.service.comparing.store import ComparisonStore
from vicinal.service.measuring.matcher import Matcher


@pytest.fixture
def version(gallery: Gallery, calibrate: Calibrate, embedder: Embedder) -> int:
    """Another version of a calibrated gallery."""
    calibrate(gallery)
    before = gallery.active_version
    index_items(gallery, None, embedder)
    made = gallery.active_version
    gallery.pointer.activate(before)
    return made


@pytest.mark.slow
def test_pipelines_are_compared_and_one_is_used(run: Run, data_dir: Path, gallery: Gallery) -> None:
    told = run("compare", "-g", "shoes", "--target", "fpir=20%", "--max-queries", 40).stdout
    assert all(text in told for text in ("recommended", "vicinal use", "FNIR at target", "MAP@R", "AUROC"))
    (comparison,) = ComparisonStore(gallery.path).history(passes_over_damaged=True)
    key = comparison.variants[1].pipeline.key
    used = run("use", "-g", "shoes", comparison.id, "--variant", 1).stdout
    assert (key in used, "by the comparison" in used) == (True, True)
    assert "by the settings" in run("use", "-g", "shoes", "--reset").stdout


@pytest.mark.slow
def test_a_version_is_compared_listed_and_activated(
    run: Run, gallery: Gallery, version: int, embedder: Embedder
) -> None:
    told = run("compare", "-g", "shoes", version).output
    assert all(text in told for text in ("R@1", "MAP@R", "FNIR", "OPIS", "queries flipped"))
    made = json.loads(run("compare", "-g", "shoes", version, "--json").stdout)
    assert ([one["version"] for one in made["variants"]][1], made["n_queries"]) == (version, 60)
    listed = json.loads(run("gallery", "versions", "shoes", "--json").stdout)
    lines = [one["comparison"] for one in listed]
    assert (lines[0].startswith(f"against {gallery.active_version}, R@1 "), lines[1]) == (True, None)
    run("gallery", "activate", "shoes", version)
    activation = gallery.activation
    assert (activation.version, activation.calibrated_as) == (version, version)
    threshold = made["variants"][1]["calibration"]["threshold"]
    assert Matcher(gallery, embedder).threshold().value == threshold


def test_a_comparison_that_makes_no_sense_is_one_line(fail: Fail, data_dir: Path) -> None:
    assert "name a target" in fail("compare", "-g", "shoes")
    told = fail("compare", "-g", "shoes", "--target", "fpir")
    assert "option target: Value error, 'fpir' is no target" in told
    assert "not both" in fail("use", "-g", "shoes", "some", "--reset")
    assert "has no comparison 'some'" in fail("use", "-g", "shoes", "some")
