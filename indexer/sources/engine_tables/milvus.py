"""Collections of Milvus with embeddings in a field of float vectors, of 32 or 16 bits; see `engine_tables`.

The primary key is the id, and the one vector field the embedding, where an address names none. Fields that
stand in no schema become metadata like all others, and `label` and `path` may be such. `secure=true` in an
address is for servers with a certificate; a token stands in place of the user.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pyarrow as pa

from vicinal.calibration.arrays import AnyArray
from vicinal.indexer.errors import EngineError, SourceError
from vicinal.indexer.milvus_connection import CHANGE_SECONDS, LATE, MilvusConnection, Words
from vicinal.indexer.sources.team_table import TableMark
from vicinal.indexer.sources.values import UNNAMED

Row = Mapping[str, Any]
Ways = dict[str, tuple[pa.DataType, Callable[[Row], Any]]]

_ROWS_A_PART, _ROWS_COMPARED = 512, 64
VECTORS = ("FLOAT_VECTOR", "FLOAT16_VECTOR", "BFLOAT16_VECTOR")
# What fields are by their types; all others are read as JSON.
_KINDS = {
    **dict.fromkeys(("INT8", "INT16", "INT32", "INT64"), pa.int64()),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "BOOL": pa.bool_(),
    "VARCHAR": pa.string(),
}
_WORDS = Words(
    place="the address",
    form="milvus://USER:PASSWORD@HOST:19530/DATABASE?collection=NAME",
    collection="a collection of this name in the database of the address",
    right="DescribeCollection and Query of the collection",
    unloaded="the collection is not loaded, and who owns it decides when it is: call load_collection there",
)


class MilvusCollection:
    """A collection that is loaded; see `OpenTable`. Milvus 2.3 keeps no moment for who reads: a row that
    comes meanwhile is there or not, and each is whole.
    """

    vectors: tuple[str, ...] = VECTORS
    expected = "FLOAT_VECTOR, FLOAT16_VECTOR or BFLOAT16_VECTOR"

    def __init__(self, client: Any, name: str) -> None:
        self._client, self._name = client, name
        self._told = client.describe_collection(name, timeout=CHANGE_SECONDS)
        fields = self._told["fields"]
        self.columns: Mapping[str, str] = {str(one["name"]): one["type"].name for one in fields}
        self._key = next(str(one["name"]) for one in fields if one.get("is_primary"))
        of_vectors = [name for name, kind in self.columns.items() if kind in VECTORS]
        self.usual: Mapping[str, str] = {"id": self._key} | (
            {"embedding": of_vectors[0]} if len(of_vectors) == 1 else {}
        )

    def rows(self, named: Mapping[str, str]) -> tuple[pa.Schema, Iterator[pa.Table]]:
        """Rows in parts, ordered by the primary key; see `OpenTable.rows`."""
        embedding = named["embedding"]
        ways = ways_of(self._told, named)
        ways[embedding] = pa.list_(pa.float32()), reader_of_vectors(embedding, self.columns[embedding])
        return pa.schema([(name, kind) for name, (kind, _) in ways.items()]), self._parts(
            ways, wanted_of(self._told, embedding)
        )

    def mark(self, named: Mapping[str, str]) -> TableMark:
        """Count of the rows, and what the first of them hold; see `OpenTable.mark`."""
        # The first question waits for all that was written before it.
        ask = partial(self._client.query, self._name, timeout=CHANGE_SECONDS, consistency_level="Strong")
        return mark_of(ask, self._told, named["embedding"])

    def _parts(self, ways: Ways, wanted: list[str]) -> Iterator[pa.Table]:
        missing = set(ways) - {*wanted, "label", "path"}
        # As the iterator of pymilvus asks, which takes no keys with quotation marks. Later servers than 2.3
        # say by it which moment is read.
        asked: dict[str, Any] = {"iterator": "True", "reduce_stop_for_best": "True", "limit": _ROWS_A_PART}
        condition = ""
        while rows := self._client.query(self._name, condition, wanted, timeout=CHANGE_SECONDS, **asked):
            condition = f"{self._key} > {json.dumps(rows[-1][self._key], ensure_ascii=False)}"
            asked.setdefault("guarantee_timestamp", rows.extra.get("iterator_session_ts", 0))
            missing -= {name for name in missing if any(row.get(name) is not None for row in rows)}
            yield pa.table({name: pa.array(map(read, rows), kind) for name, (kind, read) in ways.items()})
        if missing and condition:
            raise SourceError(f"no row of '{self._name}' has a field '{min(missing)}'")


@contextmanager
def milvus_collection(server: str, collection: str, shown: str) -> Iterator[MilvusCollection]:
    """Open a collection by the address of its database; `shown` is what errors say instead of it."""
    if unknown := [
        name for name, _ in parse_qsl(urlsplit(server).query, keep_blank_values=True) if name != "secure"
    ]:
        raise SourceError(f"'{shown}' says '{unknown[0]}', which is no word of an address of Milvus")
    connection = None
    try:
        connection = MilvusConnection(server, _WORDS)
        with connection.asking(LATE) as client:
            yield MilvusCollection(client, collection)
    except EngineError as error:
        raise SourceError(f"'{shown}' cannot be read: {error}") from None
    finally:
        if connection is not None:
            connection.close()


def ways_of(told: Mapping[str, Any], named: Mapping[str, str]) -> Ways:
    """Columns that a collection's fields become, but for vectors; `named` ones may stand in no schema."""
    kinds = {str(one["name"]): one["type"].name for one in told["fields"]}
    ways: Ways = {
        name: (
            _KINDS.get(kind, pa.json_()),
            itemgetter(name) if kind in _KINDS else partial(_as_json, name=name),
        )
        for name, kind in kinds.items()
        if not kind.endswith("_VECTOR")
    }
    if told.get("enable_dynamic_field"):
        texts = [named[one] for one in ("label", "path") if named.get(one, "") not in ("", *kinds)]
        ways |= {name: (pa.json_(), partial(_as_json, name=name)) for name in texts}
        ways[UNNAMED] = pa.json_(), partial(_others, taken=[*kinds, *texts])
    return ways


def wanted_of(told: Mapping[str, Any], embedding: str) -> list[str]:
    """Fields that are asked for: all but other vectors, and what stands in no schema."""
    names = {str(one["name"]): one["type"].name for one in told["fields"]}
    wanted = [name for name, kind in names.items() if name == embedding or not kind.endswith("_VECTOR")]
    return [*wanted, UNNAMED] if told.get("enable_dynamic_field") else wanted


def mark_of(ask: Callable[..., Any], told: Mapping[str, Any], embedding: str) -> TableMark:
    """State of a collection, by a call that queries it: Milvus tells what is there, not what changed. So the
    first rows are compared, which others replace wherever all were embedded anew.
    """
    counted = ask(output_fields=["count(*)"])
    first = ask(output_fields=wanted_of(told, embedding), limit=_ROWS_COMPARED)
    seen = json.dumps([dict(row) for row in first], sort_keys=True, default=str)
    return TableMark(
        at=datetime.now(UTC),
        n_rows=counted[0]["count(*)"],
        place=told["collection_id"],
        last=hashlib.sha256(seen.encode()).hexdigest()[:16],
    )


def reader_of_vectors(name: str, kind: str) -> Callable[[Row], AnyArray | None]:
    """Call that reads the vector of a row."""

    def read(row: Row) -> AnyArray | None:
        value = row[name]
        if value is None or kind == "FLOAT_VECTOR":
            return value
        # Those of 16 bits come as bytes.
        held = value if isinstance(value, bytes) else value[0]
        if kind == "FLOAT16_VECTOR":
            return np.frombuffer(held, "<f2").astype(np.float32)
        return (np.frombuffer(held, "<u2").astype("<u4") << 16).view("<f4")

    return read


def _as_json(row: Row, name: str) -> str | None:
    value = row.get(name)
    return None if value is None else json.dumps(value, default=list)


def _others(row: Row, taken: list[str]) -> str:
    """Fields of a row that stand in no schema."""
    return json.dumps({name: value for name, value in row.items() if name not in taken}, default=list)
