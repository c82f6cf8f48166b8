"""Milvus: a collection and an HNSW graph for each version and space.

Fields are `position` (the key), `embedding`, `id`, `label` and `metadata` (JSON). Searches are of consistency
`Eventually`: a collection is whole before it is searched and never changes, so there is nothing to wait for.
Filters are compiled by `milvus_filter`. See https://milvus.io/docs for limits.
"""

from __future__ import annotations

import importlib
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa

from vicinal.calibration.arrays import FloatArray, Ints
from vicinal.indexer.engines.engine import EngineTable
from vicinal.indexer.engines.milvus_filter import compiled, stored
from vicinal.indexer.errors import EngineAwayError, EngineError, EngineTableError
from vicinal.indexer.filters import Filter
from vicinal.models.errors import MissingPackageError
from vicinal.models.progress import OnProgress

_SETTING = "VICINAL_MILVUS_URL"
# The first with all that filters are compiled to.
_SERVER = (2, 3)
_CONNECT_SECONDS, _SEARCH_SECONDS, _CHANGE_SECONDS = 5.0, 5.0, 120.0
# Of a graph that is built, and of one that is loaded, as long as it goes on.
_LOOK_SECONDS, _STUCK_SECONDS = 0.2, 1800.0
_EDGES, _LOOKED_AT_TO_BUILD = 16, 200
# Up to so many rows are compared one by one: of 1,023 and fewer Milvus makes no graph, but cells, of which it
# searches an eighth, however far it is told to look (.92 of the ten nearest of 900 without groups).
_FEW = 4096
# A message has at most 64 MiB, and an item's metadata 64 KiB.
_BLOCK, _BLOCK_BYTES, _TOGETHER = 512, 2**24, 64
_MOST_FOUND = 16_384
_LONGEST_TEXT, _LONGEST_REASON = 65_535, 200

_AWAY = "Milvus does not answer"
_LOADING = "Milvus is still loading this version"
_SLOW = f"Milvus did not answer a search within {_SEARCH_SECONDS:g} s"
_LATE = "Milvus did not do in time what it was asked"
_REFUSED = f"Milvus refuses the user, the password or the token of {_SETTING}"
_FORBIDDEN = (
    f"the user of {_SETTING} may not do that in Milvus: grant it the collections that begin with vicinal_"
)
_NO_DATABASE = f"Milvus has no database of the name that {_SETTING} gives"
_NO_MILVUS = f"what answers at {_SETTING} is no Milvus, or of another age: the port is 19530 as a rule"
_FORM = (
    f"{_SETTING} is no address of Milvus: write http://USER:PASSWORD@HOST:19530/DATABASE, or https, with @ "
    "and / of a password as %40 and %2F"
)
# By numbers of https://github.com/milvus-io/milvus/blob/v2.3.5/pkg/util/merr/errors.go.
_FAILURES: dict[int, tuple[type[EngineError], str]] = {
    1: (EngineAwayError, "Milvus is starting"),
    2: (EngineAwayError, _AWAY),
    3: (EngineAwayError, "Milvus has no memory left"),
    4: (EngineAwayError, "Milvus has more to do than it takes"),
    7: (EngineAwayError, "the disk of Milvus is full: nothing was written"),
    8: (EngineAwayError, "Milvus has more to do than it takes"),
    9: (EngineAwayError, "Milvus takes nothing at this time, for want of memory or disk"),
    100: (EngineTableError, "Milvus does not have the collection of this version"),
    106: (EngineAwayError, "Milvus has no node with room for this version"),
    800: (EngineError, _NO_DATABASE),
    1400: (EngineError, _REFUSED),
    1401: (EngineError, _FORBIDDEN),
    1402: (EngineError, _FORBIDDEN),
    1403: (EngineError, _FORBIDDEN),
}
_NOT_LOADED = (101, 102, 103)
_TOO_LATE = (10_000, 10_001)
_BY_STATUS: dict[str, tuple[type[EngineError], str]] = {
    "UNAUTHENTICATED": (EngineError, _REFUSED),
    "PERMISSION_DENIED": (EngineError, _FORBIDDEN),
    "UNIMPLEMENTED": (EngineError, _NO_MILVUS),
    "RESOURCE_EXHAUSTED": (EngineAwayError, "Milvus has more to do than it takes"),
}


class MilvusEngine:
    """Milvus at an address such as `http://user:password@host:19530/db`; see `Engine`. It connects when it is
    first asked; nothing of the address is ever told.
    """

    most_looked_at = _MOST_FOUND
    longest = 32_768

    def __init__(self, address: str) -> None:
        self._library = _import_pymilvus()
        self._errors = (self._library.MilvusException, importlib.import_module("grpc").RpcError)
        self._given = _read(address)
        self._lock = threading.Lock()
        self._client: Any = None

    def build(self, name: str, vectors: FloatArray, items: pa.Table, on_progress: OnProgress) -> None:
        """Make a collection, which is gone again where that fails; see `Engine.build`."""
        with self._asking(_LATE) as client:
            try:
                self._fill(client, name, vectors, items, on_progress)
            except BaseException:
                with suppress(Exception):
                    client.drop_collection(name, timeout=_CHANGE_SECONDS)
                raise

    def search(
        self, name: str, queries: FloatArray, n: int, looked_at: int, filter: Filter | None = None
    ) -> Ints:
        """(B, n) positions of the nearest rows; see `Engine.search`."""
        rows = np.full((len(queries), n), -1, np.int64)
        asked = {
            "filter": "" if filter is None else compiled(filter),
            "limit": min(n, _MOST_FOUND),
            "anns_field": "embedding",
            "search_params": {"metric_type": "IP", "params": {"ef": max(looked_at, min(n, _MOST_FOUND))}},
            "consistency_level": "Eventually",
            "timeout": _SEARCH_SECONDS,
        }
        for start in range(0, len(queries), _TOGETHER):
            with self._asking(_SLOW, name) as client:
                found = client.search(name, data=list(queries[start : start + _TOGETHER]), **asked)
            for row, hits in zip(rows[start:], found, strict=False):
                row[: len(hits.ids)] = hits.ids
        return rows

    def fetch(self, name: str, positions: Ints) -> FloatArray:
        """(n, d) vectors of rows; see `Engine.fetch`."""
        vectors: dict[int, list[float]] = {}
        for start in range(0, len(positions), _BLOCK):
            block = positions[start : start + _BLOCK].tolist()
            with self._asking(_SLOW, name) as client:
                found = client.query(
                    name, ids=block, output_fields=["position", "embedding"], timeout=_SEARCH_SECONDS
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
        with self._asking(_LATE) as client:
            names = client.list_collections(timeout=_SEARCH_SECONDS)
        return sorted(name for name in names if name.startswith(prefix))

    def drop(self, name: str) -> None:
        """Remove a collection; nothing where there is none."""
        with self._asking(_LATE) as client:
            client.drop_collection(name, timeout=_CHANGE_SECONDS)

    def describe(self, name: str | None = None) -> EngineTable:
        """Tell the version, and the rows of a collection; Milvus does not tell how large it is."""
        with self._asking(_LATE) as client:
            server = f"Milvus {client.get_server_version(timeout=_SEARCH_SECONDS).lstrip('v')}"
            if name is None:
                return EngineTable(server)
            counted = client.get_collection_stats(name, timeout=_SEARCH_SECONDS)
        return EngineTable(server, n_rows=int(counted["row_count"]))

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _fill(
        self, client: Any, name: str, vectors: FloatArray, items: pa.Table, on_progress: OnProgress
    ) -> None:
        n, dim = vectors.shape
        kinds = self._library.DataType
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
            timeout=_CHANGE_SECONDS,
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
            client.insert(name, rows, timeout=_CHANGE_SECONDS)
            on_progress("publish", start + len(rows), n)
        client.flush(name, timeout=_STUCK_SECONDS)
        params = client.prepare_index_params()
        graph = {"M": _EDGES, "efConstruction": _LOOKED_AT_TO_BUILD}
        kind: dict[str, Any] = {"index_type": "HNSW", "params": graph} if n > _FEW else {"index_type": "FLAT"}
        params.add_index("embedding", index_name="embedding", metric_type="IP", **kind)
        client.create_index(name, params, timeout=_CHANGE_SECONDS, sync=False)
        _wait(lambda: _n_pending(client, name))
        client.load_collection(name, timeout=_STUCK_SECONDS)
        counted = client.query(
            name, output_fields=["count(*)"], consistency_level="Strong", timeout=_CHANGE_SECONDS
        )[0]["count(*)"]
        if counted != n:
            raise EngineAwayError(f"Milvus holds {counted:,} rows of the {n:,} that it was sent")

    @contextmanager
    def _asking(self, late: str, searched: str | None = None) -> Iterator[Any]:
        """Give a client, and make errors of what comes of it our own; none of theirs is passed on, since they
        name the address.
        """
        try:
            client = self._connected()
            yield client
        except self._errors as error:
            if searched is not None and _is_unloaded(error):
                # After a start it loads what was loaded before, unless somebody had it released.
                with suppress(*self._errors):
                    client.load_collection(searched, timeout=_SEARCH_SECONDS, _async=True)
            raise _failure(error, late) from None

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                client = self._library.MilvusClient(**self._given, timeout=_CONNECT_SECONDS)
                _check_version(client.get_server_version(timeout=_CONNECT_SECONDS))
                self._client = client
            return self._client


def _read(address: str) -> dict[str, str]:
    """Parts of an address, as the library takes them."""
    try:
        parts = urlsplit(address)
        port = parts.port or 19530
    except ValueError:
        raise EngineError(_FORM) from None
    database = parts.path.strip("/")
    if parts.scheme not in ("http", "https") or not parts.hostname or "/" in database:
        raise EngineError(_FORM)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    token = ":".join(unquote(one) for one in (parts.username, parts.password) if one)
    return {"uri": f"{parts.scheme}://{host}:{port}", "token": token, "db_name": unquote(database)}


def _check_version(told: str) -> None:
    found = re.match(r"v?(\d+)\.(\d+)", told)
    if found is not None and (int(found[1]), int(found[2])) < _SERVER:
        needs = ".".join(map(str, _SERVER))
        raise EngineError(f"Milvus is of version {found[1]}.{found[2]}, {needs} or later is needed")


def _n_pending(client: Any, name: str) -> int:
    told = client.describe_index(name, "embedding", timeout=_CHANGE_SECONDS)
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
            raise EngineAwayError(_LATE)


def _failure(error: Any, late: str) -> EngineError:
    """Error in our own words."""
    if _is_unloaded(error):
        return EngineAwayError(_LOADING, is_slow=True)
    status = _status(error)
    if status == "DEADLINE_EXCEEDED" or _code(error) in _TOO_LATE:
        return EngineAwayError(late, is_slow=True)
    if (known := _BY_STATUS.get(status) or _FAILURES.get(_code(error))) is not None:
        return known[0](known[1])
    if status:
        return EngineAwayError(_AWAY)
    words = " ".join(str(error.message).split())[:_LONGEST_REASON]
    return EngineError(f"Milvus refuses what it was asked, with its error {_code(error)}: {words}")


def _status(error: Any) -> str:
    """Status of gRPC that an error is or follows from; empty where it is Milvus' own."""
    for one in (error, error.__cause__):
        code: Any = getattr(one, "code", None)
        code = code() if callable(code) else code
        if hasattr(code, "name") and not isinstance(code, int):
            return str(code.name)
    return ""


def _code(error: Any) -> int:
    """Number of Milvus' own errors; 0 for those of its library, which count from 1, too."""
    is_own = type(error).__name__ == "MilvusException" and isinstance(error.code, int)
    return int(error.code) if is_own else 0


def _is_unloaded(error: Any) -> bool:
    return _code(error) in _NOT_LOADED


def _import_pymilvus() -> Any:
    try:
        import pymilvus
    except ImportError as error:
        raise MissingPackageError("pymilvus", "milvus", "searching on Milvus") from error
    # It writes every error to the console, with filters and addresses in it; they are raised here as well.
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL + 1)
    return pymilvus
