"""Calibrations that cannot be made are refused at once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.service.conftest import LABELS, make_view
from tests.service.types import MakeSettings
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources import read_source
from vicinal.models.embedder import Embedder
from vicinal.service.http.app import create_app

TYPE = "urn:vicinal:problem:"


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
def client(galleries: Path, tmp_path: Path, make_settings: MakeSettings) -> TestClient:
    shutil.copytree(galleries, tmp_path / "data")
    return TestClient(create_app(make_settings(tmp_path / "data")))


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
