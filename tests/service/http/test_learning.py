"""What a gallery learns, over HTTP: searches become items, items are set aside, a wrong match says why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.service.kept_searches import View, keep_searches
from tests.service.types import MakeSettings
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.jobs.set_aside import set_aside
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources import read_source, source_name
from vicinal.models.embedder import Embedder
from vicinal.service.answering.kept import KeptSearch
from vicinal.service.http.app import create_app
from vicinal.service.http.state import state_of
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.operations import calibrate
from vicinal.service.operations.place import Place, Progress

OWN, ADMIN = "/v1/galleries/shoes", "/v1/admin/galleries/shoes"


@pytest.fixture
def searches(matcher: Matcher, view: View) -> list[KeptSearch]:
    return keep_searches(matcher, view, 10)


@pytest.fixture
def web(data_dir: Path, make_settings: MakeSettings, searches: list[KeptSearch]) -> TestClient:
    return TestClient(create_app(make_settings(data_dir)))


def told(response: Any) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def confirm(web: TestClient, search: KeptSearch) -> None:
    told(web.post(f"{OWN}/answers", json={"search_id": search.id, "item_id": search.candidates[0].id}))


def test_confirmed_searches_become_items_and_queries_again(
    web: TestClient, searches: list[KeptSearch]
) -> None:
    for one in searches[:3]:
        confirm(web, one)
    single = told(web.post(f"{ADMIN}/answers/items", json={"search_ids": [searches[0].id]}))
    item = single["added"][0]["item_id"]
    assert told(web.get(f"{OWN}/item", params={"id": item}))["metadata"]["source"] == "search"
    rest = told(web.post(f"{ADMIN}/answers/items", json={}))
    assert len(rest["added"]) == 2
    # Calibrations measure what is built.
    state = state_of(web.app)
    state.galleries.wait()
    assert state.galleries.matcher("shoes").view.n_changes == 0
    assert told(web.delete(f"{ADMIN}/searches/{searches[0].id}/item")) == {"item_id": item}
    assert web.get(f"{OWN}/item", params={"id": item}).status_code == 404
    again = web.delete(f"{ADMIN}/searches/{searches[0].id}/item")
    assert (again.status_code, again.json()["type"]) == (422, "urn:vicinal:problem:invalid-request")
    assert web.post(f"{ADMIN}/answers/items", json={"search_ids": ["gone"]}).status_code == 404


def test_a_wrong_match_says_why_and_one_step_sets_its_item_aside(
    web: TestClient, searches: list[KeptSearch]
) -> None:
    search = searches[0]
    item = search.candidates[0].id
    told(web.put(f"{ADMIN}/threshold", json={"threshold": 0.3}))
    told(web.post(f"{OWN}/answers", json={"search_id": search.id, "wrong": item}))
    why = told(web.get(f"{ADMIN}/searches/{search.id}/why", params={"id": item}))
    assert (why["item_id"], bool(why["sentence"])) == (item, True)
    n = told(web.get(f"{OWN}"))["n_items"]
    done = told(web.post(f"{OWN}/set-aside", json={"ids": [item], "reason": "two shoes"}))
    assert (done["removed"], done["n_items"]) == (1, n - 1)
    assert web.get(f"{OWN}/item", params={"id": item}).status_code == 404
    (one,) = told(web.get(f"{OWN}/set-aside"))["items"]
    assert (one["id"], one["reason"], one["by"]) == (item, "two shoes", "nobody named")
    picture = web.get(f"{OWN}/set-aside/thumbnail", params={"id": item})
    assert picture.headers["content-type"] == "image/jpeg"
    assert told(web.delete(f"{OWN}/set-aside", params={"id": item})) == {"id": item, "n_items": n}
    gone = web.delete(f"{OWN}/set-aside", params={"id": item})
    assert (gone.status_code, gone.json()["type"]) == (404, "urn:vicinal:problem:item-not-set-aside")


@pytest.mark.slow
def test_neither_source_nor_calibration_brings_back_what_is_set_aside(
    data_dir: Path, catalog: Path, embedder: Embedder, make_settings: MakeSettings, matcher: Matcher
) -> None:
    reader = GalleryReader(matcher.gallery)
    item = matcher.view.items([0])[0]["id"]
    set_aside(reader, [item], reason="two shoes", by="eve")
    place = Place(state_of(create_app(make_settings(data_dir))).galleries.bundles, matcher.gallery)
    record = calibrate.run(place, calibrate.CalibrateRequest(target="fpir=10%"), Progress()).record
    assert record.n_items == len(matcher.view) - 1
    index_items(matcher.gallery, read_source(catalog), embedder, source=source_name(catalog), workers=1)
    assert GalleryReader(matcher.gallery).view().positions([item])[0] < 0
