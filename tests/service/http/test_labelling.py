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


@pytest.mark.slow
def test_a_report_and_the_history_know_answers(web: TestClient) -> None:
    web.post(LABELLING, json=TARGET)
    answer(web, 48)
    record = told(web.post(f"{LABELLING}/finish"))["record"]
    path = f"/v1/admin/galleries/shoes/calibrations/{record['id']}/report"
    report = told(web.get(path))
    assert report["verdict"].startswith("Of 100 matches that are shown")
    assert "pairs of photos" in report["basis"]
    page = web.get(path, params={"format": "html"})
    assert page.status_code == 200
    assert "Of 100 matches that are shown" in page.text
    (kept,) = told(web.get("/v1/admin/galleries/shoes/calibrations"))["calibrations"]
    assert (kept["source"], kept["id"]) == ("answers", record["id"])


@pytest.mark.slow
def test_an_answer_is_taken_back(web: TestClient) -> None:
    begun = told(web.post(LABELLING, json=TARGET))
    answer(web, 1)
    again = told(web.delete(f"{LABELLING}/answers/last"))
    assert again == begun
    refused = web.delete(f"{LABELLING}/answers/last")
    assert (refused.status_code, "no answer to take back" in refused.text) == (422, True)


@pytest.mark.slow
def test_a_page_that_is_loaded_again_asks_the_same(web: TestClient) -> None:
    told(web.post(LABELLING, json=TARGET))
    state = answer(web, 6)
    assert told(web.post(LABELLING, json=TARGET)) == state
    assert told(web.post(LABELLING, json={**TARGET, "restart": True}))["n_answers"] == 0


@pytest.mark.slow
def test_what_cannot_be_told_is_counted_apart(web: TestClient) -> None:
    told(web.post(LABELLING, json=TARGET))
    state = told(web.post(f"{LABELLING}/answers", json={"number": 0, "same": None}))
    assert (state["n_answers"], state["n_skipped"]) == (1, 1)
    assert state["sentence"].startswith("40 more answers")


def test_a_session_is_given_up(web: TestClient) -> None:
    told(web.post(LABELLING, json=TARGET))
    assert web.delete(LABELLING).status_code == 204
    assert web.get(LABELLING).status_code == 404


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reason"),
    [
        ("GET", "", None, 404, "begin one by POST"),
        ("POST", "/finish", None, 404, "begin one by POST"),
        ("POST", "/answers", {"number": 0, "same": True}, 404, "begin one by POST"),
        ("DELETE", "/answers/last", None, 404, "begin one by POST"),
        ("DELETE", "", None, 404, "begin one by POST"),
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


@pytest.mark.slow
def test_answers_from_two_windows_do_not_mix(web: TestClient) -> None:
    told(web.post(LABELLING, json=TARGET))
    told(web.post(f"{LABELLING}/answers", json={"number": 0, "same": True}))
    refused = web.post(f"{LABELLING}/answers", json={"number": 0, "same": True})
    assert (refused.status_code, "somebody else answers too" in refused.text) == (422, True)
    assert told(web.get(LABELLING))["n_answers"] == 1


def test_labelling_takes_the_admin_scope(data_dir: Path, make_settings: Callable[..., Settings]) -> None:
    keys = {"reader": ["search"], "owner": ["search", "admin"]}
    guarded = TestClient(create_app(make_settings(data_dir, api_keys=keys)))
    codes = [
        guarded.post(LABELLING, json=TARGET, headers={"X-API-Key": key}).status_code
        for key in ("", "reader", "owner")
    ]
    assert codes == [401, 403, 200]
