"""Looks at galleries: what another process changes is searched without a request that asks for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.service.types import MakeSettings
from tests.waiting import wait_until
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.models.embedder import Embedder
from vicinal.service.http.app import create_app
from vicinal.service.http.state import state_of

pytestmark = pytest.mark.slow


def test_a_replica_searches_the_new_version_after_a_change_by_another_process(
    data_dir: Path, embedder: Embedder, make_settings: MakeSettings
) -> None:
    app = create_app(make_settings(data_dir, poll_seconds=0.05))
    client = TestClient(app)
    before = client.get("/v1/galleries/shoes").json()["version"]
    with state_of(app).running():
        built = index_items(Gallery(data_dir / "galleries" / "shoes"), None, embedder)
        wait_until(lambda: client.get("/v1/galleries/shoes").json()["version"] == built.version)
    assert before != built.version
