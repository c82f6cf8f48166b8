"""Buckets: listed as folders are, on a server of S3."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.indexer.pictures import picture
from tests.s3_server import serving_bucket
from vicinal.indexer.errors import DownloadError, SourceError
from vicinal.indexer.sources import ANYWHERE, RemoteFile, Source, SourceOptions, read_file, read_source
from vicinal.models.decoding import DecodeLimits
from vicinal.models.errors import ImageTooLargeError, NotAnImageError

pytestmark = pytest.mark.slow
LIMITS = DecodeLimits(max_bytes=10_000)


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A bucket that holds two photos of milk, one of bread, an empty and a vast file, and a note."""
    with serving_bucket() as (client, shop):
        for name in ("milk/1.png", "milk/größe 2 %.png", "bread/1.png", "note.txt"):
            client.put_object(Bucket=shop, Key=f"photos/{name}", Body=picture())
        client.put_object(Bucket=shop, Key="photos/bread/empty.png", Body=b"")
        client.put_object(Bucket=shop, Key="photos/milk/vast.png", Body=bytes(20_000))
        yield f"s3://{shop}"


@pytest.fixture
def items(bucket: str) -> dict[str, RemoteFile]:
    source = Source.open(f"{bucket}/photos/", SourceOptions(None, "auto", access=ANYWHERE))
    assert source.files.others == {".txt": 1}
    assert {item.label for item in source.items} == {"milk", "bread"}
    return {item.id: item.path for item in source.items if isinstance(item.path, RemoteFile)}


def test_a_bucket_is_listed_as_a_folder_is(bucket: str, items: dict[str, RemoteFile]) -> None:
    assert list(items) == [
        "photos/bread/1.png",
        "photos/bread/empty.png",
        "photos/milk/1.png",
        "photos/milk/größe 2 %.png",
        "photos/milk/vast.png",
    ]
    assert str(items["photos/milk/1.png"]) == f"{bucket}/photos/milk/1.png"
    assert items["photos/milk/1.png"].stat().st_size == len(picture())


def test_its_files_are_read(items: dict[str, RemoteFile]) -> None:
    for name in ("photos/milk/1.png", "photos/milk/größe 2 %.png"):
        assert read_file(items[name], LIMITS) == picture()


def test_files_that_cannot_be_used_are_refused(bucket: str, items: dict[str, RemoteFile]) -> None:
    with pytest.raises(ImageTooLargeError):
        read_file(items["photos/milk/vast.png"], LIMITS)
    with pytest.raises(ImageTooLargeError):
        RemoteFile(f"{bucket}/photos/milk/vast.png", ANYWHERE).read(LIMITS)
    with pytest.raises(NotAnImageError):
        read_file(items["photos/bread/empty.png"], LIMITS)
    with pytest.raises(DownloadError, match=r"gone.png' cannot be read: .*does not exist"):
        RemoteFile(f"{bucket}/photos/gone.png", ANYWHERE).read(LIMITS)


@pytest.mark.parametrize("address", ["s3://nobucket/photos", "{bucket}/nothing"])
def test_a_bucket_or_folder_that_is_not_there_is_one_sentence(bucket: str, address: str) -> None:
    address = address.format(bucket=bucket)
    with pytest.raises(SourceError, match=f"'{address}' cannot be listed"):
        read_source(address, SourceOptions(access=ANYWHERE))


def test_nobody_who_answers_for_the_bucket_is_one_sentence(
    bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(SourceError, match="cannot be listed"):
        read_source(f"{bucket}/photos", SourceOptions(access=ANYWHERE))
