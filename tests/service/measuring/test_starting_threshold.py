"""The threshold that a bundle brings along decides until one is measured, and every answer says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources import read_source
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.search.item_spaces import refinement_plan
from vicinal.service.search.pipeline import Group, Pipeline, Refine, Rerank, service_pipeline

ITEM = "plain/view 0.png"
FIGURES = {
    "off": {"fnir": 0.2, "threshold": 0.61},
    "query": {"fnir": 0.1, "threshold": 0.72},
    "rerank": {"fnir": 0.1, "threshold": 0.83},
}


@pytest.fixture
def bundle(with_refiner: Callable[..., ModelBundle]) -> ModelBundle:
    """A bundle whose refiner was validated on photos of its own."""
    found = with_refiner(sides="query")
    manifest = found.manifest.refiner
    assert manifest is not None
    fields = {"architecture": manifest.architecture, "sides": "query", "rerank": "off"}
    return found.with_refiner({**fields, "validation": FIGURES})


@pytest.fixture
def fresh(tmp_path: Path, catalog: Path, bundle: ModelBundle) -> Matcher:
    """A gallery that was never calibrated."""
    embedder = Embedder(bundle, device="cpu", threads=1)
    pipeline = service_pipeline(Pipeline(), bundle)
    gallery = Gallery(tmp_path / "data" / "galleries" / "shoes", refinement=refinement_plan(pipeline, bundle))
    index_items(gallery, read_source(catalog), embedder, workers=1)
    return Matcher(gallery, embedder, pipeline)


def pipeline(fresh: Matcher, sides: str, rerank: str = "off", group: Group | None = None) -> Pipeline:
    own = fresh.pipeline.refine
    refine = Refine() if sides == "off" else Refine.model_validate({**own.model_dump(), "sides": sides})
    return Pipeline(refine=refine, rerank=Rerank.model_validate({"method": rerank}), group=group)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sides", "rerank", "group", "value"),
    [
        ("off", "off", None, 0.61),
        ("query", "off", None, 0.72),
        ("query", "contextual", None, 0.83),
        # The best photo of a product decides as it would alone.
        ("query", "off", Group(by="label"), 0.72),
        # None of these was tried.
        ("off", "contextual", None, None),
        ("both", "off", None, None),
        ("query", "off", Group(by="label", score="lda"), None),
    ],
)
def test_each_pipeline_starts_with_its_own(
    fresh: Matcher, sides: str, rerank: str, group: Group | None, value: float | None
) -> None:
    found = fresh.threshold(pipeline(fresh, sides, rerank, group))
    assert found.value == value
    assert (found.source, found.state) == (("bundle", "default") if value else ("none", "none"))


def test_a_search_decides_by_it_and_says_that_nothing_was_measured(fresh: Matcher) -> None:
    (answer,) = fresh.search(item_ids=[ITEM])
    assert answer.no_match is not None
    assert answer.no_match == (answer.top_score < 0.72 if answer.top_score is not None else True)
    assert answer.threshold.calibration is None
    assert answer.threshold.reason == (
        "this threshold was not measured here, but where bundle 'tiny' was validated: measure one by "
        "`vicinal calibrate -g shoes`"
    )
