"""Galleries over a team's table in PostgreSQL: they answer as a copy does, and the table stays as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vicinal
from tests.postgres_server import PASSWORD, PostgresServer
from tests.waiting import wait_until
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.engines import TeamRows
from vicinal.indexer.engines import team as team_vectors
from vicinal.indexer.engines.postgres_team import PostgresReader
from vicinal.indexer.errors import (
    EngineError,
    EngineTableError,
    IndexerError,
    ItemNotFoundError,
    TeamTableError,
)
from vicinal.service.errors import RequestError

pytestmark = pytest.mark.slow

N, DIM = 240, 8
RNG = np.random.default_rng(0)
CENTERS = RNG.normal(size=(N // 8, DIM))
# Of any length, as teams have them.
ROWS: FloatArray = (
    (CENTERS[np.arange(N) // 8] + 0.3 * RNG.normal(size=(N, DIM))) * RNG.uniform(0.5, 2.0, (N, 1))
).astype(np.float32)
QUERIES: FloatArray = (CENTERS[:12] + 0.3 * RNG.normal(size=(12, DIM))).astype(np.float32)


class Team:
    """A team that owns a table, which a reader may only read."""

    def __init__(self, server: PostgresServer) -> None:
        self.server, self.run = server, server.run
        self.reader = server.url(user="reader", password=PASSWORD)

    def address(self, table: str = "shop.products") -> str:
        return f"{self.reader}?table={table}&embedding=vector&id=code&label=sku"

    def insert(self, codes: range) -> None:
        with self.server.connected() as connection, connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO shop.products VALUES (%s, %s, %s, %s::vector)",
                [(n, f"sku {n // 8}", n / 4, str(ROWS[n % N].tolist())) for n in codes],
            )


@pytest.fixture
def team(postgres: PostgresServer) -> Iterator[Team]:
    """Team with a table of 240 products, 8 photos each, and an index by the cosine."""
    for statement in (
        "DROP SCHEMA IF EXISTS shop CASCADE",
        "DROP ROLE IF EXISTS reader",
        f"CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'",
        "CREATE SCHEMA shop",
        "GRANT USAGE ON SCHEMA shop TO reader",
        f"CREATE TABLE shop.products (code int PRIMARY KEY, sku text, price float8, vector vector({DIM}))",
        "GRANT SELECT ON shop.products TO reader",
    ):
        postgres.run(statement)
    found = Team(postgres)
    found.insert(range(N))
    found.run("CREATE INDEX ON shop.products USING hnsw (vector vector_cosine_ops)")
    yield found
    found.run("DROP SCHEMA shop CASCADE")
    found.run("DROP ROLE reader")


@pytest.fixture
def over(team: Team, tmp_path: Path) -> Iterator[vicinal.LocalGallery]:
    gallery = vicinal.open_gallery("shop", data_dir=tmp_path, postgres_url=team.reader)
    gallery.index(team.address(), space="clip")
    yield gallery
    gallery.bundles.engines.close()


@pytest.fixture
def copied(team: Team, tmp_path: Path) -> Iterator[vicinal.LocalGallery]:
    gallery = vicinal.open_gallery("copied", data_dir=tmp_path, postgres_url=team.reader)
    gallery.index(team.address(), space="clip", copy_vectors=True)
    yield gallery
    gallery.bundles.engines.close()


def told(answer: vicinal.Answer) -> list[dict[str, Any]]:
    return [asdict(one) for one in [*answer.matches, *answer.candidates]]


OPTIONS: list[dict[str, Any]] = [
    {},
    {"rerank": "k_reciprocal"},
    {"rerank": "off"},
    {"filter": "metadata.price < 30 AND label != 'sku 3'"},
    {"group_by": "label"},
]


def test_answers_are_those_of_a_copy_bit_for_bit(
    over: vicinal.LocalGallery, copied: vicinal.LocalGallery
) -> None:
    """Whatever a search asks for, and with the calibration that each has measured."""
    for gallery in (over, copied):
        gallery.calibrate("fpir=10%")
    assert over.matcher.threshold().value == copied.matcher.threshold().value
    for options in OPTIONS:
        there, here = (one.search_many(QUERIES, include_candidates=True, **options) for one in (over, copied))
        assert [told(one) for one in there] == [told(one) for one in here], options
        assert [one.no_match for one in there] == [one.no_match for one in here]
    assert told(over.search(item="7")) == told(copied.search(item="7"))


def test_no_vectors_lie_on_the_disk_and_nothing_of_ours_in_the_database(
    team: Team, over: vicinal.LocalGallery
) -> None:
    """Neither in the files of the version, nor in the table, nor beside them; and no word that lets us in."""
    over.search(QUERIES[0])
    unit = ROWS[5] / np.linalg.norm(ROWS[5])
    files = [one for one in over.gallery.path.rglob("*") if one.is_file()]
    for file in files:
        content = file.read_bytes()
        assert unit.astype(np.float32).tobytes()[:16] not in content, file
        assert ROWS[5].tobytes()[:16] not in content, file
        assert PASSWORD.encode() not in content, file
    own = over.gallery.tables.prefix
    assert team.run(f"SELECT count(*) FROM pg_class WHERE relname LIKE '{own}%'") == [(0,)]
    assert over.matcher.snapshot.manifest.index == "over-postgres"


def test_hits_are_told_as_the_table_has_them_now(team: Team, over: vicinal.LocalGallery) -> None:
    """A changed label is shown at once; a row that came is none, and one that went is no candidate."""
    team.run("UPDATE shop.products SET price = 7, sku = 'new' WHERE code = 16")
    team.run("DELETE FROM shop.products WHERE code = 17")
    team.insert(range(N, 2 * N))
    over.matcher.snapshot.team_vectors._recent.clear()  # type: ignore[union-attr]
    found = {one["id"]: one for one in told(over.search(ROWS[16], include_candidates=True, limit=50))}
    assert (found["16"]["label"], found["16"]["metadata"]) == ("new", {"price": 7.0})
    assert "17" not in found
    assert all(int(one) < N for one in found)


@pytest.mark.parametrize("rerank", ["contextual", "k_reciprocal"])
def test_a_row_that_went_is_out_as_a_dead_item_is(
    team: Team, over: vicinal.LocalGallery, rerank: str
) -> None:
    """It is no query, no candidate and nobody's neighbor, and has no vector of zeros; it may come again."""
    lost, view = list(range(16, 22)), over.matcher.view
    beside = np.arange(22, 24)
    team.run("CREATE TABLE shop.kept AS SELECT * FROM shop.products WHERE code BETWEEN 16 AND 21")
    team.run("DELETE FROM shop.products WHERE code BETWEEN 16 AND 21")
    view.snapshot.team_vectors._recent.clear()  # type: ignore[union-attr]
    first = [told(one) for one in over.search_many(ROWS[16:24], include_candidates=True, rerank=rerank)]
    with pytest.raises(ItemNotFoundError, match="no item '16'"):
        over.search(item="16")
    view.vectors(np.array(lost))
    assert view.n_gone == len(lost)
    assert not np.isin(view.neighbor_positions(beside), lost).any()
    again = [told(one) for one in over.search_many(ROWS[16:24], include_candidates=True, rerank=rerank)]
    for answers in (first, again):
        assert not {str(one) for one in lost} & {one["id"] for found in answers for one in found}
    team.run("INSERT INTO shop.products SELECT * FROM shop.kept")
    assert over.search(item="16").top_score is not None
    view.vectors(np.array(lost))
    assert view.n_gone == 0


def test_a_table_is_read_once_by_who_calibrates_or_compares(
    team: Team, over: vicinal.LocalGallery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever number of ways is tried, and however often each passes over all vectors."""
    n_read, fetch = 0, PostgresReader.fetch

    def counted(reader: PostgresReader, ids: Sequence[str]) -> TeamRows:
        nonlocal n_read
        n_read += len(ids)
        return fetch(reader, ids)

    monkeypatch.setattr(PostgresReader, "fetch", counted)
    monkeypatch.setattr(team_vectors, "_MOST_REMEMBERED", 1)
    again = vicinal.open_gallery("shop", data_dir=tmp_path, postgres_url=team.reader)
    again.calibrate("fpir=10%")
    assert n_read == N
    again.compare(pipelines={"rerank": ("off", "contextual"), "k": (4, 8), "beta": (0.1,)})
    assert n_read == 2 * N
    again.bundles.engines.close()


def test_indexing_again_takes_over_what_changed(team: Team, over: vicinal.LocalGallery) -> None:
    """Of three rows one came, one went and one has another vector."""
    assert not over.index(team.address()).is_new
    team.insert(range(N, N + 1))
    team.run("DELETE FROM shop.products WHERE code = 3")
    team.run(f"UPDATE shop.products SET vector = '{ROWS[9].tolist()}' WHERE code = 40")
    result = over.index(team.address())
    assert result.counts == {"added": 1, "changed": 1, "unchanged": N - 2, "removed": 1}
    assert len(over) == N
    assert over.search(item="9").matches == [] or over.search(item="9").top_score == 1.0


def test_copies_become_none_and_come_again(team: Team, over: vicinal.LocalGallery) -> None:
    """By the same address, with and without them."""
    before = told(over.search(QUERIES[0], include_candidates=True))
    assert over.index(team.address(), copy_vectors=True).index == "Flat"
    assert told(over.search(QUERIES[0], include_candidates=True)) == before
    assert over.index(team.address()).index == "over-postgres"
    assert told(over.search(QUERIES[0], include_candidates=True)) == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"index": "SQ8"}, "which has its own"),
        ({"source": None}, "lies over table 'shop.products'"),
    ],
)
def test_what_a_gallery_over_a_table_cannot_be_is_refused(
    team: Team, over: vicinal.LocalGallery, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(TeamTableError, match=words):
        over.index(**{"source": team.address(), **options})
    with pytest.raises(RequestError, match="copy is about a table"):
        over.index(copy_vectors=True)


@pytest.mark.parametrize(
    ("statement", "error", "words"),
    [
        ("ALTER TABLE shop.products RENAME TO gone", EngineTableError, "no table 'shop.products' any more"),
        ("DROP TABLE shop.products", EngineTableError, "no table 'shop.products' any more"),
        ("ALTER TABLE shop.products DROP COLUMN vector", EngineTableError, "lost a column"),
        ("REVOKE SELECT ON shop.products FROM reader", EngineTableError, "GRANT SELECT"),
        ("ALTER TABLE shop.products ALTER vector TYPE vector(2) USING '[1, 2]'", EngineTableError, "vectors"),
    ],
)
def test_a_table_that_was_taken_away_is_told_in_a_sentence(
    team: Team, over: vicinal.LocalGallery, statement: str, error: type[EngineError], words: str
) -> None:
    over.search(QUERIES[0])
    team.run(statement)
    with pytest.raises(error, match=words) as caught:
        over.search(QUERIES[1])
    assert PASSWORD not in str(caught.value)


def test_it_is_told_how_far_the_table_moved_on(team: Team, over: vicinal.LocalGallery) -> None:
    """By the threshold of answers and by who asks; a calibration is stale where many rows changed."""
    over.calibrate("fpir=10%")
    assert told_of_change(over) is None
    team.insert(range(N, N + 3))
    wait_until(lambda: told_of_change(over) == "has 3 rows more")
    assert (over.matcher.threshold().state, over.matcher.threshold().note) == ("current", says(over))
    assert says(over).startswith("table 'shop.products' has 3 rows more since it was read on 20")
    team.run("DELETE FROM shop.products WHERE code >= 240")
    team.run("UPDATE shop.products SET price = 1 WHERE code < 100")
    wait_until(lambda: told_of_change(over) == "was changed in 100 rows")
    assert over.matcher.threshold().state == "stale"
    # All of it is read again, and measured again.
    over.index(team.address())
    assert told_of_change(over) is None
    team.run("TRUNCATE shop.products")
    wait_until(lambda: told_of_change(over) == "was made again")


def says(gallery: vicinal.LocalGallery) -> str:
    watch = gallery.matcher.thresholds.watch
    assert watch is not None
    return str(watch.says)


def told_of_change(gallery: vicinal.LocalGallery) -> str | None:
    """Words for what the engine says now."""
    watch = gallery.matcher.thresholds.watch
    assert watch is not None
    change = watch.look()
    return None if change is None else change.words


def test_a_copy_and_a_view_are_watched_too(team: Team, copied: vicinal.LocalGallery, tmp_path: Path) -> None:
    """Of a view nothing is counted but its rows."""
    team.run("CREATE VIEW shop.cheap AS SELECT * FROM shop.products WHERE price < 30")
    team.run("GRANT SELECT ON shop.cheap TO reader")
    view = vicinal.open_gallery("view", data_dir=tmp_path, postgres_url=team.reader)
    view.index(team.address("shop.cheap"), space="clip")
    assert len(view) == 120
    assert told(view.search(QUERIES[0])) == told(copied.search(QUERIES[0], filter="metadata.price < 30"))
    assert [told_of_change(one) for one in (view, copied)] == [None, None]
    team.run("DELETE FROM shop.products WHERE code = 7")
    wait_until(
        lambda: [told_of_change(one) for one in (view, copied)] == ["has 1 row less", "has 1 row less"]
    )
    view.bundles.engines.close()


@pytest.mark.parametrize("seed", range(3))
def test_any_column_and_index_gives_the_answers_of_a_copy(team: Team, tmp_path: Path, seed: int) -> None:
    """Also a column of half the bits, lists in place of a graph, vectors of one length by another distance,
    and none of these.
    """
    rng = np.random.default_rng(seed)
    unit = ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True)
    kind = ["vector", "halfvec", "vector"][seed]
    index = ["ivfflat (vector vector_ip_ops) WITH (lists = 8)", "hnsw (vector halfvec_l2_ops)", None][seed]
    team.run("DROP INDEX shop.products_vector_idx")
    with team.server.connected() as connection, connection.cursor() as cursor:
        values = [(str(one.tolist()), code) for code, one in enumerate(unit)]
        cursor.executemany("UPDATE shop.products SET vector = %s::vector WHERE code = %s", values)
    team.run(f"ALTER TABLE shop.products ALTER vector TYPE {kind}({DIM})")
    if index is not None:
        team.run(f"CREATE INDEX ON shop.products USING {index}")
    galleries = []
    for name, copies in (("over", False), ("copy", True)):
        gallery = vicinal.open_gallery(name, data_dir=tmp_path, postgres_url=team.reader)
        gallery.index(team.address(), space="clip", copy_vectors=copies, prefix="shop")
        gallery.calibrate("fpir=10%", **({"group_by": "label"} if seed else {}))
        galleries.append(gallery)
    filters = [
        None,
        f"metadata.price < {rng.integers(5, 60)}",
        f"label IN ('sku {rng.integers(30)}', 'sku 1')",
    ]
    for _ in range(6):
        queries = (CENTERS[rng.integers(len(CENTERS), size=4)] + 0.3 * rng.normal(size=(4, DIM))).tolist()
        options = {
            "filter": filters[rng.integers(3)],
            "rerank": ["off", "contextual", "k_reciprocal", None][rng.integers(4)],
            "group_by": "label" if rng.integers(2) else None,
            "limit": int(rng.integers(1, 60)),
        }
        given = {name: value for name, value in options.items() if value is not None}
        there, here = (one.search_many(queries, include_candidates=True, **given) for one in galleries)
        assert [told(one) for one in there] == [told(one) for one in here], given
    for gallery in galleries:
        gallery.bundles.engines.close()


def test_an_index_that_orders_otherwise_than_the_cosine_is_refused(team: Team, tmp_path: Path) -> None:
    """Lengths of vectors decide then, and what is near is not found."""
    team.run(
        "UPDATE shop.products SET vector = vector * array_fill(40.0, ARRAY[8])::vector WHERE code % 8 = 0"
    )
    team.run("DROP INDEX shop.products_vector_idx")
    team.run("CREATE INDEX ON shop.products USING hnsw (vector vector_ip_ops)")
    gallery = vicinal.open_gallery("shop", data_dir=tmp_path, postgres_url=team.reader)
    with pytest.raises(TeamTableError, match=r"hnsw \(<#>\), finds 0\.\d+ of the ten items"):
        gallery.index(team.address(), space="clip")
    assert not gallery.exists


def test_whoever_indexes_is_told_which_setting_searches_need(team: Team, tmp_path: Path) -> None:
    gallery = vicinal.open_gallery("shop", data_dir=tmp_path)
    assert gallery.index(team.address(), space="clip").remark == (
        "searches need VICINAL_POSTGRES_URL to name the database of the table; it is not set"
    )
    other = vicinal.open_gallery("shop", data_dir=tmp_path, postgres_url=team.server.url(database="other"))
    assert "it names another one" in str(other.index(team.address()).remark)


def test_its_items_are_not_changed_here(over: vicinal.LocalGallery) -> None:
    """They are the team's."""
    source = vicinal.EmbeddingSource.of_arrays(QUERIES[:1], ["new"])
    with pytest.raises(TeamTableError, match="are the rows of table"):
        over.add(source)
    with pytest.raises(TeamTableError, match="change these"):
        over.remove(["7"])


def test_a_service_without_an_address_says_which_setting_it_needs(
    over: vicinal.LocalGallery, tmp_path: Path
) -> None:
    with pytest.raises(IndexerError, match="set VICINAL_POSTGRES_URL"):
        vicinal.open_gallery("shop", data_dir=tmp_path).search(QUERIES[0])
