"""Explanation: the numbers are those of the refiner and of the search, and the page shows them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.service.types import Encode, Fail, Run, View
from tests.stand_in_gpus import stand_in_gpus
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.graph.gpu import IndexDevices
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources import read_source
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.models.similarity import exact_similarities
from vicinal.service.http.app import create_app
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.reports.page import render_refinement
from vicinal.service.request_fields import RefineChoice
from vicinal.service.search.answers import ExplainedNeighbor, ExplainedRefinement
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


def test_the_last_rank_is_that_of_the_search(matcher: Matcher) -> None:
    found = explain(matcher, rerank="off")
    assert found.candidate == matcher.search(item_ids=[ITEM], rerank="off")[0].candidates[0].id
    assert (len(found.ranks), found.ranks[-1]) == (4, 1)


def test_the_first_rank_is_that_of_a_search_that_refines_the_gallery_alone(matcher: Matcher) -> None:
    found = explain(matcher, rerank="off")
    plain = matcher.search(item_ids=[ITEM], refine="gallery", rerank="off", limit=100)[0].candidates
    assert found.ranks[0] == [one.id for one in plain].index(found.candidate) + 1


@pytest.mark.parametrize(
    ("sides", "is_used"), [("off", False), ("gallery", False), ("query", True), ("both", True)]
)
def test_it_says_whether_the_search_used_the_refined_query(
    matcher: Matcher, sides: str, is_used: bool
) -> None:
    found = explain(matcher, refine=sides)
    assert (found.is_used, len(found.cosines), len(found.way)) == (is_used, 4, 4)


def test_fewer_steps_make_a_shorter_way(matcher: Matcher) -> None:
    whole, short = explain(matcher, refine="query"), explain(matcher, refine="query", steps=2)
    assert short.cosines == whole.cosines[:3]
    assert all(len(one.attention) == 2 for one in short.neighbors)


def test_nothing_is_explained_unless_asked_for(matcher: Matcher) -> None:
    assert matcher.search(item_ids=[ITEM])[0].explanation is None


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


def test_the_command_says_that_there_is_no_refiner(gallery: Gallery, catalog: Path, fail: Fail) -> None:
    assert "has no refiner" in fail("explain", catalog / ITEM, "--gallery", gallery.name)


def test_http_explains_a_picture_and_a_batch(settings: Settings, view: View, encode: Encode) -> None:
    client = TestClient(create_app(settings))
    form = {"files": {"image": encode(view(3, 9))}, "data": {"explain": "true"}}
    alone = client.post(f"/v1/galleries/{GALLERY}/search", **form).json()["explanation"]
    assert (alone["devices"]["search"], alone["devices"]["embed"]) == ("cpu", "CPUExecutionProvider")
    assert [len(one["attention"]) for one in alone["refinement"]["neighbors"]] == [3] * 4
    body = {"queries": [{"item_id": ITEM}], "explain": True}
    answers = client.post(f"/v1/galleries/{GALLERY}/search/batch", json=body).json()["answers"]
    assert len(answers[0]["explanation"]["refinement"]["ranks"]) == 4


def test_the_command_prints_and_draws(settings: Settings, view: View, tmp_path: Path, run: Run) -> None:
    view(3, 9).save(tmp_path / "query.png")
    options = ["--gallery", GALLERY, "--data-dir", settings.data_dir, "--bundle", settings.bundle]
    shown = run("explain", tmp_path / "query.png", "--output", tmp_path / "way.html", *options).output
    assert "attention by step" in shown
    assert "Ran on: cpu (decode, " in shown
    assert "; CPUExecutionProvider (embed)" in shown
    page = (tmp_path / "way.html").read_text(encoding="utf-8")
    assert (page.count("<svg"), page.count('class="dot way"'), "<script" in page) == (1, 4, False)
    printed = run("explain", tmp_path / "query.png", "--json", *options).output
    assert len(json.loads(printed)["refinement"]["cosines"]) == 4


def refinement_of(n_neighbors: int) -> ExplainedRefinement:
    neighbors = [
        ExplainedNeighbor(f"{i}.png", f"label {i}", 0.5, [1.0 / n_neighbors] * 2, (0.1 * i, 0.2))
        for i in range(n_neighbors)
    ]
    way = [(0.0, 0.0), (0.1, 0.0), (0.2, 0.1)]
    return ExplainedRefinement("abc", True, neighbors, [1.0, 0.9, 0.8], None, [None] * 3, way, (0.6, 0.3))


@pytest.mark.parametrize("n_neighbors", [0, 1, 9])
def test_a_query_with_few_or_many_neighbors_is_drawn(n_neighbors: int) -> None:
    page = render_refinement(refinement_of(n_neighbors), title="<b>query</b>")
    assert page.count('class="dot s') + page.count('class="dot other"') == n_neighbors
    assert page.count('class="dot way"') == 3
    assert ("There are no candidates" in page, "<b>query" in page) == (True, False)
