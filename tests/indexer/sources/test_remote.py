"""Remote files: addresses of buckets become items, and reading them costs no more than allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from vicinal.indexer.errors import DownloadError, SourceError
from vicinal.indexer.sources import (
    ANYWHERE,
    PUBLIC,
    RemoteFile,
    Source,
    SourceOptions,
    file_at,
    open_source,
    read_file,
    read_source,
)
from vicinal.indexer.sources.archives import FileStat
from vicinal.models.decoding import DecodeLimits
from vicinal.models.errors import ImageTooLargeError

LIMITS = DecodeLimits(max_bytes=10_000)


@pytest.mark.parametrize("address", ["S3://b/1.jpg", "s3://b/1.jpg", "gs://b/1", "az://c/1"])
def test_an_address_is_no_path(tmp_path: Path, address: str) -> None:
    assert file_at(address, PUBLIC, tmp_path) == RemoteFile(address, PUBLIC)
    assert str(file_at(address, PUBLIC, tmp_path)) == address


@pytest.mark.parametrize("path", ["a/1.jpg", "/a/1.jpg", "c:/1.jpg", "s3:/b/1.jpg"])
def test_a_path_is_no_address(tmp_path: Path, path: str) -> None:
    """Negative control."""
    assert file_at(path, PUBLIC, tmp_path) == tmp_path / path


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("file:///etc/passwd", "is none of the addresses that are read, s3://"),
        ("HTTP://a.example/1.jpg", "fetch it with img2dataset, and index its shards"),
        ("https://a.example/1.jpg", "fetch it with img2dataset, and index its shards"),
    ],
)
def test_a_row_with_another_address_fails_alone(tmp_path: Path, address: str, reason: str) -> None:
    manifest = tmp_path / "items.csv"
    manifest.write_text(f"path\n{address}\n1.jpg\n", encoding="utf-8")
    bad, good = read_source(manifest)
    assert (bad.id, good.problem) == (address, None)
    assert reason in str(bad.problem)


@pytest.mark.parametrize("scheme", ["postgres", "milvus"])
def test_a_table_of_a_database_is_refused_without_its_password(scheme: str) -> None:
    with pytest.raises(SourceError, match="export this one to") as caught:
        open_source(f"{scheme}://me:secret@db.example.com/shop?table=photos")
    assert "secret" not in str(caught.value)


def test_rows_of_a_manifest_may_be_addresses(tmp_path: Path) -> None:
    manifest = tmp_path / "items.csv"
    manifest.write_text("path,label\ns3://b/x/1.jpg,boots\n1.jpg,hats\n", encoding="utf-8")
    items = read_source(manifest)
    assert [item.id for item in items] == ["s3://b/x/1.jpg", "1.jpg"]
    assert [item.path for item in items] == [RemoteFile("s3://b/x/1.jpg"), tmp_path / "1.jpg"]
    assert Source.open(manifest).look().n_missing == 1


def test_who_says_nothing_else_reads_no_bucket(tmp_path: Path) -> None:
    manifest = tmp_path / "items.csv"
    manifest.write_text("path\ns3://bucket/1.jpg\n", encoding="utf-8")
    (item,) = read_source(manifest)
    with pytest.raises(DownloadError, match="must not be read"):
        read_file(item.path, LIMITS)


def test_a_bucket_is_listed_for_nobody_but_the_owner() -> None:
    with pytest.raises(SourceError, match="must not be read"):
        read_source("s3://bucket/photos")


@pytest.mark.parametrize(
    ("address", "reason"),
    [("https://a.example/photos", "img2dataset"), ("ftp://a.example/photos", "s3://, gs://, az://")],
)
def test_what_is_no_bucket_cannot_be_listed(address: str, reason: str) -> None:
    with pytest.raises(SourceError, match=reason):
        read_source(address, SourceOptions(access=ANYWHERE))


def test_a_file_that_is_listed_as_too_large_is_not_asked_for() -> None:
    """Nobody answers at that address."""
    vast = RemoteFile("s3://nowhere/1.jpg", ANYWHERE, FileStat(10 * 2**30, 0))
    with pytest.raises(ImageTooLargeError):
        vast.read(LIMITS)
