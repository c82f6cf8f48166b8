"""Fixtures of the replicas: hosts, Redis, PostgreSQL and an object store, and replicas of new homes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.postgres_server import PostgresServer
from tests.replicas.hosts import Network, networked
from tests.replicas.programs import Replica, Store, serving_store
from tests.service.redis_server import RedisServer
from vicinal.models.bundle import ModelBundle

N_HOSTS = 3
MakeReplicas = Callable[..., list[Replica]]


@pytest.fixture(scope="session")
def network() -> Iterator[Network]:
    with networked(N_HOSTS) as made:
        yield made


@pytest.fixture(scope="session")
def store(network: Network) -> Iterator[Store]:
    with serving_store(network.store) as served:
        yield served


@pytest.fixture(scope="session")
def database(network: Network) -> Iterator[PostgresServer]:
    server = PostgresServer(address=network.database)
    yield server
    server.remove()


@pytest.fixture
def redis_server(network: Network, tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path / "redis", network.redis)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def make_replicas(
    network: Network,
    store: Store,
    database: PostgresServer,
    redis_server: RedisServer,
    tiny_bundle: ModelBundle,
    tmp_path: Path,
) -> Iterator[MakeReplicas]:
    """Replicas of one new home, none of which runs yet; keywords are further variables."""
    with ExitStack() as closed_last:

        def make(n: int, home: str | None = None, **variables: str) -> list[Replica]:
            given = {
                "VICINAL_HOME": store.new_home() if home is None else home,
                "VICINAL_DATABASE": database.new_database(),
                "VICINAL_REDIS_URL": redis_server.url,
                "VICINAL_REDIS_RETRY_SECONDS": "0.2",
                "VICINAL_BUNDLE": str(tiny_bundle.path),
                **store.variables,
                **variables,
            }
            made = [Replica(host, tmp_path / f"replica-{host.number}", given) for host in network.hosts[:n]]
            for one in made:
                closed_last.callback(one.close)
                closed_last.callback(network.hosts[one.host.number].heal)
            return made

        yield make
