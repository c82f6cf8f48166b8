"""Refinement as users meet it: settings, answers, calibrations, errors, galleries that were never refined."""

from __future__ import annotations

import gc
import json
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from tests.service.types import Encode, Fail, Run, View
from vicinal.calibration import Target
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources import read_source
from vicinal.indexer.views.refined_view import BuiltItems
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.models.similarity import exact_similarities
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.galleries.open_galleries import OpenGalleries
from vicinal.service.http.app import create_app
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.measuring.records.store import CalibrationStore
from vicinal.service.search.item_spaces import refinement_plan
from vicinal.service.settings import Settings

GALLERY, ITEM = "shoes", "plain/view 0.png"


@pytest.fixture(scope="module")
def refined_base(
    tmp_path_factory: pytest.TempPathFactory, catalog: Path, refiner_bundle: ModelBundle
) -> Path:
    """Data folder with the gallery `shoes`, refined as the bundle's validation decided."""
    root = tmp_path_factory.mktemp("refined")
    settings = Settings(data_dir=root, bundle=refiner_bundle.path)
    index_items(open_of(settings, new=True), read_source(catalog), embedder_of(settings), workers=1)
    return root


@pytest.fixture
def refined_dir(tmp_path: Path, refined_base: Path) -> Path:
    shutil.copytree(refined_base, tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def settings(refined_dir: Path, refiner_bundle: ModelBundle) -> Settings:
    return Settings(data_dir=refined_dir, bundle=refiner_bundle.path, device="cpu", threads=1)


def embedder_of(settings: Settings) -> Embedder:
    return Embedder(ModelBundle.open(settings.bundle), device="cpu", threads=1)


def open_of(settings: Settings, *, new: bool = False) -> Gallery:
    bundle = ModelBundle.open(settings.bundle)
    plan = refinement_plan(settings.pipeline_for(bundle), bundle)
    path = settings.galleries_path / GALLERY
    return Gallery(path, refinement=plan) if new else Gallery.open(path, refinement=plan)


def matcher_of(settings: Settings) -> Matcher:
    embedder = embedder_of(settings)
    return Matcher(open_of(settings), embedder, settings.pipeline_for(embedder.bundle))


@pytest.fixture
def matcher(settings: Settings) -> Matcher:
    return matcher_of(settings)


def calibrate(matcher: Matcher) -> str:
    pipeline = matcher.pipeline
    calibrator = Calibrator(matcher.snapshot, pipeline, refinement=matcher.refinement(pipeline))
    target = Target(rate="fpir", value=0.05)
    record = calibrator.measure(LabelledQueries.leave_one_out(matcher.snapshot), target).record
    CalibrationStore(matcher.gallery.path).add(record)
    return record.id


def test_an_answer_has_the_refined_and_the_initial_cosine(matcher: Matcher, view: View) -> None:
    query = matcher.embedder.embed([view(3, 9)])
    best = matcher.search(embeddings=query)[0].candidates[0]
    item = matcher.view.vectors(matcher.view.positions([best.id]))
    assert best.initial_similarity == pytest.approx(float(exact_similarities(query, item[:, None])[0, 0]))
    assert best.similarity != best.initial_similarity
    assert best.score == pytest.approx(np.exp(2.0 * best.similarity - 2.0))


def test_a_version_that_is_no_longer_searched_is_let_go_at_once(settings: Settings, catalog: Path) -> None:
    """Its files are open as long, and the collector of cycles comes seldom to a server."""
    galleries = OpenGalleries(ServedBundles(settings))
    galleries.matcher(GALLERY).search(item_ids=[ITEM])
    galleries.wait()
    before = weakref.ref(galleries.matcher(GALLERY).view.snapshot)
    held = galleries.matcher(GALLERY)
    gc.disable()
    try:
        # The same pictures once more, under other ids: a new version.
        index_items(open_of(settings), read_source(catalog / "plain"), embedder_of(settings), workers=1)
        galleries.matcher(GALLERY).search(item_ids=[ITEM])
        galleries.wait()
        # Negative control: whoever searches keeps it.
        assert before() is held.view.snapshot
        del held
        assert before() is None
    finally:
        gc.enable()


@pytest.mark.slow
def test_the_calibration_of_another_refiner_is_stale_and_not_used(
    matcher: Matcher, settings: Settings, with_refiner: Callable[..., ModelBundle], view: View
) -> None:
    record = calibrate(matcher)
    other = settings.model_copy(update={"bundle": with_refiner(seed=1).path})
    gallery = open_of(other)
    gallery.refinement.apply(gallery.snapshot())
    threshold = matcher_of(other).search(images=[view(3, 9)])[0].threshold
    assert (threshold.value, threshold.state, threshold.calibration) == (None, "stale", record)
    assert "was made with refiner" in str(threshold.reason)


def test_a_gallery_that_was_never_refined_says_what_to_run(
    data_dir: Path, refiner_bundle: ModelBundle, run: Run, fail: Fail
) -> None:
    """It can be refined afterwards, without indexing it again."""
    options = ["--data-dir", data_dir, "--bundle", refiner_bundle.path]
    picture = data_dir / "query.png"
    Image.linear_gradient("L").save(picture)
    line = fail("search", picture, "--gallery", GALLERY, *options)
    assert "holds no items refined by" in line
    assert f"run `vicinal gallery refine {GALLERY}`" in line
    run("gallery", "refine", GALLERY, *options)
    answer = json.loads(run("search", picture, "--gallery", GALLERY, "--json", *options).output)
    assert "refine=both" in answer["pipeline"]


def test_an_uploaded_item_is_refined_before_it_is_answered_for(
    settings: Settings, view: View, encode: Encode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that no search waits for it."""
    client = TestClient(create_app(settings))
    upload = {"files": {"image": ("new.png", encode(view(3, 9)), "image/png")}, "data": {"id": "new.png"}}
    assert client.post(f"/v1/galleries/{GALLERY}/items", **upload).status_code in (200, 201)
    monkeypatch.setattr(BuiltItems, "refined", lambda *_: pytest.fail("a search refines an item"))
    query = {"files": {"image": encode(view(3, 8))}}
    found = client.post(f"/v1/galleries/{GALLERY}/search", **query).json()["candidates"]
    assert "new.png" in [one["id"] for one in found]
