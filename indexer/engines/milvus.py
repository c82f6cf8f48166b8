"""Milvus: a collection and an HNSW graph for each version and space.

Fields are `position` (the key), `embedding`, `id`, `label` and `metadata` (JSON). Searches are of consistency
`Eventually`: a collection is whole before it is searched and never changes, so there is nothing to wait for.
Filters are compiled by `milvus_filter`. See https://milvus.io/docs for limits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from vicinal.calibration.arrays import FloatArray, Ints
from vicinal.indexer.engines.milvus_connection import (
    CHANGE_SECONDS,
    LATE,
    SEARCH_SECONDS,
    SLOW,
    MilvusConnection,
)
from vicinal.indexer.engines.milvus_filter import compiled, stored
from vicinal.indexer.errors import EngineAwayError, EngineTableError
from vicinal.indexer.filters import Filter
from vicinal.models.progress import OnProgress

# Of a graph that is built, and of one that is loaded, as long as it goes on.
_LOOK_SECONDS, _STUCK_SECONDS = 0.2, 1800.0
_EDGES, _LOOKED_AT_TO_BUILD = 16, 200
# Up to so many rows are compared one by one: of 1,023 and fewer Milvus makes no graph, but cells, of which it
# searches an eighth, however far it is told to look (.92 of the ten nearest of 900 without groups).
_FEW = 4096
# A message has at most 64 MiB, and an item's metadata 64 KiB.
_BLOCK, _BLOCK_BYTES, _TOGETHER = 512, 2**24, 64
_MOST_FOUND = 16_384
_LONGEST_TEXT = 65_535


@dataclass(frozen=True)
class EngineTable:
    """Version of the server, and the rows of a collection."""

    server: str
    n_rows: int | None = None


class MilvusEngine:
    """Milvus at an address such as `http://user:password@host:19530/db`, for any number of threads. It
    connects when it is first asked; nothing of the address is ever told.

    Every method raises `EngineAwayError` for what may pass (no connection, a dropped one, too slow),
    `EngineFullError` where there is no room, `EngineTableError` where a collection is gone or not what was
    built, and `EngineError` for what a person has to mend (password, version). Names have at most 63 of the
    characters a-z, 0-9 and _.
    """

    # What a search may be told to look at, and the longest vectors.
    most_looked_at = _MOST_FOUND
    longest = 32_768

    def __init__(self, address: str) -> None:
        self._connection = MilvusConnection(address)

    def build(self, name: str, vectors: FloatArray, items: pa.Table, on_progress: OnProgress) -> None:
        """Make a collection of (n, d) float32 vectors, L2-normalized, and of `id`, `label`, `uri` and
        `metadata` (texts, the last one JSON) of their items, with an index; its rows are named by their
        positions. It is gone again where that fails.
        """
        with self._connection.asking(LATE) as client:
            try:
                self._fill(client, name, vectors, items, on_progress)
            except BaseException:
                with suppress(Exception):
                    client.drop_collection(name, timeout=CHANGE_SECONDS)
                raise

    def search(
        self, name: str, queries: FloatArray, n: int, looked_at: int, filter: Filter | None = None
    ) -> Ints:
        """(B, n) positions of the rows nearest to (B, d) queries by inner product, nearest first, of those
        that a filter selects, and maybe others; -1 where fewer were found. `looked_at` is how many the graph
        keeps in sight.
        """
        rows = np.full((len(queries), n), -1, np.int64)
        asked = {
            "filter": "" if filter is None else compiled(filter),
            "limit": min(n, _MOST_FOUND),
            "anns_field": "embedding",
            "search_params": {"metric_type": "IP", "params": {"ef": max(looked_at, min(n, _MOST_FOUND))}},
            "consistency_level": "Eventually",
            "timeout": SEARCH_SECONDS,
        }
        for start in range(0, len(queries), _TOGETHER):
            with self._connection.asking(SLOW, name) as client:
                found = client.search(name, data=list(queries[start : start + _TOGETHER]), **asked)
            for row, hits in zip(rows[start:], found, strict=False):
                row[: len(hits.ids)] = hits.ids
        return rows

    def fetch(self, name: str, positions: Ints) -> FloatArray:
        """(n, d) vectors of rows as they were given, bit for bit."""
        vectors: dict[int, list[float]] = {}
        for start in range(0, len(positions), _BLOCK):
            block = positions[start : start + _BLOCK].tolist()
            with self._connection.asking(SLOW, name) as client:
                found = client.query(
                    name, ids=block, output_fields=["position", "embedding"], timeout=SEARCH_SECONDS
                )
            vectors.update((row["position"], row["embedding"]) for row in found)
        try:
            return np.array([vectors[position] for position in positions.tolist()], np.float32)
        except KeyError:
            raise EngineTableError(
                "the collection of this version in Milvus lacks some of its rows"
            ) from None

    def names(self, prefix: str) -> list[str]:
        """Collections whose names begin so, sorted."""
        with self._connection.asking(LATE) as client:
            names = client.list_collections(timeout=SEARCH_SECONDS)
        return sorted(name for name in names if name.startswith(prefix))

    def drop(self, name: str) -> None:
        """Remove a collection; nothing where there is none."""
        with self._connection.asking(LATE) as client:
            client.drop_collection(name, timeout=CHANGE_SECONDS)

    def describe(self, name: str | None = None) -> EngineTable:
        """Tell the version, and the rows of a collection; Milvus does not tell how large it is."""
        with self._connection.asking(LATE) as client:
            server = f"Milvus {client.get_server_version(timeout=SEARCH_SECONDS).lstrip('v')}"
            if name is None:
                return EngineTable(server)
            counted = client.get_collection_stats(name, timeout=SEARCH_SECONDS)
        return EngineTable(server, n_rows=int(counted["row_count"]))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _fill(
        self, client: Any, name: str, vectors: FloatArray, items: pa.Table, on_progress: OnProgress
    ) -> None:
        n, dim = vectors.shape
        kinds = self._connection.library.DataType
        schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("position", kinds.INT64, is_primary=True)
        schema.add_field("embedding", kinds.FLOAT_VECTOR, dim=dim)
        schema.add_field("id", kinds.VARCHAR, max_length=_LONGEST_TEXT)
        schema.add_field("label", kinds.VARCHAR, max_length=_LONGEST_TEXT)
        schema.add_field("metadata", kinds.JSON)
        client.create_collection(
            name,
            schema=schema,
            description="made by Vicinal; never updated",
            num_shards=1,
            consistency_level="Eventually",
            timeout=CHANGE_SECONDS,
        )
        n_together = max(1, min(_BLOCK, _BLOCK_BYTES // (4 * dim)))
        for start in range(0, n, n_together):
            told = items.slice(start, n_together).select(["id", "label", "metadata"])
            rows = [
                {
                    "position": start + place,
                    "embedding": vectors[start + place],
                    "id": item_id or "",
                    "label": label or "",
                    "metadata": stored(metadata),
                }
                for place, (item_id, label, metadata) in enumerate(
                    zip(*(column.to_pylist() for column in told.columns), strict=True)
                )
            ]
            client.insert(name, rows, timeout=CHANGE_SECONDS)
            on_progress("publish", start + len(rows), n)
        client.flush(name, timeout=_STUCK_SECONDS)
        params = client.prepare_index_params()
        graph = {"M": _EDGES, "efConstruction": _LOOKED_AT_TO_BUILD}
        kind: dict[str, Any] = {"index_type": "HNSW", "params": graph} if n > _FEW else {"index_type": "FLAT"}
        params.add_index("embedding", index_name="embedding", metric_type="IP", **kind)
        client.create_index(name, params, timeout=CHANGE_SECONDS, sync=False)
        _wait(lambda: _n_pending(client, name))
        client.load_collection(name, timeout=_STUCK_SECONDS)
        counted = client.query(
            name, output_fields=["count(*)"], consistency_level="Strong", timeout=CHANGE_SECONDS
        )[0]["count(*)"]
        if counted != n:
            raise EngineAwayError(f"Milvus holds {counted:,} rows of the {n:,} that it was sent")


def _n_pending(client: Any, name: str) -> int:
    told = client.describe_index(name, "embedding", timeout=CHANGE_SECONDS)
    if told.get("state") == "Failed":
        raise EngineAwayError(f"Milvus could not build a graph: {told.get('index_state_fail_reason')}")
    return 0 if told.get("state") == "Finished" else max(1, int(told.get("pending_index_rows") or 0))


def _wait(pending: Callable[[], int]) -> None:
    """Wait until nothing is left, as long as it gets less."""
    least, since = pending(), time.monotonic()
    while least:
        time.sleep(_LOOK_SECONDS)
        left = pending()
        if left < least:
            least, since = left, time.monotonic()
        elif time.monotonic() - since > _STUCK_SECONDS:
            raise EngineAwayError(LATE)
