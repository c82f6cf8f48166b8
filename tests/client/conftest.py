"""Fixtures of the client: both behind one face, a clock that nobody waits for, a server of any bytes."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from email import message_from_bytes
from hashlib import sha256
from typing import Any

import httpx
import pytest

# The real server's fixtures.
from tests.service.conftest import (  # noqa: F401
    base_dir,
    calibrate,
    calibrated_base,
    calibrated_dir,
    catalog,
    data_dir,
    embedder,
    encode,
    make_settings,
    no_outer_settings,
    view,
)
from vicinal_client import AsyncClient, Client, Retries

Handler = Callable[[httpx.Request], httpx.Response]
PROBLEM = "urn:vicinal:problem:"


class Clock:
    """Time that passes only when somebody waits, and how long each wait was."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    async def sleep_awaited(self, seconds: float) -> None:
        self.sleep(seconds)


class Either:
    """One of both clients, called alike: what is awaited is run to its end."""

    def __init__(self, client: Client | AsyncClient) -> None:
        self.client = client

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.client, name)
        if not inspect.iscoroutinefunction(call):
            return call
        return lambda *args, **options: asyncio.run(call(*args, **options))


@pytest.fixture(params=["Client", "AsyncClient"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "AsyncClient")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def connect(is_async: bool, clock: Clock) -> Callable[..., Either]:
    """Makes a client, sync or async, of a handler; it draws the longest wait each time."""

    def make(handler: Handler, *, retries: dict[str, Any] | None = None, **options: Any) -> Either:
        policy = Retries(clock=clock, draw=lambda: 1.0, **(retries or {}))
        transport = httpx.MockTransport(handler)
        if is_async:
            return Either(
                AsyncClient(transport=transport, retries=policy, sleep=clock.sleep_awaited, **options)
            )
        return Either(Client(transport=transport, retries=policy, sleep=clock.sleep, **options))

    return make


def problem(status: int, kind: str, detail: str = "it is so", **members: Any) -> httpx.Response:
    """An answer as the server gives it."""
    body = {"type": PROBLEM + kind, "title": kind, "status": status, "detail": detail, **members}
    return httpx.Response(status, json=body, headers={"content-type": "application/problem+json"})


class BytesServer:
    """Takes additions as the server does, but holds any bytes for an image that do not begin with `broken`.

    Attributes:
        items: Digest by id.
        requests: Ids and bytes of the images of each request.
        faults: Answers to the next additions in place of a real one; None for a real one.
    """

    def __init__(self, **limits: int) -> None:
        self.items: dict[str, str] = {}
        self.labels: dict[str, str] = {}
        self.requests: list[list[tuple[str, bytes]]] = []
        self.faults: list[Exception | httpx.Response | None] = []
        self.limits = limits
        self._lock = threading.Lock()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        with self._lock:
            if request.url.path == "/readyz":
                return httpx.Response(200, json=self._readiness())
            fault = self.faults.pop(0) if self.faults else None
            if isinstance(fault, Exception):
                raise fault
            return fault or self._add(request)

    def _readiness(self) -> dict[str, Any]:
        bundle = {"bundle": "b", "provider": "CPUExecutionProvider", "galleries": []}
        return {"ready": True, "reasons": [], **bundle, "limits": self.limits}

    def _add(self, request: httpx.Request) -> httpx.Response:
        form = Form(request)
        ids = form.fields("id") or [sha256(one).hexdigest()[:32] for one in form.images]
        self.requests.append(list(zip(ids, form.images, strict=True)))
        if any(len(one) > 1024 for one in ids):
            return problem(422, "invalid-request", "an id has too many characters")
        body: dict[str, Any] = {name: [] for name in ("added", "unchanged", "skipped", "refused")}
        for place, (item_id, image) in enumerate(self.requests[-1]):
            sent = {"place": place, "id": item_id, "filename": form.names[place]}
            digest = sha256(image).hexdigest()
            if image.startswith(b"broken"):
                reason = {"type": f"{PROBLEM}not-an-image", "reason": "it is no image"}
                body["refused"].append(sent | reason)
            elif self.items.get(item_id, digest) != digest:
                body["refused"].append(sent | {"type": f"{PROBLEM}item-exists", "reason": "it is taken"})
            elif item_id in self.items:
                body["unchanged"].append(sent)
            else:
                self.items[item_id] = digest
                self.labels[item_id] = form.fields("label")[place]
                body["added"].append(sent | {"replaced": False})
        return self._answer(body)

    def _answer(self, body: dict[str, Any]) -> httpx.Response:
        refused = body["refused"]
        if len(refused) < len(self.requests[-1]):
            return httpx.Response(200, json=body | {"n_items": len(self.items), "revision": 1})
        if len(refused) == 1:
            return problem(400, refused[0]["type"].removeprefix(PROBLEM), refused[0]["reason"])
        return problem(422, "nothing-added", errors=refused)


class Form:
    """The parts of a form that was sent."""

    def __init__(self, request: httpx.Request) -> None:
        head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
        parts = message_from_bytes(head + request.read()).get_payload()
        assert isinstance(parts, list)
        self._parts = [
            (str(one.get_param("name", header="content-disposition")), one.get_filename(), one)
            for one in parts
        ]

    @property
    def members(self) -> set[str]:
        return {name for name, *_ in self._parts}

    @property
    def images(self) -> list[bytes]:
        return [one.get_payload(decode=True) for name, _, one in self._parts if name == "image"]

    @property
    def names(self) -> list[str | None]:
        return [filename for name, filename, _ in self._parts if name == "image"]

    def fields(self, wanted: str) -> list[str]:
        return [one.get_payload(decode=True).decode() for name, _, one in self._parts if name == wanted]


@pytest.fixture
def server() -> Iterator[BytesServer]:
    return BytesServer()
