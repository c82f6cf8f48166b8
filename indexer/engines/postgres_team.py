"""Tables of a team in PostgreSQL, read as they are: by the index that their column has, in transactions that
write nothing. GRANT SELECT, and USAGE on the schema, are all that the user needs.

    SELECT embedding::vector, columns FROM table WHERE embedding IS NOT NULL ORDER BY embedding <=> q LIMIT n
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.engines.engine import LookingReader, TeamRows
from vicinal.indexer.errors import EngineError, EngineTableError
from vicinal.indexer.sources.engine_tables.postgres import (
    column_kinds,
    column_ways,
    quoted,
    table_in_sql,
    table_mark,
)
from vicinal.indexer.sources.team_table import TableMark, TeamTable
from vicinal.models.configs.value_texts import value_as_text

Answer = TypeVar("Answer")
Failures: TypeAlias = tuple[tuple[str, type[EngineError], str], ...]

SEARCH_SECONDS = 5.0
# Beyond what the server itself allows a search: it may hang as a whole.
GRACE_SECONDS = 2.0
MOST_IN_GRAPH = 1000
_LEAST_SCANNED, _SCANNED_PER_LOOK = 20_000, 20
# Of several indexes the first, by how the order follows that of the cosine, then by kind.
_OPERATORS = {"cosine": "<=>", "ip": "<#>", "l2": "<->"}
_KINDS = ("hnsw", "ivfflat")
_INDEXES = """
SELECT am.amname::text, opc.opcname::text, pg_get_indexdef(i.indexrelid, 1, false), t.typname::text,
  coalesce((SELECT option_value::int FROM pg_options_to_table(c.reloptions) WHERE option_name = 'lists'), 100)
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am am ON am.oid = c.relam
JOIN pg_opclass opc ON opc.oid = i.indclass[0] JOIN pg_type t ON t.oid = opc.opcintype
WHERE i.indrelid = %s::regclass AND i.indisvalid AND i.indpred IS NULL AND am.amname = ANY(%s)
  AND EXISTS (SELECT FROM pg_depend d
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = d.refobjsubid
    WHERE d.objid = i.indexrelid AND d.refobjid = i.indrelid AND a.attname = %s)
"""
_TABLE = """
SELECT format_type(a.atttypid, NULL), c.relkind::text, greatest(c.reltuples, 1)::float8, EXISTS (
  SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisvalid AND i.indkey[0] = a.attnum)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.oid = %s::regclass AND a.attname = %s
"""


class _Asked(Protocol):
    def ask(self, question: Callable[[Any], Answer], *, seconds: float, failures: Failures) -> Answer:
        """See `PostgresEngine.ask`."""


@dataclass(frozen=True)
class _Look:
    """Columns and index of a table, by the catalog."""

    schema: pa.Schema
    columns: str
    id_kind: str
    n_rows: float
    has_id_index: bool
    # Kind of the index, its expression, its operator, the type of its vectors, and its lists.
    kind: str
    expression: str
    operator: str
    vectors: str
    lists: int


class PostgresReader(LookingReader[_Look]):
    """Reader of one table; see `TeamReader`."""

    def __init__(self, engine: _Asked, table: TeamTable) -> None:
        self._engine = engine
        self.table = table
        self._name = table_in_sql(table.name)
        self._id = quoted(table.columns["id"])
        self._failures = _failures(table)

    @property
    def schema(self) -> pa.Schema:
        """Columns beside the embedding; see `TeamReader.schema`."""
        return self._look.schema

    @property
    def searched_by(self) -> str:
        """The index and its operator, such as `hnsw (<=>)`."""
        look = self._look
        return f"{look.kind} ({look.operator})" if look.kind else ""

    @property
    def most_looked_at(self) -> int:
        """Most rows that a search may be told to look at."""
        return MOST_IN_GRAPH if self._look.kind != "ivfflat" else int(self._look.n_rows) + 1

    @property
    def remarks(self) -> list[str]:
        """Indexes that are missing; see `TeamReader.remarks`."""
        said, columns = [], self.table.columns
        if not self._look.kind:
            said.append(f"column '{columns['embedding']}' has no index: each search compares all rows")
        if not self._look.has_id_index:
            said.append(f"column '{columns['id']}' has no index: to find a row by its id reads all")
        return said

    def search(
        self, queries: FloatArray, n: int, looked_at: int, among: Sequence[str] | None = None
    ) -> list[TeamRows]:
        """The rows nearest to each query; see `TeamReader.search`."""
        look = self._look
        far = f"{look.expression} {look.operator} %s::vector"
        far += "" if look.vectors == "vector" else f"::{look.vectors}"
        condition, values = f"{quoted(self.table.columns['embedding'])} IS NOT NULL", []
        settings: dict[str, Any] = {
            "transaction_read_only": "on",
            "jit": "off",
            "statement_timeout": int(1000 * SEARCH_SECONDS),
        }
        if among is not None:
            # No index orders by a sum.
            far, condition, values = f"({far}) + 0", f"{condition} AND {self._one_of(look)}", [list(among)]
        elif look.kind:
            settings |= {"enable_seqscan": "off", **_looking(look, looked_at, n)}
        statement = f"SELECT {look.columns} FROM {self._name} WHERE {condition} ORDER BY {far} LIMIT {int(n)}"

        def find(connection: Any) -> list[TeamRows]:
            with connection.pipeline(), connection.transaction():
                connection.execute(*local_settings(settings))
                found = [connection.execute(statement, [*values, one], binary=True) for one in queries]
                return [_rows(cursor.fetchall(), look, self.table, queries.shape[1]) for cursor in found]

        return self._ask(find)

    def fetch(self, ids: Sequence[str]) -> TeamRows:
        """The rows of some ids; see `TeamReader.fetch`."""
        look = self._look
        statement = f"SELECT {look.columns} FROM {self._name} WHERE {self._one_of(look)}"
        settings = {"transaction_read_only": "on", "statement_timeout": int(1000 * SEARCH_SECONDS)}

        def read(connection: Any) -> TeamRows:
            with connection.transaction():
                connection.execute(*local_settings(settings))
                rows = connection.execute(statement, [list(ids)], binary=True).fetchall()
            return _rows(rows, look, self.table, None)

        return self._ask(read)

    def mark(self) -> TableMark:
        """State of the table; see `TeamReader.mark`."""

        def read(connection: Any) -> TableMark:
            with connection.transaction():
                connection.execute(*local_settings({"transaction_read_only": "on"}))
                return table_mark(connection, self._name, self.table.columns["id"])

        return self._ask(read)

    def _one_of(self, look: _Look) -> str:
        return f"{self._id} = ANY(%s::text[]::{look.id_kind}[])"

    def _looked(self) -> _Look:
        return self._ask(self._read_look)

    def _read_look(self, connection: Any) -> _Look:
        columns = self.table.columns
        found = connection.execute(_TABLE, [self._name, columns["id"]]).fetchone()
        kinds = column_kinds(connection, self._name)
        lost = [one for one in columns.values() if one not in kinds]
        if found is None or lost:
            raise EngineTableError(
                f"table '{self.table.name}' has no column '{(lost or [columns['id']])[0]}' any more: "
                "run vicinal index with its address as it is now"
            )
        id_kind, relation, n_rows, has_id_index = found
        ways = column_ways(kinds, columns["embedding"])
        embedding = quoted(columns["embedding"])
        wanted = ", ".join([f"{embedding}::vector", *(way for way, _ in ways.values())])
        indexes = connection.execute(_INDEXES, [self._name, [*_KINDS], columns["embedding"]]).fetchall()
        ranked = sorted(
            (list(_OPERATORS).index(distance), _KINDS.index(kind), kind, expression, distance, vectors, lists)
            for kind, operators, expression, vectors, lists in indexes
            if (distance := operators.rsplit("_", 2)[-2]) in _OPERATORS and vectors in ("vector", "halfvec")
        )
        # An index of the table under a view is not seen, but used where it fits.
        best = ("" if relation != "v" else "view", f"{embedding}::vector", "cosine", "vector", 0)
        if ranked:
            best = ranked[0][2:]
        elif kinds[columns["embedding"]] in ("vector", "halfvec"):
            best = (best[0], embedding, "cosine", kinds[columns["embedding"]], 0)
        kind, expression, distance, vectors, lists = best
        return _Look(
            schema=pa.schema([(name, kind) for name, (_, kind) in ways.items()]),
            columns=wanted,
            id_kind=id_kind,
            n_rows=n_rows,
            has_id_index=has_id_index or relation == "v",
            kind=kind,
            expression=expression,
            operator=_OPERATORS[distance],
            vectors=vectors,
            lists=lists,
        )

    def _ask(self, question: Callable[[Any], Answer]) -> Answer:
        try:
            return self._engine.ask(question, seconds=SEARCH_SECONDS + GRACE_SECONDS, failures=self._failures)
        except EngineTableError:
            self._known = None
            raise


def _looking(look: _Look, looked_at: int, n: int) -> dict[str, Any]:
    """Settings by which an index is searched so far."""
    if look.kind == "ivfflat":
        probes = min(look.lists, max(1, round(looked_at * look.lists / look.n_rows)))
        return {
            "ivfflat.probes": probes,
            "ivfflat.iterative_scan": "relaxed_order",
            "ivfflat.max_probes": look.lists,
        }
    return graph_settings(looked_at, n)


def graph_settings(looked_at: int, n: int) -> dict[str, Any]:
    """Settings by which an HNSW graph is searched so far, and on until n rows are found, where a filter
    leaves few and where more are asked for.
    """
    return {
        "hnsw.ef_search": min(looked_at, MOST_IN_GRAPH),
        "hnsw.iterative_scan": "relaxed_order",
        "hnsw.max_scan_tuples": max(_LEAST_SCANNED, _SCANNED_PER_LOOK * looked_at, 2 * n),
        "hnsw.scan_mem_multiplier": 8,
    }


def _rows(rows: Sequence[Sequence[Any]], look: _Look, table: TeamTable, dim: int | None) -> TeamRows:
    """Rows as they came; those without a vector, or of another length than most, are left out."""
    place = 1 + look.schema.get_field_index(table.columns["id"])
    lengths = [len(row[0]) for row in rows if row[0] is not None]
    wanted = dim or max(set(lengths), key=lengths.count, default=0)
    kept = [row for row in rows if row[0] is not None and len(row[0]) == wanted]
    vectors = np.stack([row[0] for row in kept]) if kept else np.empty((0, wanted), np.float32)
    return TeamRows([value_as_text(row[place]) or "" for row in kept], vectors, [row[1:] for row in kept])


def local_settings(settings: dict[str, Any]) -> tuple[str, list[str]]:
    """A statement that makes settings hold to the end of a transaction, and its values."""
    calls = ", ".join(["set_config(%s, %s, true)"] * len(settings))
    return f"SELECT {calls}", [str(one) for pair in settings.items() for one in pair]


def _failures(table: TeamTable) -> Failures:
    """Errors by the beginning of PostgreSQL's state; see `postgres`."""
    again = "run vicinal index with its address as it is now"
    gone = f"PostgreSQL has no table '{table.name}' any more: {again}"
    vectors = f"column '{table.columns['embedding']}' of table '{table.name}' holds"
    said = {
        "42P01": gone,
        "3F000": gone,
        "42703": f"table '{table.name}' has lost a column: {again}",
        "42501": f"the user of VICINAL_POSTGRES_URL may not read table '{table.name}': GRANT SELECT on it",
        "22": f"{vectors} other vectors now: {again}",
        "42883": f"{vectors} no vectors any more: {again}",
        "42846": f"{vectors} no vectors any more: {again}",
    }
    return tuple((state, EngineTableError, words) for state, words in said.items())
