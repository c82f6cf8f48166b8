"""Notices between replicas: what another process changes is searched, over an outage of Redis too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.service.redis_server import RedisServer
from tests.service.types import MakeSettings
from tests.waiting import wait_until
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.models.embedder import Embedder
from vicinal.service.galleries.change_notices import ChangeNotices, announce_change
from vicinal.service.http.app import create_app
from vicinal.service.http.state import state_of
from vicinal.service.redis_link import RedisLink

pytestmark = pytest.mark.slow


class OpenedNames:
    """Stands in for the open galleries and notes what is opened; real ones would reopen unnoticed."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.n_polls = 0

    def matcher(self, name: str) -> None:
        self.opened.append(name)

    def states(self) -> None:
        self.n_polls += 1


@pytest.fixture
def link(redis_server: RedisServer) -> RedisLink:
    return RedisLink(redis_server.url, timeout_seconds=60.0, retry_seconds=0.05)


@pytest.fixture
def replica(link: RedisLink) -> Iterator[OpenedNames]:
    """A replica that listens, and polls once a minute."""
    galleries = OpenedNames()
    with ChangeNotices(galleries, link, poll_seconds=60.0):
        wait_until(lambda: bool(link.ask(lambda redis: redis.pubsub_numsub("vicinal:galleries")[0][1])))
        yield galleries


@pytest.mark.parametrize("way", [("stop", "start"), ("freeze", "thaw")])
def test_polling_bridges_an_outage_and_notices_come_back(
    link: RedisLink, redis_server: RedisServer, way: tuple[str, str]
) -> None:
    galleries = OpenedNames()
    own = RedisLink(redis_server.url, timeout_seconds=0.2, retry_seconds=0.05)
    with ChangeNotices(galleries, own, poll_seconds=0.1):
        getattr(redis_server, way[0])()
        before = galleries.n_polls
        wait_until(lambda: galleries.n_polls >= before + 5)
        getattr(redis_server, way[1])()

        def noticed() -> bool:
            announce_change(link, "shoes")
            return "shoes" in galleries.opened

        wait_until(noticed)


def test_a_replica_searches_the_new_version_after_a_change_by_another_process(
    data_dir: Path,
    embedder: Embedder,
    make_settings: MakeSettings,
    link: RedisLink,
) -> None:
    app = create_app(make_settings(data_dir, poll_seconds=0.05))
    client = TestClient(app)
    before = client.get("/v1/galleries/shoes").json()["version"]
    with state_of(app).running():
        built = index_items(Gallery(data_dir / "galleries" / "shoes"), None, embedder)
        wait_until(lambda: client.get("/v1/galleries/shoes").json()["version"] == built.version)
    assert before != built.version
