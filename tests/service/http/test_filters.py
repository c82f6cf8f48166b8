"""Filters: the answer is that of a search without, restricted to the items that fulfil the filter."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from tests.service.pipelines import CONTEXTUAL
from tests.service.types import Calibrate, View
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import Patch, patch_items, remove_items
from vicinal.indexer.reader import GalleryReader
from vicinal.models.embedder import Embedder
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.search.answers import Answer
from vicinal.service.search.pipeline import Pipeline, Rerank

FILTERS = {
    "label = 'plain'": lambda item: item["label"] == "plain",
    "label IN ('plain', 'blé', '鞋')": lambda item: item["label"] in ("plain", "blé", "鞋"),
    "label LIKE '%shoe%' OR id LIKE '%view 1.png'": lambda item: (
        "shoe" in (item["label"] or "") or item["id"].endswith("view 1.png")
    ),
    "label = 'o''brien' AND metadata.price > 2": lambda item: (
        item["label"] == "o'brien" and item["metadata"].get("price", 0) > 2
    ),
    "metadata.price <= 3": lambda item: item["metadata"].get("price", 9) <= 3,
    "metadata.color = 'red'": lambda item: item["metadata"].get("color") == "red",
    "metadata.color IS NULL": lambda item: "color" not in item["metadata"],
    "label IS NULL": lambda item: item["label"] is None,
    "id = 'a' AND id != 'a'": lambda _item: False,
    "id = 'a' OR id != 'a'": lambda _item: True,
}
PIPELINES = [
    CONTEXTUAL,
    Pipeline(rerank=Rerank(method="off")),
    Pipeline(rerank=Rerank(k=4, beta=0.6, eps=0.2)),
]


@pytest.fixture(scope="module")
def priced(base_dir: Path, embedder: Embedder, tmp_path_factory: pytest.TempPathFactory) -> Matcher:
    """The gallery `shoes` with prices and colors for some items, one label taken away, some items gone.

    It is changed by nobody.
    """
    folder = shutil.copytree(base_dir, tmp_path_factory.mktemp("priced") / "data")
    gallery = Gallery.open(Path(folder) / "galleries" / "shoes")
    reader = GalleryReader(gallery)
    items = [item for _, item in reader.view().page(None, 100)]
    prices = {
        item["id"]: Patch(
            keeps_label=True, metadata={"price": n % 6, **({"color": "red"} if n % 3 == 0 else {})}
        )
        for n, item in enumerate(items)
        if n % 2 == 0
    }
    patch_items(reader, prices)
    patch_items(reader, {"a+b/view 0.png": Patch()})
    remove_items(reader, [item["id"] for item in items[5::10]])
    return Matcher(gallery, embedder, view=reader.view())


def ranked(answer: Answer) -> list[tuple[str, float]]:
    return [(one.id, one.score) for one in answer.candidates]


@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda one: one.key)
@pytest.mark.parametrize("expression", FILTERS)
def test_a_filtered_answer_is_the_unfiltered_one_restricted(
    priced: Matcher, view: View, expression: str, pipeline: Pipeline
) -> None:
    priced = Matcher(priced.gallery, priced.embedder, pipeline, view=priced.view)
    fulfils = FILTERS[expression]
    images = [view(6, 9), view(3, 8), view(40, 0)]
    everything = priced.search(images=images, limit=200)
    filtered = priced.search(images=images, limit=200, filter=expression)
    for whole, part in zip(everything, filtered, strict=True):
        kept = [one for one in whole.candidates if fulfils(vars(one))]
        assert ranked(part) == [(one.id, one.score) for one in kept]
        assert part.n_searched == len(kept)


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(limit=st.integers(1, 30), expression=st.sampled_from(sorted(FILTERS)))
def test_the_limit_is_one_of_filtered_items(priced: Matcher, view: View, limit: int, expression: str) -> None:
    """Restricting after the cut would give fewer: negative control is the next test."""
    few = priced.search(images=[view(6, 9)], limit=limit, filter=expression)[0]
    many = priced.search(images=[view(6, 9)], limit=200, filter=expression)[0]
    assert ranked(few) == ranked(many)[:limit]


def test_restricting_after_the_cut_would_lose_items(priced: Matcher, view: View) -> None:
    """Negative control of the test above."""
    expression = "metadata.color = 'red'"
    cut = priced.search(images=[view(6, 9)], limit=5)[0]
    right = priced.search(images=[view(6, 9)], limit=5, filter=expression)[0]
    assert [one.id for one in cut.candidates if one.metadata.get("color") == "red"] != [
        one.id for one in right.candidates
    ]


def test_no_query_gets_a_match_that_it_would_not_get_without_the_filter(
    gallery: Gallery, embedder: Embedder, calibrate: Calibrate, view: View
) -> None:
    """What the note promises."""
    calibrate(gallery)
    matcher = Matcher(gallery, embedder)
    images = [view(label, 9) for label in range(14)]
    whole = matcher.search(images=images, limit=100)
    for expression in FILTERS:
        if "metadata" not in expression:
            for all_of_them, some in zip(
                whole, matcher.search(images=images, limit=100, filter=expression), strict=True
            ):
                assert {one.id for one in some.matches} <= {one.id for one in all_of_them.matches}


def test_the_problem_names_the_place_and_what_was_meant(client: TestClient) -> None:
    body = {"item_id": "plain/view 0.png", "filter": "label = 'plain' AND price < 50"}
    answer = client.post("/v1/galleries/shoes/search", json=body).json()
    assert answer["type"] == "urn:vicinal:problem:invalid-filter"
    assert "at character 21, `price < 50`" in answer["detail"]
    assert "`metadata.price`" in answer["detail"]
