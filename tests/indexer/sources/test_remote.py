"""Remote files: addresses become items, and reading them costs no more than allowed."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from tests.web_server import WebServer, sends, serving
from vicinal.indexer.errors import DownloadError, SourceError
from vicinal.indexer.sources import (
    ANYWHERE,
    PUBLIC,
    RemoteFile,
    Source,
    SourceOptions,
    file_at,
    read_file,
    read_source,
)
from vicinal.indexer.sources.archives import FileStat
from vicinal.models.decoding import DecodeLimits
from vicinal.models.errors import ImageTooLargeError

LIMITS = DecodeLimits(max_bytes=10_000)


def picture() -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (16, 16), "teal").save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.parametrize(
    "address", ["https://a.example/1.jpg", "HTTP://a.example/1", "s3://b/1.jpg", "gs://b/1", "az://c/1"]
)
def test_an_address_is_no_path(tmp_path: Path, address: str) -> None:
    assert file_at(address, PUBLIC, tmp_path) == RemoteFile(address, PUBLIC)
    assert str(file_at(address, PUBLIC, tmp_path)) == address


@pytest.mark.parametrize("path", ["a/1.jpg", "/a/1.jpg", "c:/1.jpg", "s3:/b/1.jpg"])
def test_a_path_is_no_address(tmp_path: Path, path: str) -> None:
    """Negative control."""
    assert file_at(path, PUBLIC, tmp_path) == tmp_path / path


@pytest.mark.parametrize("address", ["ftp://a.example/1.jpg", "file:///etc/passwd", "data://x"])
def test_a_row_with_another_address_fails_alone(tmp_path: Path, address: str) -> None:
    manifest = tmp_path / "items.csv"
    manifest.write_text(f"path\n{address}\n1.jpg\n", encoding="utf-8")
    bad, good = read_source(manifest)
    assert (bad.id, good.problem) == (address, None)
    assert "is none of the addresses that are read, http://" in str(bad.problem)


def test_rows_of_a_manifest_may_be_addresses(tmp_path: Path) -> None:
    manifest = tmp_path / "items.csv"
    manifest.write_text("path,label\nhttps://a.example/x/1.jpg,boots\n1.jpg,hats\n", encoding="utf-8")
    items = read_source(manifest)
    assert [item.id for item in items] == ["https://a.example/x/1.jpg", "1.jpg"]
    assert [item.path for item in items] == [RemoteFile("https://a.example/x/1.jpg"), tmp_path / "1.jpg"]
    assert Source.open(manifest).look().n_missing == 1


def test_who_says_nothing_else_reads_public_addresses_only(tmp_path: Path) -> None:
    manifest = tmp_path / "items.csv"
    manifest.write_text("path\nhttp://127.0.0.1:80/1.jpg\ns3://bucket/1.jpg\n", encoding="utf-8")
    for item, why in zip(read_source(manifest), ("not on the public", "only addresses of http"), strict=True):
        with pytest.raises(DownloadError, match=why):
            read_file(item.path, LIMITS)


def test_a_bucket_is_listed_for_nobody_but_the_owner() -> None:
    with pytest.raises(SourceError, match="must not be read"):
        read_source("s3://bucket/photos")


@pytest.mark.parametrize("address", ["https://a.example/photos", "ftp://a.example/photos"])
def test_what_cannot_be_listed_is_one_sentence(address: str) -> None:
    with pytest.raises(SourceError, match=r"cannot be listed: give a bucket \(s3://, gs://, az://\)"):
        read_source(address, SourceOptions(access=ANYWHERE))


def test_what_nobody_listed_has_no_size() -> None:
    with pytest.raises(OSError, match="nobody listed"):
        RemoteFile("https://a.example/1.jpg").stat()
    assert RemoteFile("s3://b/1.jpg", listed=FileStat(7, 8)).stat().st_size == 7


def test_a_file_that_is_listed_as_too_large_is_not_asked_for() -> None:
    """Nobody answers at that address."""
    vast = RemoteFile("s3://nowhere/1.jpg", ANYWHERE, FileStat(10 * 2**30, 0))
    with pytest.raises(ImageTooLargeError):
        vast.read(LIMITS)


def test_a_bucket_of_azure_needs_an_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT", raising=False)
    with pytest.raises(SourceError, match="AZURE_STORAGE_ACCOUNT does not name the account"):
        read_source("az://container/photos", SourceOptions(access=ANYWHERE))


def test_it_opens_as_a_path_does(web: WebServer) -> None:
    web.answers["/1.png"] = sends(picture())
    file = RemoteFile(web.url("/1.png"), ANYWHERE)
    assert file.open("rb").read() == read_file(file, LIMITS) == picture()
    assert file.is_absolute()


@pytest.fixture(scope="module")
def web() -> Iterator[WebServer]:
    with serving() as server:
        yield server
