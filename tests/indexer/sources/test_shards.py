"""Shards: images of `.tar` archives become items with what stands beside them, and damage is one sentence."""

from __future__ import annotations

import io
import json
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.indexer.pictures import picture
from vicinal.indexer.errors import SourceError
from vicinal.indexer.sources import (
    Source,
    SourceItem,
    SourceOptions,
    TarMember,
    read_file,
    read_source,
)
from vicinal.models.decoding import DecodeLimits

LIMITS = DecodeLimits(max_bytes=10_000)


def shard(path: Path, files: dict[str, bytes | str | dict[str, object]]) -> Path:
    """An archive with files of bytes, texts and JSON."""
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            text = json.dumps(content) if isinstance(content, dict) else content
            body = text.encode() if isinstance(text, str) else text
            info = tarfile.TarInfo(name)
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    return path


def labels(path: Path, **options: str) -> dict[str, str | None]:
    return {item.id: item.label for item in read_source(path, SourceOptions(**options))}


def test_an_image_has_what_stands_beside_it(tmp_path: Path) -> None:
    path = shard(
        tmp_path / "photos-000.tar",
        {
            "0001.png": picture(1),
            "0001.cls": "boots\n",
            "0001.json": {"price": 9.5, "brand": None, "shelf": "a"},
            "0001.txt": "a red boot",
            "0002.cls": "hats",
            "0002.png": picture(2),
            "notes.md": "words",
        },
    )
    source = Source.open(path)
    metadata = {"price": 9.5, "shelf": "a", "text": "a red boot"}
    assert source.items == [
        SourceItem("photos-000/0001.png", TarMember(path, "0001.png"), "boots", metadata),
        SourceItem("photos-000/0002.png", TarMember(path, "0002.png"), "hats", {}),
    ]
    assert source.files.others == {".md": 1}
    assert [read_file(item.path, LIMITS) for item in source.items] == [picture(1), picture(2)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"a/milk/1.png": "dairy", "a/bread/1.png": "bakery"}),
        ({"label_from": "column", "label_column": "aisle"}, {"a/milk/1.png": "3", "a/bread/1.png": "4"}),
        ({"label_from": "folder"}, {"a/milk/1.png": "milk", "a/bread/1.png": "bread"}),
        ({"label_from": "regex:^(m)"}, {"a/milk/1.png": "m", "a/bread/1.png": None}),
        ({"label_from": "none"}, {"a/milk/1.png": None, "a/bread/1.png": None}),
        ({"id_column": "sku"}, {"007": "dairy", "7": "bakery"}),
        ({"id_column": "sku", "prefix": "shop"}, {"shop/007": "dairy", "shop/7": "bakery"}),
    ],
)
def test_ids_and_labels_come_from_where_the_options_say(
    tmp_path: Path, options: dict[str, str], expected: dict[str, str | None]
) -> None:
    milk = {"label": "dairy", "aisle": 3, "sku": "007"}
    bread = {"label": "bakery", "aisle": 4, "sku": 7}
    files = {
        "milk/1.png": picture(1),
        "milk/1.json": milk,
        "bread/1.png": picture(2),
        "bread/1.json": bread,
    }
    assert labels(shard(tmp_path / "a.tar", files), **options) == expected


@pytest.mark.parametrize(
    ("name", "beside", "sentence"),
    [
        ("1.json", "{", "'1.json' beside it cannot be read"),
        ("1.json", "[1]", "'1.json' beside it is no JSON object"),
        ("1.json", "[" * 100_000, "'1.json' beside it cannot be read"),
        ("1.cls", b"\xff\xfea", "'1.cls' beside it cannot be read"),
        ("1.txt", bytes(2**21), "'1.txt' beside it has 2,097,152 bytes: no few words"),
        ("1.json", {"a\0": 1, "b": "\0"}, "hold the character NUL"),
    ],
)
def test_a_bad_file_beside_an_image_takes_that_image_alone(
    tmp_path: Path, name: str, beside: bytes | str | dict[str, object], sentence: str
) -> None:
    files = {
        "0.png": picture(),
        "0.cls": "hats",
        "1.png": picture(),
        name: beside,
        "2.png": picture(),
    }
    first, bad, last = read_source(shard(tmp_path / "a.tar", files))
    assert (first.label, first.problem, last.problem) == ("hats", None, None)
    assert sentence in str(bad.problem)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:20_000])


def struck(path: Path) -> None:
    """Damage the head of the second file."""
    content = bytearray(path.read_bytes())
    content[1024:1536] = b"?" * 512
    path.write_bytes(content)


@pytest.mark.parametrize("again", ["a/1.png", "./a/1.png", "a/1.cls", "a/1.json"])
def test_a_name_that_stands_twice_in_a_shard_is_refused_with_what_to_do(tmp_path: Path, again: str) -> None:
    path = shard(tmp_path / "a.tar", {"a/1.png": picture(1), "a/1.cls": "x", "a/1.json": {"n": 1}})
    with tarfile.open(path, "a") as archive:
        archive.addfile(tarfile.TarInfo(again))
    with pytest.raises(SourceError, match=rf"'a.tar' holds '{again.removeprefix('./')}' twice.*write"):
        read_source(path)


def test_what_nobody_reads_may_stand_twice_in_a_shard(tmp_path: Path) -> None:
    path = shard(tmp_path / "a.tar", {"1.png": picture(1), "notes.md": "a"})
    with tarfile.open(path, "a") as archive:
        archive.addfile(tarfile.TarInfo("notes.md"))
    assert labels(path) == {"a/1.png": None}


@pytest.mark.parametrize("damage", [cut, struck])
def test_of_a_damaged_archive_what_comes_before_is_read_and_the_rest_is_named(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    damage(path := shard(tmp_path / "a.tar", {"1.png": picture(), "2.png": bytes(50_000), "3.png": b"x"}))
    source = Source.open(path)
    assert ([item.id for item in source.items], [*source.files.unread]) == (["a/1.png"], ["a.tar"])
    with pytest.raises(SourceError, match="nothing was deleted"):
        source.require_whole()


@pytest.mark.parametrize("content", [None, b"", b"words", b"\x1f\x8b" + bytes(600)])
def test_a_shard_that_cannot_be_read_takes_no_other_with_it(tmp_path: Path, content: bytes | None) -> None:
    for number in (0, 2):
        shard(tmp_path / f"a-{number}.tar", {"1.png": picture()})
    if content is not None:
        (tmp_path / "a-1.tar").write_bytes(content)
    source = Source.open(tmp_path / "a-{0..2}.tar")
    assert [item.id for item in source.items] == ["a-0/1.png", "a-2/1.png"]
    assert "cannot be read" in source.files.unread["a-1.tar"]
    assert source.files.unreadable == ["a-1.tar"]


def test_links_out_of_an_archive_lead_nowhere(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, kind in (("1.png", tarfile.SYMTYPE), ("2.png", tarfile.LNKTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    with pytest.raises(SourceError, match="holds no images"):
        read_source(tmp_path / "a.tar")


def test_a_large_archive_does_not_lie_in_memory(tmp_path: Path) -> None:
    path = shard(tmp_path / "a.tar", {f"{number}.png": bytes(200_000) for number in range(100)})
    tracemalloc.start()
    items = read_source(path)
    read_file(items[50].path, DecodeLimits())
    assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        # Names with dots: dates, versions, sizes.
        (
            {"22.05.cls": "boots", "22.06.cls": "hats"},
            {"22.05.png": "boots", "22.06.png": "hats"},
        ),
        ({"22.06.cls": "hats"}, {"22.05.png": None, "22.06.png": "hats"}),
        ({"22.07.cls": "hats"}, {"22.05.png": None, "22.06.png": None}),
        ({"v1.2.3.cls": "boots", "v1.2.cls": "hats"}, {"v1.2.3.png": "boots", "v1.2.png": "hats"}),
        ({"a.b/1.cls": "boots", "a.c/1.cls": "hats"}, {"a.b/1.png": "boots", "a.c/1.png": "hats"}),
        # Several images of a sample have what is said of all, or what is said of each.
        ({"1.cls": "boots"}, {"1.left.png": "boots", "1.right.png": "boots"}),
        (
            {"1.cls": "boots", "1.right.cls": "hats"},
            {"1.left.png": "boots", "1.right.png": "hats"},
        ),
        ({"1.label.cls": "boots", "2.label.cls": "hats"}, {"1.png": "boots", "2.png": "hats"}),
        ({"1.png.cls": "boots", "2.png.cls": "hats"}, {"1.png": "boots", "2.png": "hats"}),
        ({".cls": "boots"}, {"1.png": None}),
    ],
)
def test_what_stands_beside_an_image_has_most_of_its_name(
    tmp_path: Path, texts: dict[str, str], expected: dict[str, str | None]
) -> None:
    images = {name: picture(number) for number, name in enumerate(expected)}
    files = {**texts, **images}
    found = {
        key.removeprefix("a/"): label
        for key, label in labels(shard(tmp_path / "a.tar", files), label_from="auto").items()
    }
    assert found == expected


@pytest.mark.parametrize("pattern", ["a-{0..1000000000}.tar", "a-{000..100000}.tar"])
def test_a_pattern_of_too_many_shards_is_refused_unexpanded(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(SourceError, match=r"stands for [\d,]+ archives: name 100,000 at most"):
        Source.open(tmp_path / pattern)
