"""PostgreSQL as an engine: tables, searches, and failures of a real server."""

from __future__ import annotations

import re
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest

from tests.disks import full, mounted
from tests.indexer.engines.test_source import items, nearest, unit
from tests.postgres_server import PASSWORD, PostgresServer
from vicinal.indexer.engines import Engines, EngineSource
from vicinal.indexer.engines.postgres import PostgresEngine
from vicinal.indexer.errors import EngineAwayError, EngineError, EngineFullError, EngineTableError
from vicinal.indexer.filters import Filter

N = 300


@pytest.fixture
def engine(postgres: PostgresServer) -> Iterator[PostgresEngine]:
    engine = PostgresEngine(postgres.url())
    yield engine
    for name in engine.names("test_"):
        engine.drop(name)
    engine.close()


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A server to stop, freeze and kill; it is up before every test."""
    server = PostgresServer(max_connections="20")
    yield server
    server.remove()


def build(engine: PostgresEngine, name: str = "test_1", *, rows: pa.Table | None = None) -> None:
    engine.build(name, unit(N, 0), items() if rows is None else rows, lambda *_: None)


def test_a_table_is_searched_fetched_described_and_dropped(engine: PostgresEngine) -> None:
    queries = unit(5, 1)
    build(engine)
    assert engine.search("test_1", queries, 10, 300).tolist() == nearest(queries, 10)
    assert engine.search("test_1", queries[:0], 10, 300).shape == (0, 10)
    assert np.array_equal(engine.fetch("test_1", np.array([7, 0, 7])), unit(N, 0)[[7, 0, 7]])
    found = engine.describe("test_1")
    assert (found.n_rows, found.server[:11], found.extension[:9]) == (N, "PostgreSQL ", "pgvector ")
    assert found.n_bytes is not None
    assert engine.names("test") == ["test_1"]
    engine.drop("test_1")
    engine.drop("test_1")
    assert engine.names("test") == []


def test_a_search_finds_as_many_as_are_asked_for_and_there(engine: PostgresEngine) -> None:
    """Also where the graph keeps fewer in sight, and where a filter leaves few."""
    build(engine)
    among = np.arange(N) % 5 == 0
    for n, looked_at, filter in ((N + 7, 10, None), (50, 10, "label IS NULL"), (100, 10, "label IS NULL")):
        found = engine.search("test_1", unit(1, 1), n, looked_at, Filter.of(filter) if filter else None)[0]
        expected = nearest(unit(1, 1), N, among if filter else None)[0][: n if filter is None else min(n, 60)]
        assert found[: len(expected)].tolist() == expected
        assert (found[len(expected) :] == -1).all()


def test_a_build_that_breaks_off_leaves_nothing(engine: PostgresEngine) -> None:
    with pytest.raises(RuntimeError, match="stop"):
        engine.build("test_1", unit(N, 0), items(), raising(RuntimeError("stop")))
    assert engine.names("test") == []
    build(engine)
    with pytest.raises(EngineTableError, match="42P07"):
        build(engine)
    assert engine.describe("test_1").n_rows == N


def raising(error: Exception) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail


def test_a_table_that_is_gone_or_has_too_few_rows_is_told_of(
    engine: PostgresEngine, postgres: PostgresServer
) -> None:
    with pytest.raises(EngineTableError, match="does not have the table"):
        engine.search("test_1", unit(1, 1), 3, 10)
    build(engine)
    postgres.run("DELETE FROM test_1 WHERE position = 3")
    with pytest.raises(EngineTableError, match="does not have all rows"):
        engine.fetch("test_1", np.array([3]))
    with pytest.raises(EngineError, match="is no name of a table"):
        engine.drop('x"; DROP TABLE test_1; --')


def refusal(url: str) -> EngineError:
    """Error of a server that nothing can be asked of."""
    engine = PostgresEngine(url)
    with pytest.raises(EngineError) as refused:
        engine.search("test_1", unit(1, 1), 3, 10)
    # As it is logged, with all that it came from.
    told = "".join(traceback.format_exception(refused.value))
    assert not [secret for secret in (PASSWORD, "another", "127.0.0.1", "a@b") if secret in told]
    return refused.value


def test_what_a_person_has_to_mend_is_said_in_one_sentence_without_the_address(
    postgres: PostgresServer,
) -> None:
    postgres.run("CREATE DATABASE plain")
    postgres.run("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    postgres.run("CREATE DATABASE older")
    # An older one cannot be had, and is one by its number.
    postgres.run("CREATE EXTENSION vector", database="older")
    postgres.run("UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'", database="older")
    postgres.run("CREATE EXTENSION vector", database="latin")
    found = {
        "password": refusal(postgres.url(password="another")),
        "user": refusal(postgres.url(user="stranger")),
        "database": refusal(postgres.url(database="absent")),
        "extension": refusal(postgres.url(database="plain")),
        "version": refusal(postgres.url(database="older")),
        "encoding": refusal(postgres.url(database="latin")),
        "address": refusal("postgresql://vicinal:a@b@127.0.0.1/postgres"),
        "nonsense": refusal("postgresql://vicinal:word@127.0.0.1:port/postgres"),
    }
    for name in ("plain", "latin", "older"):
        postgres.run(f"DROP DATABASE {name} WITH (FORCE)")
    assert not any(isinstance(error, EngineAwayError) for error in found.values())
    assert {name: str(error) for name, error in found.items()} == {
        "password": "PostgreSQL refuses the user or the password of VICINAL_POSTGRES_URL",
        "user": "PostgreSQL refuses the user or the password of VICINAL_POSTGRES_URL",
        "database": "PostgreSQL has no database of the name that VICINAL_POSTGRES_URL gives",
        "extension": "PostgreSQL lacks pgvector in the database of VICINAL_POSTGRES_URL: install it, and run "
        "CREATE EXTENSION vector there",
        "version": "PostgreSQL has pgvector 0.7.4, 0.8.0 or later is needed: ALTER EXTENSION vector UPDATE",
        "encoding": "the database of VICINAL_POSTGRES_URL is encoded as LATIN1, UTF8 is needed",
        "address": "VICINAL_POSTGRES_URL is no address of PostgreSQL: write "
        "postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with @ and / of a password as %40 and %2F",
        "nonsense": "VICINAL_POSTGRES_URL is no address of PostgreSQL: write "
        "postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with @ and / of a password as %40 and %2F",
    }


def test_a_server_of_a_version_that_pgvector_does_not_take_is_refused(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vicinal.indexer.engines.postgres._SERVER", 990_000)
    assert re.fullmatch(
        "PostgreSQL is of version [0-9]+, 99 or later is needed", str(refusal(postgres.url()))
    )


def test_who_may_make_no_tables_is_told_what_to_grant(postgres: PostgresServer) -> None:
    postgres.run("CREATE ROLE reader LOGIN PASSWORD 'reads'")
    engine = PostgresEngine(postgres.url(user="reader", password="reads"))
    with pytest.raises(EngineError, match=r"does not let the user .* do that: grant it CREATE"):
        build(engine)
    engine.close()
    postgres.run("DROP ROLE reader")


@pytest.mark.slow
def test_a_server_that_stops_hangs_or_crashes_is_away_and_answers_again_later(
    own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, queries = PostgresEngine(own_server.url()), unit(1, 1)
    build(engine)
    expected = engine.search("test_1", queries, 5, 50).tolist()

    def require_slow() -> None:
        with monkeypatch.context() as hasty:
            hasty.setattr("vicinal.indexer.engines.postgres.SEARCH_SECONDS", 0.3)
            hasty.setattr("vicinal.indexer.engines.postgres.GRACE_SECONDS", 0.2)
            with pytest.raises(EngineAwayError, match="did not answer in time") as slow:
                engine.search("test_1", queries, 5, 50)
        assert slow.value.is_slow

    own_server.freeze()
    require_slow()
    own_server.thaw()
    with own_server.connected() as connection, connection.transaction():
        connection.execute("LOCK TABLE test_1")
        require_slow()
    assert engine.search("test_1", queries, 5, 50).tolist() == expected
    for end in (own_server.stop, own_server.kill):
        end()
        with pytest.raises(EngineAwayError, match="does not answer, or broke off"):
            engine.search("test_1", queries, 5, 50)
        own_server.start()
        assert engine.search("test_1", queries, 5, 50).tolist() == expected
        # A server that came and went between two searches is not even noticed.
        end()
        own_server.start()
        assert engine.search("test_1", queries, 5, 50).tolist() == expected
    engine.close()


@pytest.mark.slow
def test_a_connection_that_is_dropped_in_the_middle_of_a_search_is_told_as_that(
    own_server: PostgresServer,
) -> None:
    engine, failures = PostgresEngine(own_server.url()), []
    build(engine, "test_2")

    def search() -> None:
        try:
            engine.ask(lambda connection: connection.execute("SELECT pg_sleep(30)"))
        except EngineError as error:
            failures.append(error)

    searching = threading.Thread(target=search)
    searching.start()
    # The first is dropped, so is the one that takes its place.
    for _ in range(2):
        drop_one(own_server)
    searching.join(timeout=20)
    assert [type(error) for error in failures] == [EngineAwayError]
    assert engine.search("test_2", unit(1, 1), 5, 50).shape == (1, 5)
    engine.close()


def drop_one(server: PostgresServer) -> None:
    statement = (
        "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity "
        "WHERE application_name = 'vicinal' AND query LIKE '%pg_sleep(30)' AND state = 'active'"
    )
    deadline = time.monotonic() + 20
    while not server.run(statement)[0][0]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_server_without_room_for_more_connections_is_away(own_server: PostgresServer) -> None:
    own_server.run(
        "ALTER ROLE vicinal CONNECTION LIMIT -1; CREATE ROLE one LOGIN PASSWORD 'x' CONNECTION LIMIT 0"
    )
    with pytest.raises(EngineAwayError, match="takes no more connections"):
        PostgresEngine(own_server.url(user="one", password="x")).describe()


def test_a_full_disk_leaves_nothing_and_may_pass(own_server: PostgresServer) -> None:
    """Of the server it is told in the same way as a limit on temporary files of its own."""
    engine = PostgresEngine(own_server.url())
    own_server.run(
        "CREATE FUNCTION full_disk() RETURNS event_trigger LANGUAGE plpgsql AS "
        "$$BEGIN RAISE EXCEPTION 'secret path' USING ERRCODE = 'disk_full'; END$$;"
        "CREATE EVENT TRIGGER full_disk ON ddl_command_end WHEN TAG IN ('CREATE INDEX') "
        "EXECUTE FUNCTION full_disk()"
    )
    with pytest.raises(EngineAwayError, match=r"^the disk of PostgreSQL is full$"):
        build(engine, "test_full")
    own_server.run("DROP EVENT TRIGGER full_disk; DROP FUNCTION full_disk")
    assert engine.names("test_full") == []
    build(engine, "test_full")
    engine.close()


def test_a_disk_that_is_really_full_takes_nothing_and_is_searched_on() -> None:
    # Not in a folder of pytest's, as the server itself.
    with TemporaryDirectory() as folder, mounted(Path(folder) / "disk", "96m") as disk:
        Path(folder).chmod(0o755)
        server = PostgresServer(disk=disk)
        try:
            engines = Engines({"postgres": server.url()})
            vectors, rows = unit(4000, 0), items(4000)
            few = EngineSource.build(engines, "postgres", "test_few", vectors[:N], rows.slice(0, N))
            before = few.search(vectors[:3], 5).tolist()
            with full(disk, left=2**18):
                with pytest.raises(EngineFullError, match=r"^the disk of PostgreSQL is full$"):
                    EngineSource.build(engines, "postgres", "test_many", vectors, rows)
                # Searches go on at once.
                assert few.search(vectors[:3], 5).tolist() == before
                with engines.asking("postgres") as engine:
                    assert engine.names("test_") == ["test_few"]
            many = EngineSource.build(engines, "postgres", "test_many", vectors, rows)
            assert many.search(vectors[:3], 5).shape == (3, 5)
            engines.close()
        finally:
            server.remove()


def test_a_source_on_postgres_finds_what_is_near_among_some(postgres: PostgresServer) -> None:
    queries, filter = unit(3, 2), Filter.of("label = 'odd' OR label = 'even'")
    labelled = np.arange(N) % 5 != 0
    among = labelled.copy()
    among[nearest(queries[:1], 50, labelled)[0]] = False
    engines = Engines({"postgres": postgres.url()})
    source = EngineSource.build(engines, "postgres", "test_source", unit(N, 0), items())
    assert source.search(queries, 7).tolist() == nearest(queries, 7)
    assert source.search(queries, 7, among, filter).tolist() == nearest(queries, 7, among)
    with engines.asking("postgres") as engine:
        engine.drop("test_source")
    engines.close()
