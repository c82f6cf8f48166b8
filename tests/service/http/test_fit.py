"""Fit jobs over HTTP: what cannot work is refused at once, and what can is done by a worker."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.service.types import MakeSettings
from vicinal.service import training
from vicinal.service.http.app import create_app

FIT = "/v1/admin/galleries/shoes/fit"


@pytest.fixture
def client(data_dir: Path, make_settings: MakeSettings) -> TestClient:
    return TestClient(create_app(make_settings(data_dir)))


@pytest.fixture
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "_PACKAGES", ())


@pytest.mark.usefixtures("_installed")
def test_too_few_labels_are_refused_with_their_number(client: TestClient) -> None:
    answer = client.post(FIT, json={"name": "mine"})
    assert answer.status_code == 422
    assert "10 labels have two photos or more, 12 are needed" in answer.json()["detail"]


@pytest.mark.usefixtures("_installed")
def test_a_fitting_is_accepted_as_a_job(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vicinal.service.fitting.labelled_images.FEWEST_LABELS", 4)
    monkeypatch.setattr("vicinal.service.fitting.labelled_images._FEWEST_HELD_OUT", 4)
    answer = client.post(FIT, json={"name": "mine", "minutes": 5})
    assert (answer.status_code, answer.json()["kind"]) == (202, "fit")
    assert answer.headers["Location"] == f"/v1/jobs/{answer.json()['id']}"
    assert client.post(FIT, json={"name": "mine"}).status_code == 409


@pytest.mark.usefixtures("_installed")
def test_a_bundle_that_is_there_is_not_replaced(client: TestClient, data_dir: Path) -> None:
    (data_dir / "bundles" / "mine").mkdir(parents=True)
    answer = client.post(FIT, json={"name": "mine"})
    assert answer.status_code == 422
    assert "choose another name" in answer.json()["detail"]
