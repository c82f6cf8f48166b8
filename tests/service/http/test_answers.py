"""Answers to kept searches over HTTP: who may give and read them, and what they tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.service.kept_searches import View, keep_searches
from tests.service.types import MakeSettings
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.transfer.moving import copy_gallery
from vicinal.service.answering.kept import KeptSearch
from vicinal.service.answering.store import SearchStore
from vicinal.service.http.app import create_app
from vicinal.service.keys import KeyStore
from vicinal.service.measuring.matcher import Matcher

ANSWERS = "/v1/galleries/shoes/answers"
ADMIN = "/v1/admin/galleries/shoes"


@pytest.fixture
def searches(matcher: Matcher, view: View) -> list[KeptSearch]:
    return keep_searches(matcher, view, 12)


@pytest.fixture
def web(data_dir: Path, make_settings: MakeSettings, searches: list[KeptSearch]) -> TestClient:
    return TestClient(create_app(make_settings(data_dir)))


def told(response: Any) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def test_an_answer_is_asked_for_given_and_taken_back(web: TestClient) -> None:
    asked = told(web.get(f"{ADMIN}/answers/next", params={"n": 2}))
    first, second = (one["search_id"] for one in asked["questions"])
    assert asked["sentence"] == "None of 12 kept searches is answered yet."
    item = asked["questions"][0]["candidates"][0]["id"]
    given = told(web.post(ANSWERS, json={"search_id": first, "item_id": item}))
    assert (given["kind"], given["item_id"], given["by"]) == ("item", item, "nobody named")
    assert given["sentence"].startswith("Of 1 answered search 1 shows what the gallery has")
    assert told(web.get(f"{ADMIN}/answers/next"))["questions"][0]["search_id"] == second
    assert told(web.get(f"{ADMIN}/searches/{first}"))["answers"][0]["number"] == given["number"]
    ended = told(web.delete(f"{ANSWERS}/{given['number']}"))
    assert ended["sentence"] == "None of 12 kept searches is answered yet."
    again = web.delete(f"{ANSWERS}/{given['number']}")
    assert (again.status_code, again.json()["type"]) == (404, "urn:vicinal:problem:answer-not-found")


def test_answers_that_do_not_count_yet_are_counted_and_said_to_be_drawn_later(
    web: TestClient, searches: list[KeptSearch]
) -> None:
    for one in searches[:3]:
        given = told(web.post(ANSWERS, json={"search_id": one.id, "absent": True}))
    assert given["sentence"].startswith("3 of 12 kept searches got an answer, which counts in no rate yet")
    assert "not drawn by chance" in told(web.get(f"{ADMIN}/answers"))["sentence"]
    asked = told(web.get(f"{ADMIN}/answers/next", params={"n": 9}))
    assert asked["sentence"].startswith("Of 3 answered searches 0 show what the gallery has")


def test_of_many_answers_those_that_can_be_kept_are(web: TestClient, searches: list[KeptSearch]) -> None:
    first, second, third = (one.id for one in searches[:3])
    said = [
        {"search_id": first, "label": "plain"},
        {"search_id": "f" * 32, "absent": True},
        {"search_id": second, "label": "plane"},
        {"search_id": third, "absent": True},
    ]
    found = told(web.post(ANSWERS.replace("/answers", "/answer-batches"), json={"answers": said}))
    assert [one and one["kind"] for one in found["given"]] == ["label", None, None, "absent"]
    assert found["given"][0]["sentence"] == found["given"][3]["sentence"] == found["sentence"]
    kinds = [(one["place"], one["type"].rpartition(":")[2]) for one in found["refused"]]
    assert kinds == [(1, "search-not-found"), (2, "label-unknown")]
    assert "the nearest are 'plain'" in found["refused"][1]["reason"]
    web.get(f"{ADMIN}/answers/next", params={"n": 12})
    assert told(web.get(f"{ADMIN}/answers"))["n_answered"] == 2
    for one in (found["given"][0], found["given"][3]):
        told(web.delete(f"{ANSWERS}/{one['number']}"))
    assert told(web.get(f"{ADMIN}/searches/{first}"))["answers"] == []


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        ({"absent": True}, 404, "it was not kept, or has gone with its age"),
        ({"item_id": "hat"}, 404, "has no item 'hat'"),
        ({"wrong": "hat"}, 404, "has no item 'hat'"),
        ({"label": "red show"}, 422, "the nearest are 'red shoe'"),
        ({"label": "plain", "absent": True}, 422, "say exactly one of"),
        ({"absent": False}, 422, "say exactly one of"),
        ({}, 422, "say exactly one of"),
        ({"absent": "yes"}, 422, "absent"),
        ({"is": "plain"}, 422, "is"),
    ],
)
def test_what_cannot_be_said_is_refused(
    web: TestClient, searches: list[KeptSearch], body: dict[str, Any], status: int, reason: str
) -> None:
    search = "f" * 32 if status == 404 and "absent" in body else searches[0].id
    response = web.post(ANSWERS, json={"search_id": search, **body})
    assert (response.status_code, reason in response.json()["detail"]) == (status, True), response.text
    assert told(web.get(f"{ADMIN}/searches/{searches[0].id}"))["answers"] == []


@pytest.fixture
def keys(data_dir: Path) -> dict[str, dict[str, str]]:
    """Headers with keys: of two who search, of an admin elsewhere and one of all, and none."""
    store = KeyStore(data_dir)
    made = {
        "eve": store.create("eve", ["search"])[1],
        "bob": store.create("bob", ["search"], galleries=["shoes"])[1],
        "other": store.create("other", ["search", "admin"], galleries=["boots"])[1],
        "owner": store.create("owner", ["search", "write", "admin"])[1],
    }
    return {name: {"X-API-Key": key} for name, key in made.items()} | {"nobody": {}}


def test_only_who_may_search_answers_and_only_an_admin_reads(
    web: TestClient, searches: list[KeptSearch], keys: dict[str, dict[str, str]], gallery: Gallery
) -> None:
    SearchStore(copy_gallery(gallery, "boots").path).delete()
    told(web.put("/v1/aliases/live", json={"gallery": "shoes"}, headers=keys["owner"]))
    body = {"search_id": searches[0].id, "absent": True}
    codes = {name: web.post(ANSWERS, json=body, headers=key).status_code for name, key in keys.items()}
    assert codes == {"eve": 200, "bob": 200, "other": 404, "owner": 200, "nobody": 401}
    reading = ("answers", "answers/next", "searches", f"searches/{body['search_id']}")
    for path in reading:
        codes = {name: web.get(f"{ADMIN}/{path}", headers=key).status_code for name, key in keys.items()}
        assert codes == {"eve": 403, "bob": 403, "other": 404, "owner": 200, "nobody": 401}, path
    # By another name of the same gallery it is no more.
    for name, key in keys.items():
        alias = web.post("/v1/galleries/live/answers", json=body, headers=key)
        assert alias.status_code == {"other": 404, "nobody": 401}.get(name, 200)
    assert web.get("/v1/admin/galleries/live/searches", headers=keys["other"]).status_code == 404
    elsewhere = web.post("/v1/galleries/boots/answers", json=body, headers=keys["other"])
    assert (elsewhere.status_code, "'boots' has no kept search" in elsewhere.text) == (404, True)


def shown(web: TestClient, search: str, key: dict[str, str]) -> list[str]:
    found = told(web.post("/v1/galleries/shoes/search", json={"search_id": search, "limit": 50}, headers=key))
    return [one["id"] for one in found["matches"] + found["candidates"]]


def test_a_key_that_may_only_search_changes_nothing_for_others(
    web: TestClient, searches: list[KeptSearch], keys: dict[str, dict[str, str]]
) -> None:
    search = searches[0].id
    item = shown(web, search, keys["bob"])[0]
    given = told(web.post(ANSWERS, json={"search_id": search, "wrong": item}, headers=keys["eve"]))
    absent = [{"search_id": one.id, "absent": True} for one in searches]
    told(
        web.post(
            ANSWERS.replace("/answers", "/answer-batches"), json={"answers": absent}, headers=keys["eve"]
        )
    )
    assert (given["is_hint"], given["number"] < 0, "that key alone" in given["note"]) == (True, True, True)
    assert [item in shown(web, search, keys[one]) for one in ("eve", "bob", "owner")] == [False, True, True]
    asked = told(web.get(f"{ADMIN}/answers/next", params={"n": 12}, headers=keys["owner"]))["questions"]
    assert len(asked) == 12
    assert {(one["is_again"], one["hints"][-1]["kind"]) for one in asked} == {(False, "absent")}
    known = told(web.get(f"{ADMIN}/answers", headers=keys["owner"]))
    assert (known["n_answered"], known["n_wrong"], known["n_absent"]) == (0, 0, 0)
    assert [(one["by"][:4], one["n"], one["n_hints"]) for one in known["by"]] == [("eve ", 0, 13)]
    # Who says both says the last word for itself alone.
    told(web.post(ANSWERS, json={"search_id": search, "wrong": item}, headers=keys["owner"]))
    told(web.post(ANSWERS, json={"search_id": search, "item_id": item}, headers=keys["eve"]))
    assert item not in shown(web, search, keys["bob"])
    by = {"by": known["by"][0]["by"]}
    assert web.delete(f"{ADMIN}/answers", params=by, headers=keys["eve"]).status_code == 403
    assert told(web.delete(f"{ADMIN}/answers", params=by, headers=keys["owner"]))["sentence"]
    assert web.delete(f"{ADMIN}/answers", params=by, headers=keys["owner"]).status_code == 404
    (left,) = told(web.get(f"{ADMIN}/answers", headers=keys["owner"]))["by"]
    assert (left["by"][:6], left["n"], left["n_hints"]) == ("owner ", 1, 0)
