"""Labelling over HTTP: a session from its start to the threshold that searches use, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from vicinal.service.http.app import create_app
from vicinal.service.settings import Settings

LABELLING = "/v1/admin/galleries/shoes/labelling"
SEARCH = "/v1/galleries/shoes/search"
TARGET = {"target": "precision=90%"}


@pytest.fixture
def web(data_dir: Path, make_settings: Callable[..., Settings]) -> TestClient:
    return TestClient(create_app(make_settings(data_dir)))


def told(response: Any) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def answer(web: TestClient, n: int) -> dict[str, Any]:
    """Answer by the class folders that the ids begin with."""
    state = told(web.get(LABELLING))
    for _ in range(n):
        question = state["questions"][0]
        first, second = (one.split("/")[0] for one in question["items"])
        state = told(
            web.post(f"{LABELLING}/answers", json={"number": question["number"], "same": first == second})
        )
    return state


@pytest.mark.slow
def test_answers_become_the_threshold_of_searches(web: TestClient) -> None:
    begun = told(web.post(LABELLING, json=TARGET))
    assert (begun["n_answers"], begun["estimate"], begun["target"]) == (0, None, "precision 90 %")
    state = answer(web, 44)
    assert state["n_answers"] == 44
    estimate = state["estimate"]
    ended = told(web.post(f"{LABELLING}/finish"))
    assert (ended["record"]["id"], ended["is_active"], ended["state"]) == (begun["id"], True, "current")
    item = begun["questions"][0]["items"][0]
    decided = told(web.post(SEARCH, json={"item_id": item}))["threshold"]
    assert (decided["value"], decided["source"]) == (estimate["threshold"], "calibration")
    assert web.get(LABELLING).status_code == 404


def test_photos_that_are_removed_are_asked_about_no_more(web: TestClient) -> None:
    begun = told(web.post(LABELLING, json=TARGET))
    asked = begun["questions"][0]["items"]
    answer(web, 1)
    told(web.post("/v1/galleries/shoes/items/delete", json={"ids": asked}))
    state = told(web.get(LABELLING))
    assert (state["n_answers"], state["n_gone"]) == (1, 1)
    assert not {one for question in state["questions"] for one in question["items"]} & {*asked}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reason"),
    [
        ("GET", "", None, 404, "begin one by POST"),
        ("POST", "/finish", None, 404, "begin one by POST"),
        ("POST", "/answers", {"number": 0, "same": True}, 404, "begin one by POST"),
        ("DELETE", "/answers/last", None, 404, "begin one by POST"),
        ("POST", "", {"target": "fpir=5%"}, 422, "name precision=95% or far"),
        ("POST", "", {"target": "nonsense"}, 422, "target"),
        ("POST", "", {"aim": "precision=95%"}, 422, "aim"),
    ],
)
def test_what_cannot_be_done_is_refused(
    web: TestClient, method: str, path: str, body: object, status: int, reason: str
) -> None:
    response = web.request(method, LABELLING + path, json=body)
    assert (response.status_code, reason in response.text) == (status, True), response.text
