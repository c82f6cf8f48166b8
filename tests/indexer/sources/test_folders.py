"""Folders become the same list of items every time, and nothing in them is passed over silently."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.indexer.pictures import write_picture
from vicinal.indexer import SourceItem, read_source
from vicinal.indexer.errors import SourceError
from vicinal.indexer.sources import Source, SourceOptions
from vicinal.indexer.sources.folders import FolderFiles
from vicinal.models.decoding import image_suffixes
from vicinal.service.words import look_lines


def _only(items: list[SourceItem]) -> SourceItem:
    (item,) = items
    return item


def test_class_folders_give_labels_and_paths_inside_the_folder_as_ids(tmp_path: Path) -> None:
    boot, sandal = write_picture(tmp_path / "boots/1.jpg"), write_picture(tmp_path / "sandals/1.png")
    expected = [
        SourceItem("boots/1.jpg", boot, "boots"),
        SourceItem("sandals/1.png", sandal, "sandals"),
    ]
    assert read_source(tmp_path) == expected


@pytest.mark.parametrize("suffix", sorted(image_suffixes()))
def test_suffix_counts_in_both_cases(tmp_path: Path, suffix: str) -> None:
    write_picture(tmp_path / f"a{suffix}").rename(tmp_path / f"b{suffix.upper()}")
    assert _only(read_source(tmp_path)).id == f"b{suffix.upper()}"


def test_what_cannot_be_looked_at_takes_nothing_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system may fail with any error at any entry: a stale handle, a loop, a refusal."""

    class Entry:
        def __init__(self, entry: os.DirEntry[str]) -> None:
            self._entry, self.name = entry, entry.name

        def __getattr__(self, name: str) -> object:
            if "stale" in self.name:
                raise OSError(errno.ESTALE, "Stale file handle")
            return getattr(self._entry, name)

    class Listing:
        def __init__(self, path: Path) -> None:
            self._entries = scandir(path)

        def __enter__(self) -> Iterator[Entry]:
            return map(Entry, self._entries)

        def __exit__(self, *_: object) -> None:
            self._entries.close()

    scandir = os.scandir
    for name in ("a/1.png", "a/stale.png", "a/stale", "a/b/2.png", "stale/3.png", "c/4.png"):
        write_picture(tmp_path / name) if name.endswith("png") else (tmp_path / name).touch()
    monkeypatch.setattr(os, "scandir", Listing)
    source = Source.open(tmp_path)
    assert [item.id for item in source.items] == ["a/1.png", "a/b/2.png", "a/stale.png", "c/4.png"]
    assert source.files.others == {"": 2}


@pytest.mark.parametrize("name", [b"caf\xe9.png", b"na\xefve/1.png", b"a\nb.png", b"a\x1bb/1.png", b"x.\xff"])
def test_names_that_cannot_be_kept_are_named_in_a_form_that_can_be_printed(
    tmp_path: Path, name: bytes
) -> None:
    write_picture(tmp_path / "good/1.png")
    odd = write_picture(tmp_path / "x.png").rename(tmp_path / "y.png")
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    path.parent.mkdir(exist_ok=True)
    odd.rename(path)
    source = Source.open(tmp_path)
    assert [item.id for item in source.items if item.problem is None] == ["good/1.png"]
    look = source.look()
    assert (look.n_items, look.n_labels) == (1, 1)
    assert all(line.isprintable() and line.encode() for line in look_lines(look))


def test_a_folder_whose_own_name_is_not_utf8_is_refused_and_a_link_to_it_is_not(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/na\xefve"))
    write_picture(folder / "1.png")
    with pytest.raises(SourceError, match=r"na\\xefve' is not UTF-8.* give a link to it"):
        Source.open(folder)
    (tmp_path / "link").symlink_to(folder)
    assert [item.id for item in read_source(tmp_path / "link")] == ["1.png"]


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        (None, "photos/milk/1.png"),
        ("", "milk/1.png"),
        ("2024", "2024/milk/1.png"),
        ("a/b/", "a/b/milk/1.png"),
    ],
)
def test_the_folder_s_name_or_what_is_given_stands_before_the_ids(
    tmp_path: Path, prefix: str | None, expected: str
) -> None:
    write_picture(tmp_path / "photos" / "milk" / "1.png")
    options = SourceOptions(prefix)
    assert _only(read_source(tmp_path / "photos", options)).id == expected
    assert _only(read_source(tmp_path / "photos" / "milk" / "..", options)).id == expected


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (None, ["boots", "sandals", None]),
        ("auto", ["boots", "sandals", None]),
        ("folder", ["boots", "sandals", None]),
        ("none", [None] * 3),
        ("regex:([a-z]+)_", ["red", "blue", "red"]),
        ("regex:^boots/([a-z]*)", ["red", None, None]),
    ],
)
def test_labels_are_taken_from_where_the_rule_says(
    tmp_path: Path, rule: str | None, expected: list[str | None]
) -> None:
    for name in ("boots/red_1.png", "sandals/blue_1.png", "red_2.png"):
        write_picture(tmp_path / name)
    items = read_source(tmp_path, SourceOptions(label_from=rule))
    assert [item.label for item in sorted(items, key=lambda one: "/" not in one.id)] == expected


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ("regex:/[0-9]/", "has 0 groups, expected one"),
        ("regex:(a)(b)", "has 2 groups, expected one"),
        ("regex:(a", "is no regular expression"),
        ("regex:(blue)", "'regex:\\(blue\\)' matches no path, such as 'red/1.png'"),
        ("column", "a folder has no columns"),
        ("given", "labels cannot be taken from 'given'"),
        ("regex", "labels cannot be taken from 'regex': take auto, folder, none, column or regex:PATTERN"),
    ],
)
def test_labels_that_cannot_be_taken_are_refused(tmp_path: Path, rule: str, sentence: str) -> None:
    write_picture(tmp_path / "red" / "1.png")
    with pytest.raises(SourceError, match=sentence):
        read_source(tmp_path, SourceOptions(label_from=rule))


@pytest.mark.parametrize(
    "folders",
    [
        ("2019", "2020"),
        ("2021-05", "2021-06 Rome"),
        ("20210503", "2021.06.11"),
        ("100CANON", "DCIM"),
        ("IMG", "101_0320", "shoes"),
        ("everything",),
    ],
)
def test_albums_become_no_labels_unasked(tmp_path: Path, folders: tuple[str, ...]) -> None:
    for name in folders:
        write_picture(tmp_path / name / "1.png")
    auto = Source.open(tmp_path, SourceOptions(label_from="auto"))
    assert {item.label for item in auto.items} == {None}
    assert "--label-from folder" in (auto.remark or "")
    asked = Source.open(tmp_path, SourceOptions(label_from="folder"))
    assert ({item.label for item in asked.items}, asked.remark) == ({*folders}, None)


@pytest.mark.parametrize(
    "folders",
    [
        ("boots", "sandals"),
        ("2019", "boots", "sandals"),
        ("001.Albatross", "002.Auklet"),
        ("01", "02", "1850"),
        ("2012 Ford Fiesta", "2011 BMW M3"),
        ("11234", "20991"),
        ("imagery", "image gear"),
    ],
)
def test_classes_become_labels_unasked(tmp_path: Path, folders: tuple[str, ...]) -> None:
    """Negative control of the albums."""
    for name in folders:
        write_picture(tmp_path / name / "1.png")
    auto = Source.open(tmp_path, SourceOptions(label_from="auto"))
    assert ({item.label for item in auto.items}, auto.remark) == ({*folders}, None)


HIDDEN = [
    ".Trash-1000/files/1.png",
    ".Trashes/501/1.png",
    "$RECYCLE.BIN/S-1-5-21/$R1.png",
    "$Recycle.Bin/1.png",
    "System Volume Information/1.png",
    "boots/@eaDir/1.png/SYNOPHOTO_THUMB_M.jpg",
    "#recycle/boots/1.png",
    "#snapshot/daily/boots/1.png",
    ".snapshot/hourly.0/boots/1.png",
    "@Recently-Snapshot/boots/1.png",
    "@Recycle/1.png",
    "~snapshot/1.png",
    "boots/.@__thumb/default1.png",
    "__MACOSX/boots/._1.png",
    "boots/.AppleDouble/1.png",
    "boots/._1.png",
    ".thumbnails/normal/0a.png",
    "lost+found/#12.png",
    "boots/.hidden.png",
    ".trashed-1700000000-1.png",
    ".git/1.png",
    "admin/files_trashbin/1.png",
]


@pytest.mark.parametrize("hidden", HIDDEN)
def test_bins_thumbnails_and_snapshots_are_passed_over_and_counted(tmp_path: Path, hidden: str) -> None:
    write_picture(tmp_path / "boots" / "1.png")
    write_picture(tmp_path / hidden)
    write_picture(tmp_path / "sandals" / "1.png")
    source = Source.open(tmp_path, SourceOptions(label_from="auto"))
    assert {item.id: item.label for item in source.items} == {
        "boots/1.png": "boots",
        "sandals/1.png": "sandals",
    }
    assert list(source.look().hidden.values()) == [1]
    assert source.look().other_files == {}
    asked = Source.open(tmp_path, SourceOptions(include_hidden=True))
    assert (hidden in {item.id for item in asked.items}, asked.files.hidden) == (True, {})


@pytest.mark.parametrize(
    "name",
    [
        "@home/1.png",
        "#1/1.png",
        "recycle/1.png",
        "Trash/1.png",
        "thumbnails/1.png",
        "boots/a.b/1.c/1.png",
        "snapshot/1.png",
        "_MACOSX/1.png",
        "thumbs.png",
    ],
)
def test_folders_of_a_person_are_read(tmp_path: Path, name: str) -> None:
    """Negative control of the hidden ones."""
    write_picture(tmp_path / name)
    assert _only(read_source(tmp_path)).id == name


def test_of_a_listed_folder_hidden_files_are_counted_once_a_folder() -> None:
    paths = [
        "a/1.png",
        "a/@eaDir/1.png/M.jpg",
        "a/@eaDir/2.png/M.jpg",
        ".Trash/1.png",
        "a/Thumbs.db",
        "a/._1.png",
    ]
    files = FolderFiles.listed(paths)
    assert (files.images, files.others) == (["a/1.png"], {})
    assert files.hidden == {"@eaDir": 1, ".Trash": 1, "Thumbs.db": 1, "._*": 1}
    assert len(FolderFiles.listed(paths, include_hidden=True).images) == 5
