"""Bulk uploads: whatever fails, every image is there once, or listed with the reason."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.conftest import PROBLEM, BytesServer, Clock, Either, problem
from vicinal.models.decoding import image_suffixes
from vicinal.models.images import hidden_files
from vicinal_client import Client, NewEmbedding, NewItem, Retries, UploadProgress, UploadStoppedError, uploads

N = 100


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A hundred files of ten labels, and some that are no images."""
    root = tmp_path / "photos"
    for number in range(N):
        label = root / f"label {number % 10}"
        label.mkdir(parents=True, exist_ok=True)
        (label / f"{number}.JPG").write_bytes(f"image {number}".encode())
    (root / "notes.txt").write_text("no image")
    (root / "alone.png").write_bytes(b"image alone")
    return root


def test_every_image_of_a_folder_is_there_with_its_label(
    folder: Path, server: BytesServer, connect: Callable[..., Either]
) -> None:
    result = connect(server).add_images("shop", folder)
    assert (result.n_added, result.n_done, result.failures) == (N + 1, N + 1, [])
    assert len(server.items) == N + 1
    assert server.labels["photos/label 7/17.JPG"] == "label 7"
    assert server.labels["photos/alone.png"] == ""


def test_a_source_may_name_ids_and_labels(
    folder: Path, server: BytesServer, connect: Callable[..., Either]
) -> None:
    path = folder / "label 7/17.JPG"
    source = [
        path,
        str(folder / "alone.png"),
        ("a", path),
        ("b", path, "c"),
        ("d", path, None),
        NewItem(b"image", id="e", label="f"),
    ]
    result = connect(server).add_images("shop", source)
    assert result.n_added == 6
    assert server.labels == {
        path.as_posix(): "label 7",
        (folder / "alone.png").as_posix(): "photos",
        "a": "label 7",
        "b": "c",
        "d": "",
        "e": "f",
    }


def test_a_broken_image_is_listed_with_the_reason_and_the_others_go_on(
    folder: Path, server: BytesServer, connect: Callable[..., Either]
) -> None:
    broken = folder / "label 3/13.JPG"
    broken.write_bytes(b"broken")
    result = connect(server).add_images("shop", folder)
    assert result.n_added == N
    (failure,) = result.failures
    assert (failure.id, failure.path) == ("photos/label 3/13.JPG", broken)
    assert (failure.kind, failure.reason) == ("not-an-image", "it is no image")


def test_an_image_that_spoils_its_request_is_found(
    folder: Path, server: BytesServer, connect: Callable[..., Either]
) -> None:
    """The server refuses the whole request for one id; the client finds which."""
    source: list[Any] = [(str(path), path) for path in sorted(folder.rglob("*.JPG"))]
    source = [(f"{i}", path) for i, (_, path) in enumerate(source)]
    source[57] = ("x" * 1025, source[57][1])
    result = connect(server).add_images("shop", source)
    assert result.n_added == N - 1
    assert [(one.id, one.kind) for one in result.failures] == [("x" * 1025, "invalid-request")]


def test_files_that_cannot_be_read_or_are_too_large_are_not_sent(
    tmp_path: Path, connect: Callable[..., Either]
) -> None:
    server = BytesServer(max_image_bytes=10)
    (tmp_path / "large.png").write_bytes(bytes(11))
    (tmp_path / "right.png").write_bytes(bytes(10))
    source = [tmp_path / name for name in ("gone.png", "large.png", "right.png")]
    result = connect(server).add_images("shop", source)
    assert result.n_added == 1
    assert {(one.path.name, one.kind) for one in result.failures if one.path} == {
        ("gone.png", "unreadable-file"),
        ("large.png", "image-too-large"),
    }
    assert "No such file" in next(one.reason for one in result.failures if one.kind == "unreadable-file")


def test_a_name_that_is_no_utf8_is_a_failure_of_one(
    tmp_path: Path, server: BytesServer, connect: Callable[..., Either]
) -> None:
    try:
        (tmp_path / os.fsdecode(b"gr\xf6\xdfe.png")).write_bytes(b"1")
    except OSError:
        pytest.skip("this disk takes UTF-8 names only")
    (tmp_path / "a.png").write_bytes(b"2")
    result = connect(server).add_images("shop", tmp_path)
    assert (result.n_added, [one.kind for one in result.failures]) == (1, ["invalid-request"])


def test_requests_are_bounded_in_bytes_and_number(connect: Callable[..., Either]) -> None:
    server = BytesServer(max_batch=7)
    source = [NewItem(bytes(3000) + str(i).encode(), id=str(i)) for i in range(60)]
    connect(server).add_images("shop", source, batch_bytes=20_000)
    sizes = [len(request) for request in server.requests]
    assert (sum(sizes), max(sizes)) == (60, 4)
    server.requests.clear()
    connect(server).add_images("shop", [NewItem(b"x", id=one.id) for one in source])
    assert max(len(request) for request in server.requests) == 7


def test_files_are_read_when_their_request_is_made(clock: Clock, server: BytesServer) -> None:
    """At no time more images are in memory than the requests under way hold, and one more."""
    loaded = released = most = 0

    class Counting(bytes):
        def __new__(cls, number: int) -> Counting:
            nonlocal loaded, most
            loaded += 1
            most = max(most, loaded - released)
            return super().__new__(cls, str(number).encode())

        def __del__(self) -> None:
            nonlocal released
            released += 1

    source = (NewItem(Counting(i), id=str(i)) for i in range(400))
    client = Client(transport=httpx.MockTransport(server), sleep=clock.sleep)
    assert client.add_images("shop", source, concurrency=2).n_added == 400
    assert most <= 4 * 32


def test_progress_is_told_after_each_request(
    folder: Path, server: BytesServer, connect: Callable[..., Either]
) -> None:
    seen: list[UploadProgress] = []
    connect(server).add_images("shop", folder, on_progress=seen.append)
    assert [one.total for one in seen] == [N + 1] * 4
    assert [one.n_done for one in seen] == sorted(one.n_done for one in seen)
    assert (seen[-1].n_done, seen[-1].n_failed) == (N + 1, 0)


def test_an_answer_that_was_lost_is_no_second_item(connect: Callable[..., Either]) -> None:
    """The server did it and died before it said so."""
    server = BytesServer()
    lost = 0

    def lose_the_first(request: httpx.Request) -> httpx.Response:
        nonlocal lost
        answer = server(request)
        if request.method == "POST" and lost < 2:
            lost += 1
            raise httpx.ReadError("reset", request=request)
        return answer

    source = [NewItem(str(i).encode(), id=str(i)) for i in range(50)]
    result = connect(lose_the_first).add_images("shop", source, concurrency=2)
    assert (result.n_done, result.failures, len(server.items)) == (50, [], 50)
    assert result.n_unchanged > 0


def test_a_server_that_stays_away_stops_it_and_it_says_how_far_it_came(
    folder: Path, server: BytesServer, connect: Callable[..., Either], clock: Clock
) -> None:
    server.faults = [None, *[httpx.ConnectError("refused")] * 1000]
    with pytest.raises(UploadStoppedError, match="stopped after 32 images: no answer") as stopped:
        connect(server).add_images("shop", folder, concurrency=1, patience=60.0)
    assert (stopped.value.result.n_added, clock.now <= 60.0) == (32, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, "unauthorized"),
        (403, "forbidden"),
        (404, "gallery-not-found"),
        (507, "storage-failed"),
        (409, "bundle-mismatch"),
        (429, "too-many-requests"),
    ],
)
def test_what_no_image_can_pass_stops_it(
    status: int, kind: str, folder: Path, server: BytesServer, connect: Callable[..., Either]
) -> None:
    server.faults = [problem(status, kind, "no further") for _ in range(1000)]
    with pytest.raises(UploadStoppedError, match="stopped after 0 images: no further"):
        connect(server).add_images("shop", folder, patience=1.0)
    assert 1000 - len(server.faults) <= 6


def test_a_proxy_that_takes_smaller_requests_gets_them(folder: Path, connect: Callable[..., Either]) -> None:
    server = BytesServer()

    def limited(request: httpx.Request) -> httpx.Response:
        is_large = len(request.read()) > 5000
        return httpx.Response(413, text="a page") if is_large else server(request)

    result = connect(limited).add_images("shop", folder)
    assert (result.n_added, result.failures) == (N + 1, [])


def test_files_of_a_folder_are_those_that_are_indexed() -> None:
    assert image_suffixes() <= uploads._SUFFIXES
    assert hidden_files._NAMES == uploads._HIDDEN


@pytest.mark.slow
@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(0, 3000), max_size=40),
    faults=st.lists(st.sampled_from(["ok", "lost", "refused", "busy", "bad gateway"]), max_size=30),
    concurrency=st.integers(1, 4),
    batch_bytes=st.integers(1, 20_000),
)
def test_whatever_happens_every_image_is_there_once_or_listed(
    sizes: list[int], faults: list[str], concurrency: int, batch_bytes: int
) -> None:
    server, clock = BytesServer(max_batch=5), Clock()
    source = [
        NewItem((b"broken" if n % 7 == 3 else b"i%d " % i) + bytes(n), id=str(i)) for i, n in enumerate(sizes)
    ]

    def faulty(request: httpx.Request) -> httpx.Response:
        fault = faults.pop() if faults else "ok"
        if fault == "refused":
            raise httpx.ConnectError("refused", request=request)
        if fault == "busy":
            return problem(503, "gallery-busy")
        if fault == "bad gateway":
            return httpx.Response(502, text="no")
        answer = server(request)
        if fault == "lost":
            raise httpx.RemoteProtocolError("closed", request=request)
        return answer

    client = Client(
        transport=httpx.MockTransport(faulty),
        sleep=clock.sleep,
        retries=Retries(clock=clock, attempts=None, seconds=1e9),
    )
    result = client.add_images("shop", source, concurrency=concurrency, batch_bytes=batch_bytes, patience=1e9)
    broken = {str(i) for i, n in enumerate(sizes) if n % 7 == 3}
    assert {one.id for one in result.failures} == broken
    assert set(server.items) == {str(i) for i in range(len(sizes))} - broken
    assert result.n_done == len(sizes)


class EmbeddingsServer:
    """Takes embeddings as JSON, at most 10 of them, and none that begins with 0."""

    def __init__(self) -> None:
        self.there: dict[str, list[float]] = {}
        self.sizes: list[int] = []
        self.spaces: set[str] = set()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/readyz":
            return httpx.Response(200, json=BytesServer(max_embeddings=10)._readiness())
        body = json.loads(request.read())
        self.spaces.add(body["space"])
        self.sizes.append(len(body["items"]))
        sent = [{"place": i, "id": one["id"], "filename": None} for i, one in enumerate(body["items"])]
        taken = [bool(one["embedding"][0]) for one in body["items"]]
        self.there |= {
            one["id"]: one["embedding"]
            for one, is_taken in zip(body["items"], taken, strict=True)
            if is_taken
        }
        why = {"type": f"{PROBLEM}invalid-embedding", "reason": "it is zero"}
        refused = [one | why for one, is_taken in zip(sent, taken, strict=True) if not is_taken]
        if len(refused) == len(sent):
            return (
                problem(422, "nothing-added", errors=refused)
                if len(sent) > 1
                else problem(422, "invalid-embedding")
            )
        added = [one | {"replaced": False} for one, is_taken in zip(sent, taken, strict=True) if is_taken]
        rest = {"unchanged": [], "skipped": [], "n_items": len(self.there), "revision": 1}
        return httpx.Response(200, json={"added": added, "refused": refused, **rest})


def test_embeddings_are_uploaded_in_requests_that_the_server_takes(connect: Callable[..., Either]) -> None:
    server, vectors = EmbeddingsServer(), np.random.default_rng(0).normal(size=(95, 8))
    items = (NewEmbedding(str(i), vector, label="a") for i, vector in enumerate(vectors))
    result = connect(server).add_embeddings("clips", items, space="clip")
    assert (result.n_added, result.failures, server.spaces) == (95, [], {"clip"})
    assert (max(server.sizes), sum(server.sizes)) == (10, 95)
    assert server.there["7"] == vectors[7].tolist()


def test_an_embedding_that_cannot_be_used_is_a_failure_of_one(connect: Callable[..., Either]) -> None:
    server = EmbeddingsServer()
    vectors = {
        "a": [1.0, 2.0],
        "b": [0.0, 0.0],
        "c": [float("nan"), 1.0],
        "d": [float("inf"), 1.0],
        "e": [3.0, 1.0],
    }
    items = [NewEmbedding(name, vector) for name, vector in vectors.items()]
    result = connect(server).add_embeddings("clips", items, space="clip")
    assert sorted(server.there) == ["a", "e"]
    assert {one.id: one.kind for one in result.failures} == dict.fromkeys("bcd", "invalid-embedding")
