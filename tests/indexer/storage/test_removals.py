"""Removals: what is remembered is read again whole, in order, or not at all."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from vicinal.indexer.errors import GalleryError
from vicinal.indexer.storage import removals as module
from vicinal.indexer.storage.files import broken_files
from vicinal.indexer.storage.removals import REMEMBERED_COLUMNS, Removal, Removals


@pytest.fixture
def removals(tmp_path: Path) -> Removals:
    return Removals(tmp_path / "removed")


def digest(content: int) -> bytes:
    return content.to_bytes(32, "big")


def rows(*items: tuple[str, int], source: str | None = "/photos") -> pa.Table:
    kinds = (pa.string(), pa.binary(32), pa.string(), pa.string(), pa.int64(), pa.timestamp("us", tz="UTC"))
    values = [(name, digest(content), source, f"/photos/{name}", 7, 100) for name, content in items]
    columns = [pa.array(column, kind) for column, kind in zip(zip(*values, strict=True), kinds, strict=True)]
    return pa.table(dict(zip(REMEMBERED_COLUMNS, columns, strict=True)))


def test_what_was_removed_is_read_as_it_was(removals: Removals) -> None:
    removals.remember(rows(("a", 1)))
    assert list(removals.read().of_id("a")) == [
        Removal("a", digest(1), "/photos", "/photos/a", 7, 100, follows_content=True)
    ]


def test_what_the_source_dropped_is_forgotten_under_its_id_and_no_longer_followed_under_others(
    removals: Removals,
) -> None:
    removals.remember(rows(("a", 1), ("b", 1), ("c", 2)))
    removals.forget([("a", digest(1)), ("x", digest(9))])
    found = removals.read()
    assert [len(found.of_id(name)) for name in "abc"] == [0, 1, 1]
    assert found.moving("/photos", set()) == {7: {digest(2)}}


@pytest.mark.parametrize("most_files", [2, 64])
def test_what_was_removed_since_is_told_though_it_was_removed_before(
    removals: Removals, monkeypatch: pytest.MonkeyPatch, most_files: int
) -> None:
    monkeypatch.setattr(module, "_MOST_SMALL_FILES", most_files)
    removals.remember(rows(("a", 1), ("b", 2), ("c", 3)))
    before = removals.read()
    assert removals.read().but(before) == set()
    removals.remember(rows(("a", 1), ("b", 9)))
    removals.remember(rows(("d", 1)))
    assert removals.read().but(before) == {"a", "b", "d"}


def test_a_merge_that_was_cut_short_changes_nothing(
    removals: Removals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_SMALL_FILES", 3)
    removals.remember(rows(("a", 1), ("b", 2)))
    removals.forget([("a", digest(1))])
    removals.remember(rows(("a", 3)))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            removals.remember(rows(("c", 4)))
    for part in [None, *sorted(removals.folder.iterdir())[:-1]]:
        if part is not None:
            part.unlink()
        assert removals.read().contents() == {digest(2), digest(3), digest(4)}


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "another"])
def test_damage_is_refused_and_seen_by_the_check_of_files(removals: Removals, damage: str) -> None:
    removals.remember(rows(("a", 1)))
    (path,) = removals.folder.iterdir()
    content = path.read_bytes()
    place = content.index(b"photos")
    damaged = {
        "flip": content[:place] + b"P" + content[place + 1 :],
        "cut": content[:-1],
        "empty": b"",
        "another": b'{"changes": []}\n',
    }
    path.write_bytes(damaged[damage])
    with pytest.raises(GalleryError, match="is damaged: bring it back from a backup, or remove it"):
        removals.read()
    assert list(broken_files(removals.folder)) == [path]
