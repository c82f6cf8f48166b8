"""Engines beside the replicas, which a test kills in the middle of a build."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.milvus_server import MilvusServer
from tests.postgres_server import PostgresServer
from tests.waiting import wait_until
from vicinal.indexer.engines import Engines, GalleryTables

__all__ = ["EngineBeside"]


class EngineBeside:
    """An engine, at an address that the hosts reach."""

    def __init__(self, kind: str, server: PostgresServer | MilvusServer, address: str) -> None:
        self.kind, self.server = kind, server
        is_postgres = isinstance(server, PostgresServer)
        self.url = server.url() if is_postgres else server.url.replace("127.0.0.1", address)
        self.variables = {f"VICINAL_{kind.upper()}_URL": self.url}
        self._engines = Engines({kind: self.url}, retry_seconds=0.0)

    def tables_of(self, data_dir: Path, gallery: str) -> set[str]:
        """Tables that it has of a gallery."""
        prefix = GalleryTables(data_dir / "galleries" / gallery).prefix
        with self._engines.asking(self.kind) as engine:
            return set(engine.names(prefix))

    def drop(self, names: set[str]) -> None:
        """Lose tables."""
        with self._engines.asking(self.kind) as engine:
            for name in names:
                engine.drop(name)

    @contextmanager
    def building(self, data_dir: Path, gallery: str) -> Iterator[None]:
        """Let what is begun in the context be a build that has begun, and is not over, when it ends."""
        if isinstance(self.server, PostgresServer):
            # A build comments on its table, and nothing else does.
            with self.server.locking("pg_description") as has_waiting:
                yield
                wait_until(has_waiting)
                self.server.kill()
            return
        before = self.tables_of(data_dir, gallery)
        yield
        # It takes some seconds from here.
        wait_until(lambda: self.tables_of(data_dir, gallery) - before)
        self.server.kill()

    def close(self) -> None:
        """Close connections."""
        self._engines.close()
