"""Connection to Milvus: what an address says, how long an answer is waited for, what errors mean."""

from __future__ import annotations

import importlib
import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import unquote, urlsplit

from vicinal.indexer.errors import EngineAwayError, EngineError, EngineFullError, EngineTableError
from vicinal.models.errors import MissingPackageError

CONNECT_SECONDS, SEARCH_SECONDS, CHANGE_SECONDS = 5.0, 5.0, 120.0
SLOW = f"Milvus did not answer a search within {SEARCH_SECONDS:g} s"
LATE = "Milvus did not do in time what it was asked"
# The first with all that filters are compiled to.
_SERVER = (2, 3)
_LONGEST_REASON = 200

_AWAY = "Milvus does not answer"
_REFUSED = "Milvus refuses the user, the password or the token of VICINAL_MILVUS_URL"
_FORBIDDEN = (
    "the user of VICINAL_MILVUS_URL may not do that in Milvus: grant it the collections that begin with "
    "vicinal_"
)
_NO_MILVUS = "what answers at VICINAL_MILVUS_URL is no Milvus, or of another age: the port is 19530 as a rule"
_NO_ADDRESS = (
    "VICINAL_MILVUS_URL is no address of Milvus: write http://USER:PASSWORD@HOST:19530/DATABASE, or https, "
    "with @ and / of a password as %40 and %2F"
)
# By numbers of https://github.com/milvus-io/milvus/blob/v2.3.5/pkg/util/merr/errors.go.
_FAILURES: dict[int, tuple[type[EngineError], str]] = {
    1: (EngineAwayError, "Milvus is starting"),
    2: (EngineAwayError, _AWAY),
    3: (EngineAwayError, "Milvus has no memory left"),
    4: (EngineAwayError, "Milvus has more to do than it takes"),
    7: (EngineFullError, "the disk of Milvus is full: nothing was written"),
    8: (EngineAwayError, "Milvus has more to do than it takes"),
    9: (EngineAwayError, "Milvus takes nothing at this time, for want of memory or disk"),
    100: (EngineTableError, "Milvus does not have the collection of this version"),
    106: (EngineAwayError, "Milvus has no node with room for this version"),
    800: (EngineError, "Milvus has no database of the name that VICINAL_MILVUS_URL gives"),
    1400: (EngineError, _REFUSED),
    1401: (EngineError, _FORBIDDEN),
    1402: (EngineError, _FORBIDDEN),
    1403: (EngineError, _FORBIDDEN),
}
_OF_SERVER = ("MilvusException", "DescribeCollectionException")
_NOT_LOADED = (101, 102, 103)
_TOO_LATE = (10_000, 10_001)
_BY_STATUS: dict[str, tuple[type[EngineError], str]] = {
    "UNAUTHENTICATED": (EngineError, _REFUSED),
    "PERMISSION_DENIED": (EngineError, _FORBIDDEN),
    "UNIMPLEMENTED": (EngineError, _NO_MILVUS),
    "RESOURCE_EXHAUSTED": (EngineAwayError, "Milvus has more to do than it takes"),
}


class MilvusConnection:
    """Milvus at an address such as `http://user:password@host:19530/db`, for any number of threads. It
    connects when it is first asked; nothing of the address is ever told.
    """

    def __init__(self, address: str) -> None:
        self.library = _import_pymilvus()
        self._errors = (self.library.MilvusException, importlib.import_module("grpc").RpcError)
        self._given = _read(address)
        self._lock = threading.Lock()
        self._client: Any = None

    @contextmanager
    def asking(self, late: str, to_load: str | None = None) -> Iterator[Any]:
        """Give a client of the library, and make errors of what comes of it our own; none of theirs is passed
        on, since they name the address. A collection `to_load` is loaded where it was not.
        """
        try:
            client = self._connected()
            yield client
        except self._errors as error:
            if to_load is not None and _is_unloaded(error):
                # After a start it loads what was loaded before, unless somebody had it released.
                with suppress(*self._errors):
                    client.load_collection(to_load, timeout=SEARCH_SECONDS, _async=True)
            raise _failure(error, late) from None

    def close(self) -> None:
        """Close the connection; whoever asks again opens a new one."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                client = self.library.MilvusClient(**self._given, timeout=CONNECT_SECONDS)
                _check_version(client.get_server_version(timeout=CONNECT_SECONDS))
                self._client = client
            return self._client


def _read(address: str) -> dict[str, str]:
    """Parts of an address, as the library takes them."""
    try:
        parts = urlsplit(address)
        port = parts.port or 19530
    except ValueError:
        raise EngineError(_NO_ADDRESS) from None
    database = parts.path.strip("/")
    if parts.scheme not in ("http", "https") or not parts.hostname or "/" in database:
        raise EngineError(_NO_ADDRESS)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    token = ":".join(unquote(one) for one in (parts.username, parts.password) if one)
    return {"uri": f"{parts.scheme}://{host}:{port}", "token": token, "db_name": unquote(database)}


def _check_version(told: str) -> None:
    found = re.match(r"v?(\d+)\.(\d+)", told)
    if found is not None and (int(found[1]), int(found[2])) < _SERVER:
        needs = ".".join(map(str, _SERVER))
        raise EngineError(f"Milvus is of version {found[1]}.{found[2]}, {needs} or later is needed")


def _failure(error: Any, late: str) -> EngineError:
    """Error in our own words."""
    if _is_unloaded(error):
        return EngineAwayError("Milvus is still loading this version", is_slow=True)
    status = _status(error)
    if status == "DEADLINE_EXCEEDED" or _code(error) in _TOO_LATE:
        return EngineAwayError(late, is_slow=True)
    if (known := _BY_STATUS.get(status) or _FAILURES.get(_code(error))) is not None:
        kind, says = known
        return kind(says)
    if status:
        return EngineAwayError(_AWAY)
    told = " ".join(str(error.message).split())[:_LONGEST_REASON]
    return EngineError(f"Milvus refuses what it was asked, with its error {_code(error)}: {told}")


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
    is_own = type(error).__name__ in _OF_SERVER and isinstance(error.code, int)
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
