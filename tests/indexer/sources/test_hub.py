"""Data sets of the hub: through its own library, from a stand-in of its server on this machine."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.hub_server import put_dataset, refuses
from tests.indexer.pictures import picture
from tests.web_server import WebServer, serving
from vicinal.indexer.errors import SourceError
from vicinal.indexer.sources import ANYWHERE, HubDataset, SourceAccess, SourceOptions, read_file, read_source
from vicinal.models.decoding import DecodeLimits

pytest.importorskip("huggingface_hub")
NAME = "shop/toys"


def parquet(first: int, n: int = 2) -> bytes:
    stream = io.BytesIO()
    images = [{"bytes": picture(i), "path": None} for i in range(first, first + n)]
    pq.write_table(pa.table({"image": images, "label": ["shoe"] * n}), stream)
    return stream.getvalue()


@pytest.fixture(scope="module")
def running() -> Iterator[WebServer]:
    with serving() as server:
        yield server


@pytest.fixture
def hub(running: WebServer, monkeypatch: pytest.MonkeyPatch) -> WebServer:
    running.answers.clear()
    running.asked.clear()
    monkeypatch.setenv("HF_ENDPOINT", running.url(""))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    return running


@pytest.fixture
def options(tmp_path: Path) -> SourceOptions:
    return SourceOptions(None, "auto", access=SourceAccess(public_only=False, hub=tmp_path / "hub"))


FILES = {
    "data/train-1.parquet": parquet(2),
    "data/train-0.parquet": parquet(0),
    "data/test-0.parquet": parquet(4),
    "README.md": b"words",
}


def test_all_parquet_files_of_a_data_set_are_read_in_order(hub: WebServer, options: SourceOptions) -> None:
    put_dataset(hub, NAME, FILES)
    items = read_source("hf:shop/toys", options)
    assert [item.id for item in items] == [
        f"toys/data/{part}:{row}" for part in ("test-0", "train-0", "train-1") for row in (0, 1)
    ]
    assert [read_file(item.path, DecodeLimits()) for item in items] == [
        picture(i) for i in (4, 5, 0, 1, 2, 3)
    ]
    assert {item.label for item in items} == {"shoe"}
    assert not any("README" in one for one in hub.asked)


@pytest.mark.parametrize("revision", ["v1", "refs/convert/parquet"])
def test_a_revision_is_read_where_it_is_named(hub: WebServer, options: SourceOptions, revision: str) -> None:
    put_dataset(hub, NAME, FILES)
    put_dataset(hub, NAME, {"default/0.parquet": parquet(9, 1)}, revision)
    items = read_source(f"hf:shop/toys@{revision}/default/", options)
    assert [read_file(item.path, DecodeLimits()) for item in items] == [picture(9)]


def test_what_is_here_is_not_downloaded_again(hub: WebServer, options: SourceOptions) -> None:
    put_dataset(hub, NAME, FILES)
    first = read_source("hf:shop/toys", options)
    hub.asked.clear()
    assert read_source("hf:shop/toys", options) == first
    assert [one.partition("?")[0] for one in hub.asked] == ["/api/datasets/shop/toys"]


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("gated", "data set 'hf:shop/toys' is gated: ask for it on its page of the hub"),
        ("missing", "the hub has no data set 'hf:shop/toys', or it is private"),
        ("private", "the hub has no data set 'hf:shop/toys', or it is private: give your token by HF_TOKEN"),
    ],
)
def test_what_the_hub_refuses_is_one_sentence(
    hub: WebServer, options: SourceOptions, how: str, sentence: str
) -> None:
    refuses(hub, NAME, how)
    with pytest.raises(SourceError, match=sentence) as found:
        read_source("hf:shop/toys", options)
    assert "\n" not in str(found.value)


@pytest.mark.slow
def test_without_a_network_it_says_so_at_once(
    monkeypatch: pytest.MonkeyPatch, options: SourceOptions
) -> None:
    with serving() as gone:
        monkeypatch.setenv("HF_ENDPOINT", gone.url(""))
    began = time.monotonic()
    with pytest.raises(SourceError, match=r"'hf:shop/toys' cannot be read from the hub: .*Connect") as found:
        read_source("hf:shop/toys", options)
    # The hub's client by itself tries for half a minute.
    assert time.monotonic() - began < 25
    assert "\n" not in str(found.value)


def test_what_needs_a_token_is_read_for_nobody_else(
    hub: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who runs the program has one, whom it answers has not."""
    put_dataset(hub, NAME, FILES)
    sent: list[str | None] = []
    answer = hub.answers["/api/datasets/shop/toys"]
    monkeypatch.setenv("HF_TOKEN", "hf_secret")

    def noting(request: object) -> None:
        sent.append(request.headers.get("Authorization"))  # type: ignore[attr-defined]
        answer(request)  # type: ignore[arg-type]

    hub.answers["/api/datasets/shop/toys"] = noting
    for access in (ANYWHERE, SourceAccess()):
        HubDataset.at("hf:shop/toys").fetch(
            SourceAccess(public_only=access.public_only, hub=tmp_path / "hub")
        )
    assert sent == ["Bearer hf_secret", None]


@pytest.mark.parametrize(
    "address", ["hf:", "hf:toys", "hf:shop/toys@", "hf:shop/to ys", "hf:../../etc", "hf:a/b@c@d"]
)
def test_what_names_no_data_set_is_refused(address: str) -> None:
    with pytest.raises(SourceError, match="names no data set of the hub: give hf:owner/name"):
        read_source(address)
