"""Collections of a team in Milvus, read as they are: by the index and the metric that their field has.

Nothing is loaded, released or written, and no search waits for what is being written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.engines.engine import LookingReader, TeamRows
from vicinal.indexer.errors import EngineTableError
from vicinal.indexer.milvus_connection import SEARCH_SECONDS, SLOW, MilvusConnection, Words
from vicinal.indexer.sources.engine_tables.milvus import (
    VECTORS,
    Row,
    Ways,
    mark_of,
    reader_of_vectors,
    wanted_of,
    ways_of,
)
from vicinal.indexer.sources.team_table import TableMark, TeamTable
from vicinal.models.configs.value_texts import value_as_text

_Answer = TypeVar("_Answer")

_MOST_FOUND, _MOST_IN_GRAPH = 16_384, 32_768
# Rows that are asked for where nothing else says how much is looked at; and bytes of vectors in an answer.
_MOST_SPARE, _MOST_BYTES = 1000, 2**24
_WHOLE = ("INT8", "INT16", "INT32", "INT64")


@dataclass(frozen=True)
class _Look:
    """Description of a collection, as Milvus gives it."""

    told: dict[str, Any]
    wanted: list[str]
    kinds: dict[str, str]
    ways: Ways
    dim: int
    # Kind of the index, its metric, its cells, and the rows.
    kind: str
    metric: str
    n_cells: int
    n_rows: int

    def params(self, n: int, looked_at: int) -> tuple[int, dict[str, int]]:
        """Number of rows that are asked for, and what says how much of the index is looked at."""
        if self.n_cells:
            probes = round(looked_at * self.n_cells / max(1, self.n_rows))
            return n, {"nprobe": min(self.n_cells, max(1, probes))}
        if self.kind.startswith("HNSW"):
            return n, {"ef": min(_MOST_IN_GRAPH, max(n, looked_at))}
        if self.kind == "DISKANN":
            return n, {"search_list": max(n, looked_at)}
        # Of a kind that Milvus chose, it looks at more where more is wanted.
        return n if self.kind == "FLAT" else max(n, min(looked_at, _MOST_SPARE)), {}


class MilvusReader(LookingReader[_Look]):
    """Reader of one collection; see `TeamReader`."""

    def __init__(self, connection: MilvusConnection, table: TeamTable) -> None:
        self.table = table
        self._connection = connection
        again = "run vicinal index with its address as it is now"
        self._words = Words(
            collection=f"the collection '{table.name}' any more: {again}",
            right=f"Query and Search of '{table.name}'",
            unloaded=f"collection '{table.name}' is not loaded in Milvus, or not yet",
            is_ours=False,
        )

    @property
    def schema(self) -> pa.Schema:
        """Columns beside the embedding; see `TeamReader.schema`."""
        return pa.schema([(name, kind) for name, (kind, _) in self._look.ways.items()])

    @property
    def searched_by(self) -> str:
        """The index and its metric, such as `HNSW (COSINE)`."""
        look = self._look
        return f"{look.kind} ({look.metric})"

    @property
    def remarks(self) -> list[str]:
        """Index that is missing; see `TeamReader.remarks`. Milvus finds keys without one."""
        return [] if self.searched_by else ["the vectors have no index: each search compares all rows"]

    @property
    def most_looked_at(self) -> int:
        """Most rows that a search may be told to look at."""
        look = self._look
        return look.n_rows + 1 if look.n_cells else _MOST_FOUND

    def search(
        self, queries: FloatArray, n: int, looked_at: int, among: Sequence[str] | None = None
    ) -> list[TeamRows]:
        """The rows nearest to each query; see `TeamReader.search`."""
        return self._twice(lambda look: self._found(look, queries, n, looked_at, among))

    def fetch(self, ids: Sequence[str]) -> TeamRows:
        """The rows of some ids; see `TeamReader.fetch`."""
        return self._twice(lambda look: self._fetched(look, ids))

    def mark(self) -> TableMark:
        """Count of the rows, and a sum over the first of them; see `TeamReader.mark`."""
        ask, embedding = partial(self._query, ""), self.table.columns["embedding"]
        return self._twice(lambda look: mark_of(ask, look.told, embedding))

    def _found(
        self, look: _Look, queries: FloatArray, n: int, looked_at: int, among: Sequence[str] | None
    ) -> list[TeamRows]:
        if queries.shape[1] != look.dim:
            raise self._lost("holds other vectors now")
        # Among some the graph goes on until it has seen all of them, and all cells are searched.
        looked_at = (
            looked_at if among is None else max(looked_at, look.n_rows if look.n_cells else len(among))
        )
        n_asked, params = look.params(min(n, _MOST_FOUND), looked_at)
        asked: dict[str, Any] = {
            "filter": "" if among is None else self._one_of(look, among),
            "limit": n_asked,
            "anns_field": self.table.columns["embedding"],
            "search_params": {"metric_type": look.metric, "params": params},
            "output_fields": look.wanted,
            "consistency_level": "Eventually",
            "timeout": SEARCH_SECONDS,
        }
        found: list[TeamRows] = []
        for start, end in _blocks(len(queries), 4 * look.dim * n_asked):
            asked["data"] = list(queries[start:end])
            answer: Any = self._ask(lambda client: client.search(self.table.name, **asked))
            found += [self._rows([hit["entity"] for hit in hits][:n], look) for hits in answer]
        return found

    def _fetched(self, look: _Look, ids: Sequence[str]) -> TeamRows:
        rows: list[Row] = []
        for start, end in _blocks(len(ids), 4 * look.dim):
            rows += self._query(self._one_of(look, ids[start:end]), look.wanted)
        return self._rows(rows, look)

    def _twice(self, question: Callable[[_Look], _Answer]) -> _Answer:
        """Ask by what is known of the collection, and again where it may be another one by now."""
        try:
            return question(self._look)
        except EngineTableError:
            self._known = None
            return question(self._look)

    def _looked(self) -> _Look:
        return self._ask(self._read_look)

    def _read_look(self, client: Any) -> _Look:
        name, columns = self.table.name, self.table.columns
        told = client.describe_collection(name, timeout=SEARCH_SECONDS)
        fields = {str(one["name"]): one for one in told["fields"]}
        kinds = {name: one["type"].name for name, one in fields.items()}
        if missing := [columns[one] for one in ("id", "embedding") if columns[one] not in kinds]:
            raise self._lost(f"has no field '{missing[0]}' any more")
        embedding = columns["embedding"]
        if kinds[embedding] not in VECTORS:
            raise self._lost(f"holds no float vectors in '{embedding}' any more")
        if kinds[columns["id"]] not in (*_WHOLE, "VARCHAR"):
            raise EngineTableError(
                f"field '{columns['id']}' of collection '{name}' holds no texts or whole numbers, by which "
                "rows are found again: name another one for the ids, or take copies of the embeddings"
            )
        index: dict[str, Any] = {}
        for one in client.list_indexes(name, field_name=embedding)[:1]:
            index = client.describe_index(name, one, timeout=SEARCH_SECONDS)
        # Statistics know only what lies on the disk.
        counted = client.query(
            name, output_fields=["count(*)"], consistency_level="Eventually", timeout=SEARCH_SECONDS
        )
        kind = str(index.get("index_type", ""))
        return _Look(
            told=told,
            wanted=wanted_of(told, embedding),
            kinds=kinds,
            ways=ways_of(told, columns),
            dim=int(fields[embedding]["params"]["dim"]),
            kind=kind,
            metric=str(index.get("metric_type", "")),
            n_cells=int(index.get("nlist", 128)) if "IVF" in kind or kind == "SCANN" else 0,
            n_rows=int(counted[0]["count(*)"]),
        )

    def _one_of(self, look: _Look, ids: Sequence[str]) -> str:
        name = self.table.columns["id"]
        keys: list[Any] = [*ids]
        if look.kinds[name] in _WHOLE:
            keys = [int(one) for one in ids if one.lstrip("-").isdecimal()]
        return f"{name} in {json.dumps(keys, ensure_ascii=False)}"

    def _query(self, condition: str, output_fields: list[str], **limit: int) -> list[Row]:
        rows: list[Row] = self._ask(
            lambda client: [
                *client.query(
                    self.table.name,
                    condition,
                    output_fields,
                    consistency_level="Eventually",
                    timeout=SEARCH_SECONDS,
                    **limit,
                )
            ]
        )
        return rows

    def _rows(self, rows: Sequence[Row], look: _Look) -> TeamRows:
        """Rows as they came, without those that have no vector."""
        columns = self.table.columns
        read = reader_of_vectors(columns["embedding"], look.kinds[columns["embedding"]])
        vectors = [read(row) for row in rows]
        kept = [place for place, one in enumerate(vectors) if one is not None]
        return TeamRows(
            [value_as_text(rows[place][columns["id"]]) or "" for place in kept],
            np.array([vectors[place] for place in kept], np.float32).reshape(len(kept), look.dim),
            [tuple(way(rows[place]) for _, way in look.ways.values()) for place in kept],
        )

    def _ask(self, question: Callable[[Any], _Answer]) -> _Answer:
        with self._connection.asking(SLOW, words=self._words) as client:
            return question(client)

    def _lost(self, what: str) -> EngineTableError:
        return EngineTableError(
            f"collection '{self.table.name}' {what}: run vicinal index with its address as it is now"
        )


def _blocks(n: int, n_bytes: int) -> Iterator[tuple[int, int]]:
    """Beginnings and ends of parts of n that make answers of so many bytes each."""
    together = max(1, _MOST_BYTES // n_bytes)
    for start in range(0, n, together):
        yield start, start + together
