"""Milvus beside the replicas, which a test kills in the middle of a build."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.milvus_server import MilvusServer
from tests.waiting import wait_until
from vicinal.indexer.engines import Engine, GalleryTables

__all__ = ["EngineBeside"]


class EngineBeside:
    """Milvus, at an address that the hosts reach."""

    def __init__(self, server: MilvusServer, address: str) -> None:
        self.server = server
        self.url = server.url.replace("127.0.0.1", address)
        self.variables = {"VICINAL_MILVUS_URL": self.url}
        self._engine = Engine(self.url, retry_seconds=0.0)

    def tables_of(self, data_dir: Path, gallery: str) -> set[str]:
        """Tables that it has of a gallery."""
        prefix = GalleryTables(data_dir / "galleries" / gallery).prefix
        with self._engine.asking() as engine:
            return set(engine.names(prefix))

    def drop(self, names: set[str]) -> None:
        """Lose tables."""
        with self._engine.asking() as engine:
            for name in names:
                engine.drop(name)

    @contextmanager
    def building(self, data_dir: Path, gallery: str) -> Iterator[None]:
        """Let what is begun in the context be a build that has begun, and is not over, when it ends."""
        before = self.tables_of(data_dir, gallery)
        yield
        # It takes some seconds from here.
        wait_until(lambda: self.tables_of(data_dir, gallery) - before)
        self.server.kill()

    def close(self) -> None:
        """Close connections."""
        self._engine.close()
