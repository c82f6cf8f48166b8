"""Calibrations that cannot be made: each says what is missing or what can be reached."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.service.conftest import LABELS, make_view
from tests.service.types import Fail, MakeSettings
from tests.waiting import wait_for_job
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources import read_source
from vicinal.models.embedder import Embedder
from vicinal.service.http.app import create_app
from vicinal.service.http.state import state_of
from vicinal.service.jobs.worker import JobWorker

TYPE = "urn:vicinal:problem:"
OFF = {"rerank": "off"}


@pytest.fixture(scope="module")
def galleries(tmp_path_factory: pytest.TempPathFactory, embedder: Embedder) -> Path:
    """`bare` without labels, `alike` with one, `few` with three, `singles` of one image, `copies` of one."""
    root = tmp_path_factory.mktemp("errors")
    folders = {
        "bare": ["."] * 4,
        "alike": ["only"] * 4,
        "singles": list(LABELS),
        "copies": ["a", "b", "c", "d", "e", "f"] * 10,
        "few": ["a", "b", "c"] * 20,
    }
    for name, labels in folders.items():
        for number, label in enumerate(labels):
            folder = root / "sources" / name / label
            folder.mkdir(parents=True, exist_ok=True)
            make_view(0 if name == "copies" else number, 0).save(folder / f"{number}.png")
        gallery = Gallery(root / "data" / "galleries" / name)
        index_items(gallery, read_source(root / "sources" / name), embedder, workers=1)
    return root / "data"


@pytest.fixture
def client(galleries: Path, tmp_path: Path, make_settings: MakeSettings) -> Iterator[TestClient]:
    shutil.copytree(galleries, tmp_path / "data")
    app = create_app(make_settings(tmp_path / "data"))
    with JobWorker(state_of(app).jobs, state_of(app).kinds, heartbeat_seconds=0.5):
        yield TestClient(app)
    state_of(app).jobs.queue.close()


def failed_job(client: TestClient, gallery: str, body: dict[str, Any]) -> dict[str, Any]:
    accepted = client.post(f"/v1/admin/galleries/{gallery}/calibrations", json=body)
    return wait_for_job(client, accepted)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gallery", "kind", "reason"),
    [
        ("bare", "calibration-unlabelled", "by `label`"),
        ("alike", "calibration-one-label", "no negative pairs: add items of other labels"),
    ],
)
def test_what_the_labels_rule_out_is_refused_at_once(
    client: TestClient, gallery: str, kind: str, reason: str
) -> None:
    answer = client.post(f"/v1/admin/galleries/{gallery}/calibrations", json={})
    assert (answer.status_code, answer.json()["type"]) == (422, TYPE + kind)
    assert reason in answer.json()["detail"]


@pytest.mark.slow
def test_an_unreachable_target_says_what_can_be_reached(client: TestClient) -> None:
    """Every picture is the same, so that a query without a mate scores 1 with all of them."""
    job = failed_job(client, "copies", {"target": "fpir=5%", **OFF})
    assert job["problem_type"] == TYPE + "calibration-unreachable"
    assert job["problem_members"] == {"target": "FPIR 5 %", "reachable": 1.0, "bound": "lowest"}
    assert "the lowest that a threshold in [0, 1] reaches is 100 %" in job["problem"]


@pytest.mark.slow
def test_too_few_queries_say_how_many_are_needed(client: TestClient) -> None:
    job = failed_job(client, "copies", {"target": "fpir=1%", **OFF})
    assert job["problem_type"] == TYPE + "calibration-too-few-trials"
    members = {"rate": 0.01, "n_trials": 60, "needed": 300, "trials": "queries without a mate"}
    assert job["problem_members"] == members
    assert "the lowest rate that 60 can show is 0.05" in job["problem"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gallery", "target", "reason"),
    [
        ("bare", "fpir=5%", "no labels"),
        ("alike", "fpir=5%", "no negative pairs"),
        ("copies", "fpir=5%", "cannot be reached"),
        ("copies", "fpir=1%", "needs at least 300 queries without a mate, this calibration has 60"),
        ("singles", "fnir=20%", "needs at least 15 queries with a mate, this calibration has 0"),
    ],
)
def test_the_command_says_it_in_one_line(
    fail: Fail, galleries: Path, gallery: str, target: str, reason: str
) -> None:
    arguments = ("-g", gallery, "--target", target, "--rerank", "off", "--data-dir", galleries)
    assert reason in fail("calibrate", *arguments)
