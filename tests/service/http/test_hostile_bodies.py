"""Bodies that are made to fill memory or to hold the server up: refused at little cost.

A server of its own, so that its memory can be read; others are answered all along.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.service.http.test_processes import served
from vicinal.models.bundle import ModelBundle

pytestmark = pytest.mark.slow

DIM = 12
SHOES, CLIPS = "/v1/galleries/shoes", "/v1/galleries/clips"
MIB = 2**20
# What a server may take in besides what it has at rest, whatever it is sent: some bodies of 64 MiB.
MOST_MEMORY = 200 * MIB
MOST_BYTES = 64 * MIB
# Of the processor, while somebody else waits for an answer.
MOST_SECONDS = 10.0
SETTINGS = {"VICINAL_MAX_REQUEST_BYTES": str(MOST_BYTES), "VICINAL_RUN_JOBS": "false"}
SEEDS = [0, 1, 2]
N_CHANGED = 60


@dataclass
class Watched:
    """A server, and how it fares."""

    client: httpx.Client
    pid: int
    slowest: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def peak(self) -> int:
        """Most bytes that it had in memory since that was last forgotten."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found
        return int(found[1]) * 1024

    @property
    def worked(self) -> float:
        """Seconds of the processor that it has taken."""
        spent = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return sum(map(int, spent)) / os.sysconf("SC_CLK_TCK")

    def send(self, path: str, **request: Any) -> httpx.Response:
        """Send something; it is answered, shortly, and by no error of the server."""
        answer = self.client.post(path, **request)
        assert answer.status_code < 500, answer.text[:500]
        assert len(answer.content) < MIB
        return answer


@pytest.fixture(scope="module")
def server(
    calibrated_base: Path, tiny_bundle: ModelBundle, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Watched]:
    data = Path(shutil.copytree(calibrated_base, tmp_path_factory.mktemp("hostile") / "data"))
    with (
        served(data, tiny_bundle, **SETTINGS) as (
            port,
            process,
        ),
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
    ):
        client.put(CLIPS, params={"space": "clip", "dim": DIM}).raise_for_status()
        warm = {"items": [{"id": "warm", "embedding": [1.0] * DIM}]}
        client.post(f"{CLIPS}/items", json=warm).raise_for_status()
        client.post(f"{CLIPS}/search", json={"embedding": [1.0] * DIM}).raise_for_status()
        yield Watched(client, process.pid)


@contextmanager
def bounded(server: Watched) -> Iterator[None]:
    """Hold a server to its memory, and to answering others."""
    # The peak of what was sent before would hide this one's.
    Path(f"/proc/{server.pid}/clear_refs").write_text("5")
    before, done = server.peak, threading.Event()
    waits: list[float] = []

    def ask() -> None:
        with httpx.Client(base_url=server.client.base_url, timeout=60) as client:
            while not waits or not done.wait(0.02):
                before = server.worked
                assert client.get("/livez").status_code == 200
                waits.append(server.worked - before)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        done.set()
        asking.join()
    assert server.peak - before < MOST_MEMORY
    assert max(waits) < MOST_SECONDS


def npy(shape: tuple[int, ...], values: bytes = b"", kind: str = "<f4", version: int = 1) -> bytes:
    """A `.npy` file whose header says what it will."""
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    length = (len(head) + 1).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + head.encode() + b"\n" + values


def good_npy(n: int = 3) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.random.default_rng(n).normal(size=(n, DIM)).astype(np.float32))
    return stream.getvalue()


NPY = {
    "many rows of nothing": npy((10**12, 0)),
    "nothing of many columns": npy((0, 10**12)),
    "beyond int64": npy((10**30, 4)),
    "product beyond int64": npy((2**40, 2**40)),
    "negative": npy((-1, 12), bytes(48)),
    "twice negative": npy((-3, -12), bytes(144)),
    "more than is there": npy((10**9, 12), bytes(48)),
    "less than is there": npy((1, 12), bytes(96)),
    "kind of no size": npy((10**12,), kind="|V0"),
    "wide text": npy((1,), kind="<U1000000000"),
    "part of an array": npy((10**6,), kind="(1000000,)f4"),
    "objects": npy((3,), bytes(24), kind="|O"),
    "truth values": npy((1, 12), bytes(12), kind="|b1"),
    "a long header": b"\x93NUMPY\x02\0\xff\xff\xff\xff" + b" " * 10_000,
    "nested header": b"\x93NUMPY\x01\0\xff\x7f" + b"(" * 0x7FFF,
    "truth values in its shape": npy((True, 12), bytes(48)),
    "a part of a part": npy((1,), bytes(48), kind="(12,)f4"),
    "dimensions beyond numpy": npy((1,) * 70 + (12,), bytes(48)),
    "a later version": npy((1, 12), bytes(48), version=3),
    "three dimensions": npy((1, 1, 12), bytes(48)),
    "a million rows": npy((10**6, 12), bytes(48 * 10**6)),
    "not numbers": npy((1, 12), b"\xff" * 48),
    "empty": b"",
    "a zip": b"PK\x03\x04" + bytes(40),
}


def of_arrays(content: bytes, n: int = 3) -> dict[str, Any]:
    return {
        "files": [("embedding", ("a.npy", content, "application/octet-stream"))],
        "data": {"id": [str(i) for i in range(n)]},
    }


@pytest.mark.parametrize("content", NPY.values(), ids=NPY.keys())
def test_arrays_that_are_not_what_they_say_are_refused(server: Watched, content: bytes) -> None:
    with bounded(server):
        answer = server.send(f"{CLIPS}/items", **of_arrays(content, 1))
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) in [
        (422, "invalid-request"),
        (422, "invalid-embedding"),
    ]


def test_many_numbers_do_not_become_lists(server: Watched) -> None:
    """A .npy file of 40 MiB, which as lists would be 330 MiB, and hold up everybody else."""
    content = npy((1000, 10_000), np.ones(10**7, "<f4").tobytes())
    with bounded(server):
        assert server.send(f"{CLIPS}/items", **of_arrays(content, 1000)).status_code == 422


JSON = {
    "empty objects": ("items", b"{}," * 400_000),
    "some empty objects": ("items", b"{}," * 90_000),
    "wrong kinds": ("items", b"1," * 2_000_000),
    "empty lists": ("items", b"[]," * 200_000),
    "numbers for queries": ("queries", b"1," * 1_000_000),
    "empty queries": ("queries", b"{}," * 90_000),
    "words for numbers": ("embedding", b'"a",' * 1_000_000),
    "lists for numbers": ("embedding", b"[1]," * 200_000),
    "nothing for numbers": ("embedding", b"null," * 1_000_000),
    "no text": ("labels", b"1," * 1_000_000),
    "words in embeddings": ("embeddings", b'["a"],' * 200_000),
    "no ids": ("ids", b"1," * 150_000),
    "long ids": ("ids", b'"' + b"x" * 3 * MIB + b'",'),
}
PATHS = {
    "items": f"{CLIPS}/items",
    "queries": f"{SHOES}/search/batch",
    "embedding": f"{SHOES}/search",
    "labels": "/v1/admin/galleries/shoes/calibrations",
    "embeddings": "/v1/admin/galleries/shoes/comparisons",
    "ids": f"{SHOES}/items/delete",
}


@pytest.mark.parametrize(("name", "values"), JSON.values(), ids=JSON.keys())
def test_lists_of_what_cannot_be_are_refused_in_a_few_words(
    server: Watched, name: str, values: bytes
) -> None:
    body = b'{"%b": [%b]}' % (name.encode(), values[:-1])
    with bounded(server):
        answer = server.send(PATHS[name], content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (404, 413, 422)
    assert len(answer.json().get("errors", [])) <= 10


def test_unknown_fields_are_neither_all_told_nor_at_length(server: Watched) -> None:
    fields = {f"{i}{'x' * 100}": 1 for i in range(20_000)} | {"y" * 100_000: 1}
    with bounded(server):
        answer = server.send(f"{SHOES}/search", json=fields)
    assert answer.status_code == 422
    assert len(answer.json()["errors"]) == 10
    assert "and 20,000 more errors" in answer.json()["detail"]


def test_metadata_of_a_form_are_counted_as_those_of_json_are(server: Watched) -> None:
    metadata = '{"a": [' + "[]," * 80_000 + "[]]}"
    fields = {"id": [str(i) for i in range(64)], "metadata": [f"{metadata}{' ' * i}" for i in range(64)]}
    files = [("embedding", ("a.npy", good_npy(64), "application/octet-stream"))]
    with bounded(server):
        answer = server.send(f"{CLIPS}/items", files=files, data=fields)
    assert "more than 2,500,000 values" in answer.json()["detail"]


TWICE = {
    "content-type": ("multipart/form-data; boundary=x", "application/json"),
    "origin": ("http://a.example", "http://127.0.0.1"),
    "authorization": ("Bearer a", "Bearer b"),
    "x-api-key": ("a", "b"),
}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"token": "' + b"x" * 5 * MIB + b'"}', 413),
        (b'{"token": [' + b"1," * 300_000 + b"1]}", 413),
        (b"{" + b",".join(b'"%d":{}' % n for n in range(30_000)) + b"}", 413),
        (b"{" + b",".join(b'"%d":1' % n for n in range(30_000)) + b"}", 422),
        (b'{"token": ' + b"9" * 6000 + b"}", 422),
        (b"\x1f\x8b\x08\x00", 422),
        (b"\xff\xfe{}", 422),
        (b"", 422),
    ],
)
def test_who_has_no_key_yet_sends_little_to_get_one(server: Watched, body: bytes, status: int) -> None:
    with bounded(server):
        answer = server.send("/label/key", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, len(answer.content) < 4000) == (status, True)


@pytest.mark.parametrize("name", TWICE)
def test_a_header_that_decides_comes_once(server: Watched, name: str) -> None:
    """Otherwise the one who counts values takes the first, and the one who parses them the other."""
    body = b'{"queries": [' + b"{}," * 2_000_000 + b"{}]}"
    headers = [("Content-Type", "application/json")] if name != "content-type" else []
    headers += [(name, value) for value in TWICE[name]]
    with bounded(server):
        answer = server.send(f"{SHOES}/search/batch", content=body, headers=headers)
    assert answer.status_code == 400
    assert f"two headers '{name}'" in answer.json()["detail"]


@pytest.mark.parametrize("kind", ["multipart/mixed", "MULTIPART/x", "multipart/form-data;boundary=x", "x"])
def test_json_is_counted_whatever_it_is_said_to_be(server: Watched, kind: str) -> None:
    body = b'{"queries": [' + b"{}," * 2_000_000 + b"{}]}"
    with bounded(server):
        answer = server.send(f"{SHOES}/search/batch", content=body, headers={"Content-Type": kind})
    assert answer.status_code in (413, 415)


@pytest.mark.parametrize(
    "origin", ["http://[", "http://[::1", "http://]", "[", "null", "http://", "\xff", "x"]
)
def test_an_origin_that_is_none_is_no_error_of_the_server(server: Watched, origin: str) -> None:
    headers = {"Origin": origin.encode("latin-1")}
    answer = server.send(f"{SHOES}/search", json={"item_id": "plain/view 0.png"}, headers=headers)
    assert answer.status_code == 403


@pytest.mark.parametrize("length", ["9" * 30, "9" * 5000, "-1", "1e3", "0x10"])
def test_a_length_that_is_none_is_no_error_of_the_server(server: Watched, length: str) -> None:
    head = f"POST {SHOES}/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.client.base_url.port or 0), timeout=30) as there:
        there.sendall(head.encode())
        assert there.recv(100).split(b" ")[1] in (b"400", b"413")


# Bodies of every kind, changed at random


def good_form() -> bytes:
    head = 'Content-Disposition: form-data; name="embedding"; filename="a.npy"'
    ids = "".join(f'--x\r\nContent-Disposition: form-data; name="id"\r\n\r\n{i}\r\n' for i in range(3))
    return ids.encode() + f"--x\r\n{head}\r\n\r\n".encode() + good_npy() + b"\r\n--x--\r\n"


def good_json() -> bytes:
    item = {
        "id": "a",
        "embedding": [0.5] * DIM,
        "label": "é",
        "metadata": {"a": [1, {"b": None}]},
        "uri": "u",
    }
    return json.dumps({"items": [item, {**item, "id": "b"}], "on_conflict": "replace"}).encode()


def changed(content: bytes, draw: random.Random) -> bytes:
    """A body with some of its bytes, numbers or parts made something else."""
    made = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(made) or 1)
        numbers = [*re.finditer(rb"\d+", bytes(made))]
        kind = draw.choice(("byte", "cut", "twice", "number", "brackets", "digits"))
        if kind == "byte" and made:
            made[place] = draw.randrange(256)
        elif kind == "cut":
            del made[place : place + draw.randrange(1, 64)]
        elif kind == "twice":
            made[place:place] = made[place : place + 2000] * draw.choice((2, 200))
        elif kind == "number" and numbers:
            found = draw.choice(numbers)
            large = draw.choice((0, -1, 2**31, 2**63, 10**12, 10**30, 10**400))
            made[found.start() : found.end()] = str(large).encode()
        elif kind == "brackets":
            made[place:place] = draw.choice((b"[", b"{", b'{"a":', b"NaN", b"\\ud800", b"\0")) * draw.choice(
                (1, 5000)
            )
        else:
            made[place:place] = b"9" * 5000
    return bytes(made)


SENT: dict[str, tuple[Callable[[], bytes], str]] = {
    "json": (good_json, "application/json"),
    "multipart": (good_form, "multipart/form-data; boundary=x"),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", ["json", "multipart", "npy"])
def test_whatever_is_sent_the_server_goes_on(server: Watched, kind: str, seed: int) -> None:
    draw = random.Random(f"{kind} {seed}")
    with bounded(server):
        for _ in range(N_CHANGED):
            if kind == "npy":
                server.send(f"{CLIPS}/items", **of_arrays(changed(good_npy(), draw)))
            else:
                make, media_type = SENT[kind]
                content = changed(make(), draw)
                server.send(f"{CLIPS}/items", content=content, headers={"Content-Type": media_type})
    # Negative control: what is not changed is taken.
    for make, media_type in SENT.values():
        answer = server.send(f"{CLIPS}/items", content=make(), headers={"Content-Type": media_type})
        assert answer.status_code in (200, 409), answer.text
