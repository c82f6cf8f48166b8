"""Refined ready embeddings over HTTP: a job takes a named bundle, and the version keeps its refiner."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.service.types import MakeSettings
from tests.waiting import wait_for_job
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import remove_items
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources.embeddings import EmbeddingSource
from vicinal.models.bundle import ModelBundle
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.http.app import create_app
from vicinal.service.http.state import state_of
from vicinal.service.jobs.worker import JobWorker
from vicinal.service.settings import Settings

SHOP = "/v1/galleries/shop"
REINDEX = "/v1/admin/galleries/shop/reindex"
N, DIM = 120, 12
RNG = np.random.default_rng(0)
VECTORS = np.repeat(RNG.normal(size=(N // 6, DIM)), 6, axis=0) + 0.2 * RNG.normal(size=(N, DIM))
QUERY = {"embedding": (VECTORS[7] + 0.1).tolist()}


@pytest.fixture
def settings(
    data_dir: Path,
    make_settings: MakeSettings,
    tmp_path: Path,
    tiny_bundle: ModelBundle,
    refined_space: Callable[..., ModelBundle],
) -> Settings:
    """A gallery of images, one of ready embeddings, and refiners of its space and of another."""
    made = make_settings(data_dir, bundles_dir=tmp_path / "bundles", sources_dir=tmp_path)
    for name, space, dim in (
        ("refined", "clip", DIM),
        ("strange", "siglip", DIM),
        ("longer", "clip", 2 * DIM),
    ):
        refined_space(space, dim, made.bundles_dir / name, sides="both")
    ids, labels = [f"item {i}" for i in range(N)], [f"label {i // 6}" for i in range(N)]
    gallery = Gallery(made.gallery_path("shop"))
    source = EmbeddingSource.of_arrays(VECTORS, ids, labels=labels)
    index_items(gallery, source, ServedBundles(made).resolve(gallery, source, space="clip").embedder)
    return made


@pytest.fixture
def client(settings: Settings) -> Iterator[TestClient]:
    app = create_app(settings)
    yield TestClient(app)
    state_of(app).galleries.maintenance.wait()


@pytest.fixture
def worked(client: TestClient) -> Iterator[Callable[..., dict[str, Any]]]:
    """Posts a job and gives it when it is over."""
    state = state_of(client.app)
    with JobWorker(state.jobs, state.kinds, heartbeat_seconds=0.5):
        yield lambda url, **body: wait_for_job(client, client.post(url, json=body))


def search(client: TestClient, **more: Any) -> dict[str, Any]:
    answer = client.post(f"{SHOP}/search", json={**QUERY, "limit": N, **more})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def found(answer: dict[str, Any]) -> list[tuple[str, float]]:
    return [(one["id"], one["score"]) for one in answer["matches"] or answer["candidates"]]


def refused(answer: Any, status: int) -> str:
    assert answer.status_code == status, answer.text
    return str(answer.json()["detail"])


@pytest.mark.slow
def test_from_a_named_bundle_to_calibrated_answers_and_back(
    client: TestClient, worked: Callable[..., dict[str, Any]]
) -> None:
    calibrations = "/v1/admin/galleries/shop/calibrations"
    assert worked(calibrations, target="fpir=5%")["state"] == "succeeded"
    before, first = search(client), client.get(SHOP).json()["version"]
    assert before["threshold"]["state"] == "current"
    assert worked(REINDEX, bundle="refined")["state"] == "succeeded"
    uncalibrated = search(client)
    assert uncalibrated["pipeline"].startswith("refine=both steps=3")
    assert uncalibrated["bundle"] == before["bundle"]
    # The threshold that was made without the refiner decides nothing that went through it.
    assert uncalibrated["threshold"]["calibration"] is None
    assert worked(calibrations, target="fpir=5%")["state"] == "succeeded"
    after = search(client)
    assert after["threshold"]["state"] == "current"
    assert after["threshold"]["calibration"] != before["threshold"]["calibration"]
    added = {"id": "new", "embedding": VECTORS[0].tolist(), "label": "label 0"}
    assert client.post(f"{SHOP}/items", json={"items": [added], "space": "clip"}).status_code == 200
    assert ("new" in dict(found(search(client, threshold=0.0))), search(client)["n_searched"]) == (
        True,
        N + 1,
    )
    assert client.post(f"{SHOP}/versions/{first}/activate").status_code == 200
    back = search(client)
    assert (back["pipeline"], found(back)) == (before["pipeline"], found(before))
    assert back["threshold"]["calibration"] == before["threshold"]["calibration"]


@pytest.mark.slow
def test_a_refined_version_is_compared_before_it_is_used(
    client: TestClient, worked: Callable[..., dict[str, Any]]
) -> None:
    before = search(client, threshold=0.0)
    job = worked(REINDEX, bundle="refined", activate="manual", comparison={"target": "fpir=5%"})
    assert job["state"] == "succeeded"
    assert found(search(client, threshold=0.0)) == found(before)
    url = f"/v1/admin/galleries/shop/comparisons/{job['result']['comparison']}"
    compared = client.get(url).json()
    sides = {one["version"]: one["pipeline"]["refine"]["sides"] for one in compared["variants"]}
    assert sides == {1: "off", 2: "both"}
    activated = client.post(f"{url}/activate", json={"variant": 1})
    assert activated.status_code == 200, activated.text
    assert search(client)["pipeline"].startswith("refine=both")
    # The choice holds for the refiner that it was made with.
    assert client.post(f"{SHOP}/versions/1/activate").status_code == 200
    assert found(search(client, threshold=0.0)) == found(before)


@pytest.mark.slow
def test_a_compaction_before_any_search_is_refined(client: TestClient, settings: Settings) -> None:
    gallery, bundles = Gallery(settings.gallery_path("shop")), ServedBundles(settings)
    served = bundles.resolve(gallery, None, bundle="refined")
    index_items(gallery, None, served.embedder)
    remove_items(GalleryReader(gallery), ["item 0"])
    assert client.post(f"{SHOP}/compaction").status_code == 202
    state_of(client.app).galleries.maintenance.wait()
    assert gallery.reports.of(gallery.active_version)["kind"] == "compaction"
    assert search(client)["pipeline"].startswith("refine=both")


def test_bundles_that_do_not_fit_are_refused_before_they_wait(client: TestClient) -> None:
    holds = "gallery 'shop' holds ready 12-d embeddings of 'clip@1', not"
    for name, what in {
        "strange": "12-d embeddings of 'siglip@1'",
        "longer": "24-d embeddings of 'clip@1'",
    }.items():
        assert refused(client.post(REINDEX, json={"bundle": name}), 409).startswith(f"{holds} ready {what}")
    words = "'clip' is a space of ready embeddings: it embeds no images"
    shoes = client.post("/v1/admin/galleries/shoes/reindex", json={"bundle": "refined"})
    assert refused(shoes, 422) == words


@pytest.mark.slow
def test_a_server_of_a_refined_space_tells_what_it_cannot_search(
    settings: Settings, make_settings: MakeSettings
) -> None:
    """Galleries of images need a bundle that embeds; that of the settings is a space."""
    path = settings.bundles_dir / "refined"
    client = TestClient(create_app(settings.model_copy(update={"bundle": path})))
    states = {one["name"]: one for one in client.get("/readyz").json()["galleries"]}
    assert "gallery 'shoes' was embedded with bundle" in states["shoes"]["problem"]
    # It is refined by nobody yet.
    assert "run `refine`" in states["shop"]["problem"]
    assert client.post(f"{SHOP}/search", json={**QUERY, "refine": "off"}).status_code == 200
    assert client.post(f"{SHOP}/search", json={**QUERY, "refine": "query"}).status_code == 200
    assert client.put("/v1/galleries/new").json()["detail"].endswith("it embeds no images")
    made = client.put("/v1/galleries/new?space=clip&dim=12")
    assert made.status_code == 201
