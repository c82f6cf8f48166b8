"""Removals: what is remembered is read again whole, or not at all."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from vicinal.indexer.errors import GalleryError
from vicinal.indexer.state import state_of
from vicinal.indexer.state.schema import removals as table
from vicinal.indexer.storage.removals import REMEMBERED_COLUMNS, Removal, Removals, remembered


@pytest.fixture
def removals(galleries: Path) -> Removals:
    return Removals(galleries / "shoes")


def digest(content: int) -> bytes:
    return content.to_bytes(32, "big")


def remember(removals: Removals, *items: tuple[str, int], source: str | None = "/photos") -> None:
    kinds = (pa.string(), pa.binary(32), pa.string(), pa.string(), pa.int64(), pa.timestamp("us", tz="UTC"))
    values = [(name, digest(content), source, f"/photos/{name}", 7, 100) for name, content in items]
    columns = [pa.array(column, kind) for column, kind in zip(zip(*values, strict=True), kinds, strict=True)]
    with state_of(removals.folder).changing() as rows:
        remembered(pa.table(dict(zip(REMEMBERED_COLUMNS, columns, strict=True))))(rows)


def test_what_was_removed_is_read_as_it_was(removals: Removals) -> None:
    remember(removals, ("a", 1))
    assert list(removals.read().of_id("a")) == [
        Removal("a", digest(1), "/photos", "/photos/a", 7, 100, follows_content=True)
    ]


def test_what_the_source_dropped_is_forgotten_under_its_id_and_no_longer_followed_under_others(
    removals: Removals,
) -> None:
    remember(removals, ("a", 1), ("b", 1), ("c", 2))
    removals.forget([("a", digest(1)), ("x", digest(9))])
    found = removals.read()
    assert [len(found.of_id(name)) for name in "abc"] == [0, 1, 1]
    assert found.moving("/photos", set()) == {7: {digest(2)}}


def test_what_was_removed_since_is_told_though_it_was_removed_before(removals: Removals) -> None:
    remember(removals, ("a", 1), ("b", 2), ("c", 3))
    before = removals.read()
    assert removals.read().but(before) == set()
    remember(removals, ("a", 1), ("b", 9))
    remember(removals, ("d", 1))
    assert removals.read().but(before) == {"a", "b", "d"}


def test_damage_is_refused(removals: Removals) -> None:
    remember(removals, ("a", 1))
    with state_of(removals.folder).changing() as rows:
        rows.connection.execute(table.update().values(uri="/Photos/a"))
    with pytest.raises(GalleryError, match=r"item='a'.*bring it back from a backup"):
        removals.read()
