"""Client of load tests: sends prepared requests over connections that stay open, from a process of its own.

    python -m benchmarks.load.client < plan.json > outcome.json

`closed`: every connection sends the next request as soon as it has its answer. `open`: requests are due at
fixed times, whether or not the answers before have come, and latency is counted from when a request was due;
what finds no free connection waits for one.
"""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import time
from collections import defaultdict, deque
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from benchmarks.common.record import percentiles

__all__ = ["Plan", "started", "outcome"]

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length: "
# In seconds. A client that wakes for every request takes more from a server beside it than its own time.
_TICK = 0.004


@dataclass(frozen=True)
class Plan:
    """What is sent, and how.

    Attributes:
        host: Address of the server.
        port: Its port.
        requests: Whole requests, head and body, sent in turn.
        kind: `closed` or `open`.
        connections: Most connections at once.
        seconds: How long requests are sent.
        rate: Requests a second, of `open`.
        warm_up: Seconds at the beginning that are not counted.
    """

    host: str
    port: int
    requests: list[bytes]
    kind: Literal["closed", "open"] = "closed"
    connections: int = 1
    seconds: float = 10.0
    rate: float = 0.0
    warm_up: float = 1.0


def started(plan: Plan) -> subprocess.Popen[bytes]:
    """Start a client in a process of its own; `outcome` waits for what it has seen."""
    encoded = asdict(plan) | {"requests": [base64.b64encode(one).decode() for one in plan.requests]}
    command = [sys.executable, "-m", "benchmarks.load.client"]
    # From the repository, wherever the caller is: this package is not installed.
    root = Path(__file__).resolve().parents[2]
    client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root)
    if client.stdin is None:
        raise RuntimeError("the client takes no plan")
    client.stdin.write(json.dumps(encoded).encode())
    client.stdin.close()
    return client


def outcome(client: subprocess.Popen[bytes]) -> dict[str, Any]:
    """What a client has seen.

    Returns:
        Answers a second, and by status the number of answers and percentiles of latency in milliseconds;
        `dropped` are requests whose connection was closed before an answer.
    """
    if client.stdout is None:
        raise RuntimeError("the client tells nothing")
    with client:
        told = client.stdout.read()
    if client.returncode != 0:
        raise RuntimeError("the client failed")
    return dict(json.loads(told))


@dataclass
class _Seen:
    begun: float
    spent: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    n_dropped: int = 0
    n_refused: int = 0

    def as_json(self, plan: Plan, ended: float) -> dict[str, Any]:
        seconds = ended - self.begun - plan.warm_up
        return {
            "seconds": round(seconds, 2),
            "dropped": self.n_dropped,
            "refused": self.n_refused,
            "cores": round(time.process_time() / seconds, 3),
            "statuses": {
                status: {
                    "n": len(spent),
                    "per_second": round(len(spent) / seconds, 1),
                    "milliseconds": percentiles(spent) | {"max": round(max(spent), 1)},
                }
                for status, spent in sorted(self.spent.items())
            },
        }


class _Connection(asyncio.Protocol):
    """One connection; `on_free` is called whenever it can send."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._transport: asyncio.Transport | None = None
        self._due: float | None = None
        self._received = bytearray()
        self._whole: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._transport = None
        if self._due is not None:
            self._due = None
            self._run.dropped()
        self._run.lost()

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, request: bytes, due: float) -> None:
        self._due = due
        self._transport.write(request)  # type: ignore[union-attr]

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._whole is None:
            end = self._received.find(_HEAD_END)
            if end < 0:
                return
            head = bytes(self._received[:end]).lower()
            at = head.find(_LENGTH)
            length = int(head[at + len(_LENGTH) :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            self._whole = end + len(_HEAD_END) + length
        if len(self._received) < self._whole:
            return
        status = self._received[9:12].decode()
        due, self._due = self._due, None
        closing = b"connection: close" in bytes(self._received[: self._received.find(_HEAD_END)]).lower()
        self._received.clear()
        self._whole = None
        if due is not None:
            self._run.answered(status, due)
        if closing and self._transport is not None:
            self._transport.close()
        else:
            self._run.free(self)


class _Run:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._seen = _Seen(time.monotonic())
        self._next = 0
        self._free: deque[_Connection] = deque()
        self._due: deque[float] = deque()
        self._n_open = 0
        self._ending = False
        self._opening: set[asyncio.Task[None]] = set()

    async def run(self) -> dict[str, Any]:
        plan = self._plan
        for _ in range(plan.connections if plan.kind == "closed" else min(plan.connections, 8)):
            await self._open()
        if plan.kind == "closed":
            await asyncio.sleep(plan.seconds)
        else:
            await self._keep_due()
        self._ending = True
        ended = time.monotonic()
        await asyncio.sleep(0.3)
        return self._seen.as_json(plan, ended)

    async def _keep_due(self) -> None:
        plan, begun, n = self._plan, time.monotonic(), 0
        while (now := time.monotonic()) < begun + plan.seconds:
            while begun + n / plan.rate <= now:
                self._due.append(begun + n / plan.rate)
                n += 1
            self._feed()
            await asyncio.sleep(max(_TICK, begun + n / plan.rate - time.monotonic()))

    def _feed(self) -> None:
        while self._due and self._free:
            connection = self._free.popleft()
            if connection.is_open:
                connection.send(self._request(), self._due.popleft())
        if len(self._due) > 0 and self._n_open + len(self._opening) < self._plan.connections:
            task = asyncio.get_running_loop().create_task(self._open())
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self) -> None:
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: _Connection(self), self._plan.host, self._plan.port
            )
        except OSError:
            self._seen.n_refused += 1
            return
        self._n_open += 1
        self.free(connection)

    def _request(self) -> bytes:
        self._next += 1
        return self._plan.requests[self._next % len(self._plan.requests)]

    def free(self, connection: _Connection) -> None:
        if self._ending or not connection.is_open:
            return
        if self._plan.kind == "closed":
            connection.send(self._request(), time.monotonic())
        else:
            self._free.append(connection)
            self._feed()

    def lost(self) -> None:
        self._n_open -= 1
        if self._plan.kind == "closed" and not self._ending:
            task = asyncio.get_running_loop().create_task(self._open())
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    def dropped(self) -> None:
        self._seen.n_dropped += not self._ending

    def answered(self, status: str, due: float) -> None:
        now = time.monotonic()
        if due >= self._seen.begun + self._plan.warm_up and not self._ending:
            self._seen.spent[status].append(1e3 * (now - due))


def main() -> None:
    """Read a plan, run it, print what was seen."""
    fields = json.load(sys.stdin)
    plan = Plan(**fields | {"requests": [base64.b64decode(one) for one in fields["requests"]]})
    print(json.dumps(asyncio.run(_Run(plan).run())))


if __name__ == "__main__":
    main()
