"""Explanation: the numbers are those of the refiner and of the search, and the page shows them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.service.types import Run, View
from tests.stand_in_gpus import stand_in_gpus
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.graph.gpu import IndexDevices
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources import read_source
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.models.similarity import exact_similarities
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.request_fields import RefineChoice
from vicinal.service.search.answers import ExplainedRefinement
from vicinal.service.search.item_spaces import refinement_plan
from vicinal.service.settings import Settings

GALLERY, ITEM = "shoes", "plain/view 0.png"


@pytest.fixture(scope="module")
def settings(
    tmp_path_factory: pytest.TempPathFactory, catalog: Path, refiner_bundle: ModelBundle
) -> Settings:
    made = Settings(
        data_dir=tmp_path_factory.mktemp("explained"), bundle=refiner_bundle.path, device="cpu", threads=1
    )
    plan = refinement_plan(made.pipeline_for(refiner_bundle), refiner_bundle)
    gallery = Gallery(made.galleries_path / GALLERY, refinement=plan)
    index_items(gallery, read_source(catalog), Embedder(refiner_bundle, device="cpu", threads=1), workers=1)
    return made


@pytest.fixture(scope="module")
def matcher(settings: Settings, refiner_bundle: ModelBundle) -> Matcher:
    embedder = Embedder(refiner_bundle, device="cpu", threads=1)
    return Matcher(Gallery.open(settings.galleries_path / GALLERY), embedder)


def explain(matcher: Matcher, **options: object) -> ExplainedRefinement:
    return matcher.search(item_ids=[ITEM], explain=True, **options)[0].explanation.refinement


def test_neighbors_are_the_nearest_items_with_their_attention(matcher: Matcher) -> None:
    found = explain(matcher)
    position = matcher.view.positions([ITEM])
    context = matcher.view.neighbor_positions(position)[:, :4]
    query, vectors = matcher.view.vectors(position), matcher.view.vectors(context)
    attention = matcher.refiner.attend(query, vectors).attention[0]
    assert [one.id for one in found.neighbors] == [item["id"] for item in matcher.view.items(context[0])]
    np.testing.assert_array_equal([one.attention for one in found.neighbors], attention.T)
    np.testing.assert_array_equal(
        [one.similarity for one in found.neighbors], exact_similarities(query, vectors)[0]
    )


@pytest.mark.parametrize("refine", ["off", "gallery", "both"])
def test_each_stage_has_its_device(
    settings: Settings, refiner_bundle: ModelBundle, catalog: Path, refine: RefineChoice
) -> None:
    gallery = Gallery.open(settings.galleries_path / GALLERY)
    embedder = Embedder(refiner_bundle, device="cpu", threads=1)

    def devices(index: str, **options: str) -> dict[str, str]:
        view = GalleryReader(gallery, IndexDevices(index)).view()
        matcher = Matcher(gallery, embedder, view=view)
        (answer,) = matcher.search(images=[catalog / ITEM], explain=True, refine=refine, **options)
        assert answer.explanation is not None
        assert set(answer.explanation.devices) == set(answer.milliseconds) - {"explain"}
        return answer.explanation.devices

    with stand_in_gpus([2**30]):
        on_gpu = devices("cuda")
        selected = devices("cuda", filter="label = 'plain'")
    assert (on_gpu["search"], on_gpu["embed"], on_gpu["rescore"]) == (
        "cuda:0",
        "CPUExecutionProvider",
        "cpu",
    )
    assert devices("cpu") == {**on_gpu, "search": "cpu"}
    assert selected["search"] == "cpu"


def test_cosines_are_those_of_each_step_to_the_first(matcher: Matcher) -> None:
    position = matcher.view.positions([ITEM])
    context = matcher.view.neighbor_positions(position)[:, :4]
    query = matcher.view.vectors(position)
    steps = matcher.refiner.attend(query, matcher.view.vectors(context)).steps[0]
    expected = [1.0, *exact_similarities(query[0], steps).tolist()]
    assert explain(matcher).cosines == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("sides", "is_used"), [("off", False), ("gallery", False), ("query", True), ("both", True)]
)
def test_it_says_whether_the_search_used_the_refined_query(
    matcher: Matcher, sides: str, is_used: bool
) -> None:
    found = explain(matcher, refine=sides)
    assert (found.is_used, len(found.cosines), len(found.way)) == (is_used, 4, 4)


def test_distances_in_the_projection_are_at_most_the_true_ones(matcher: Matcher, view: View) -> None:
    query = matcher.embedder.embed([view(3, 9)])
    found = matcher.search(embeddings=query, explain=True)[0].explanation.refinement
    items = matcher.view.vectors(matcher.view.positions([one.id for one in found.neighbors]))
    places = np.array([one.place for one in found.neighbors])
    shown = np.linalg.norm(places - np.array(found.way[0]), axis=1)
    assert (shown <= np.linalg.norm(items - query, axis=1) + 1e-5).all()
    assert 0.0 < sum(found.variance) <= 1.0 + 1e-9


def test_without_a_refiner_devices_are_told_all_the_same(gallery: Gallery, embedder: Embedder) -> None:
    (answer,) = Matcher(gallery, embedder).search(item_ids=[ITEM], explain=True)
    assert answer.explanation is not None
    assert answer.explanation.refinement is None
    assert set(answer.explanation.devices) == set(answer.milliseconds) - {"explain"}
    assert answer.explanation.devices["search"] == "cpu"


def test_the_command_writes_a_page(settings: Settings, view: View, tmp_path: Path, run: Run) -> None:
    view(3, 9).save(tmp_path / "query.png")
    options = ["--gallery", GALLERY, "--data-dir", settings.data_dir, "--bundle", settings.bundle]
    shown = run("explain", tmp_path / "query.png", "--output", tmp_path / "way.html", *options).output
    assert "attention by step" in shown
    assert "Ran on: cpu (decode, " in shown
    assert "; CPUExecutionProvider (embed)" in shown
    page = (tmp_path / "way.html").read_text(encoding="utf-8")
    assert ("Step by step" in page, "<script" in page) == (True, False)
    printed = run("explain", tmp_path / "query.png", "--json", *options).output
    assert len(json.loads(printed)["refinement"]["cosines"]) == 4
