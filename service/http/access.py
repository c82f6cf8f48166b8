"""Access: every request, refused or not, gets an id, a line in the log and its place in metrics; every
change asked for, and what a key may not do, is a line of JSON in the audit log too.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from fastapi.concurrency import run_in_threadpool
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vicinal.indexer.errors import IndexerError, StorageError
from vicinal.indexer.storage.files import hold_file, make_folder
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.keys import Grant
from vicinal.service.observability.logs import request_id_of, with_request_id
from vicinal.service.operations.answer import NOBODY
from vicinal.service.search.answers import Answer

logger = logging.getLogger(__name__)
_lines = logging.getLogger("vicinal.access")
_CALL = "vicinal.call"
_METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
# Whoever watches the server asks for these every few seconds.
_PROBES = frozenset({"/livez", "/readyz", "/metrics"})
_UNKNOWN = "unmatched"

_BUCKETS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_MOST_GALLERIES = 200
_OTHERS = "others"

_MOST_BYTES = 16 * 2**20
_N_KEPT = 8
_MOST_IDS = 100
_MOST_A_SECOND = 20
_LONGEST = 256
_PATIENCE = 5.0


class Metrics:
    """Counters and histograms of a server's processes, and `states` of the process that answers."""

    def __init__(self, bundles: ServedBundles) -> None:
        self.registry = CollectorRegistry()
        self.states = CollectorRegistry()
        self._bundles = bundles
        self.states.register(self)
        # Each name of a gallery is a series for good.
        self._named: set[str] = set()
        timed = partial(Histogram, registry=self.registry, buckets=_BUCKETS)
        counted = partial(Counter, registry=self.registry)
        self._requests = timed(
            "vicinal_http_request_seconds",
            "Time from a request's head to the end of its answer",
            ["method", "route", "status"],
        )
        self._waits = timed("vicinal_queue_wait_seconds", "Time that searches wait for a thread")
        self._batches = timed("vicinal_batch_size", "Searches that a thread takes together", buckets=_SIZES)
        self._stages = timed(
            "vicinal_stage_seconds", "Time a search spends in each stage", ["gallery", "stage"]
        )
        self._answers = counted("vicinal_answers", "Answers by outcome", ["gallery", "outcome"])
        self.under_way = Gauge(
            "vicinal_searches_under_way",
            "Searches, and other calls that may take long, answered or waiting",
            registry=self.registry,
            # Over several processes; what one that died had under way is none of it.
            multiprocess_mode="livesum",
        )
        self._problems = counted("vicinal_problems", "Refused requests", ["type"])
        self._kept = counted(
            "vicinal_kept_searches",
            "Searches offered for keeping: kept, too_many at a time, or failed",
            ["outcome"],
        )

    def record_request(self, method: str, route: str, status: int | None, seconds: float) -> None:
        """Count a request; `status` is None where the client was gone before there was an answer."""
        self._requests.labels(method, route, "none" if status is None else str(status)).observe(seconds)

    def record_batch(self, waits: Sequence[float]) -> None:
        """Count searches that a thread takes together."""
        self._batches.observe(len(waits))
        for seconds in waits:
            self._waits.observe(seconds)

    def record(self, answers: Sequence[Answer]) -> None:
        """Count the answers of one call and the time by stage."""
        if not answers:
            return
        gallery = answers[0].gallery
        if len(self._named) < _MOST_GALLERIES:
            self._named.add(gallery)
        elif gallery not in self._named:
            gallery = _OTHERS
        for answer in answers:
            self._answers.labels(gallery, answer.verdict or "undecided").inc()
        for stage, spent in answers[0].milliseconds.items():
            self._stages.labels(gallery, stage).observe(spent / 1e3)

    def record_kept(self, outcome: str, n_searches: int) -> None:
        """Count searches that were to be kept, by what became of them."""
        self._kept.labels(outcome).inc(n_searches)

    def record_problem(self, kind: str) -> None:
        """Count a refused request by the last part of its problem type."""
        self._problems.labels(kind).inc()

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        counted = self.registry
        if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            counted = CollectorRegistry()
            MultiProcessCollector(counted)
        return generate_latest(counted) + generate_latest(self.states)

    def collect(self) -> list[GaugeMetricFamily]:
        """The bundle of the settings, looked up when the metrics are asked for."""
        embedder = GaugeMetricFamily(
            "vicinal_embedder_info", "Device and bundle in use", labels=["provider", "bundle"]
        )
        refiner = GaugeMetricFamily(
            "vicinal_refiner_info",
            "Refiner of the bundle, and what is refined where a search does not say",
            labels=["refiner", "refine"],
        )
        own = self._bundles.own_if_open
        if own is not None:
            embedder.add_metric([own.embedder.provider, own.bundle.fingerprint], 1.0)
        if own is not None and own.refiner is not None:
            refiner.add_metric([own.refiner.fingerprint, own.pipeline.refine.sides], 1.0)
        return [embedder, refiner]


@dataclass
class Call:
    """Facts that become known of a request while it is answered."""

    route: str = _UNKNOWN  # Template
    grant: Grant | None = None  # What the key that it came with may do
    in_full: bool = False  # Who asks may see all galleries, and learn of the server
    gallery: str | None = None
    items: dict[str, Any] = field(default_factory=dict)  # Which it changes, where its address does not say so
    status: int | None = None  # None before there is an answer
    n_bytes: int = 0  # Of the answer's body
    request: str | None = None  # Its id, where what is logged meanwhile does not name it anyway


def call_of(scope: Scope) -> Call:
    """Facts known of the request of an ASGI scope."""
    call: Call = scope[_CALL]
    return call


def who_asks(request: Request) -> str:
    """Name of the key of a request, under which what it says is kept."""
    grant = call_of(request.scope).grant
    return NOBODY if grant is None else grant.name


class Access:
    """ASGI middleware around everything else."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, and tell of it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        call, started = Call(), time.perf_counter()
        headers = Headers(scope=scope)
        request = request_id_of(headers.get("x-request-id"))

        async def noting_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                call.status = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = request
            elif message["type"] == "http.response.body":
                call.n_bytes += len(message.get("body", b""))
            await send(message)

        inner = {**scope, _CALL: call}
        with with_request_id(request):
            try:
                await self.app(inner, receive, noting_send)
            finally:
                call.route = getattr(inner.get("route"), "path", _UNKNOWN)
                tell(self._metrics, scope["method"], scope.get("client"), call, time.perf_counter() - started)


def tell(metrics: Metrics, method: str, client: tuple[str, int] | None, call: Call, seconds: float) -> None:
    """Count a request that is over, and write its line into the log."""
    method = _known(method)
    metrics.record_request(method, call.route, call.status, seconds)
    level = logging.DEBUG if call.route in _PROBES else logging.INFO
    if not _lines.isEnabledFor(level):
        return
    told = {
        "method": method,
        "route": call.route,
        "status": call.status,
        "milliseconds": round(1e3 * seconds, 2),
        "bytes": call.n_bytes,
        "client": client[0] if client else None,
        "key": None if call.grant is None else call.grant.name,
        "gallery": call.gallery,
        "request_id": call.request,
    }
    _lines.log(level, "request", extra={name: value for name, value in told.items() if value is not None})


def _known(method: str) -> str:
    return method if method in _METHODS else "other"


class AuditLog:
    """The file of an audit log, which any number of processes append to."""

    def __init__(self, path: Path, most_bytes: int = _MOST_BYTES) -> None:
        self.path = path
        self._most_bytes = most_bytes

    def require_writable(self) -> None:
        """Refuse a change that could not be noted, unless the disk is full: what frees room is a change."""
        make_folder(self.path.parent)
        try:
            os.close(self._opened())
        except OSError as error:
            raise StorageError(
                f"the audit log '{self.path}' cannot be written ({error.strerror}): nothing is changed"
            ) from error

    def append(self, line: dict[str, Any]) -> None:
        """Write one line."""
        text = json.dumps(line, ensure_ascii=True, default=str) + "\n"
        make_folder(self.path.parent)
        busy = f"the audit log '{self.path}' is held by a process that hangs"
        with hold_file(self.path.with_suffix(".lock"), busy, patience=_PATIENCE):
            try:
                self._rotate()
                descriptor = self._opened()
                try:
                    # One call, so that a line is there whole or not at all.
                    os.write(descriptor, text.encode())
                finally:
                    os.close(descriptor)
            except OSError as error:
                raise StorageError(
                    f"the audit log '{self.path}' cannot be written: {error.strerror}"
                ) from error

    def _opened(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def _rotate(self) -> None:
        if not self.path.exists() or self.path.stat().st_size < self._most_bytes:
            return
        for number in range(_N_KEPT - 1, 0, -1):
            with suppress(FileNotFoundError):
                self._numbered(number).replace(self._numbered(number + 1))
        self.path.replace(self._numbered(1))

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


class StrangerLog(AuditLog):
    """The same for calls without a key, so that no stranger pushes the others out: some lines a second."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._second, self._n_noted, self._n_more = 0, 0, 0

    def append(self, line: dict[str, Any]) -> None:
        """Write one line, unless there were many in this second; the next one says how many were left out."""
        second = int(time.monotonic())
        if second != self._second:
            self._second, self._n_noted = second, 0
        if self._n_noted >= _MOST_A_SECOND:
            self._n_more += 1
            return
        self._n_noted += 1
        more, self._n_more = self._n_more, 0
        super().append({**line, "n_left_out": more} if more else line)


def note_items(request: Request, item_ids: list[str]) -> None:
    """Tell the audit log which items a call is about, where its address does not."""
    call_of(request.scope).items.update(n_items=len(item_ids), items=item_ids[:_MOST_IDS])


async def note(log: AuditLog, who: str, route: str | None, scope: Scope, status: int) -> None:
    """Note a change that was asked for; `route` has names in place of values."""
    request = Request(scope)
    line = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "who": who,
        "client": request.client.host if request.client else None,
        "request_id": (request.headers.get("x-request-id") or "")[:_LONGEST] or None,
        "method": request.method,
        "route": route,
        "path": scope["path"][: 4 * _LONGEST],
        **call_of(scope).items,
        "status": status,
    }
    try:
        await run_in_threadpool(log.append, line)
    except IndexerError:
        # The change is made, and cannot be taken back.
        logger.exception("a change is missing in the audit log: %s", json.dumps(line, default=str))


async def audited(
    app: ASGIApp, log: AuditLog, who: str, route: str, scope: Scope, receive: Receive, send: Send
) -> None:
    """Pass a change on, and note it before its answer begins, or when there is none."""
    is_noted = False

    async def noting(message: Message) -> None:
        nonlocal is_noted
        if not is_noted:
            is_noted = True
            await note(log, who, route, scope, int(message["status"]))
        await send(message)

    try:
        await app(scope, receive, noting)
    except Exception:
        # It is answered further out. Some of it may be done.
        if not is_noted:
            await note(log, who, route, scope, 500)
        raise
