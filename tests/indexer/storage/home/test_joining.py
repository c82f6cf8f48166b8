"""Joining: what a data folder holds is brought to the home, once, and nothing of two homes is mixed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.indexer.conftest import make_rows, publish_rows
from tests.indexer.storage.home.replicas import files_in
from vicinal.indexer.errors import GalleryExistsError, HomeError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.state import state_of
from vicinal.indexer.state.schema import documents
from vicinal.indexer.storage.home.mirror import Mirror

Mirrors = Callable[..., list[Mirror]]
Unit = Callable[..., Any]


def make_gallery(folder: Path, unit: Unit, name: str = "shoes") -> Gallery:
    """A gallery of one machine, of which something is remembered."""
    gallery = Gallery(folder / "galleries" / name)
    with gallery.writing():
        publish_rows(gallery, make_rows(["1", "2"], unit(2)))
    with state_of(gallery.path).changing() as rows:
        rows.add(documents, {"kind": "note", "id": name, "at": 1.0, "content": "{}"})
    return gallery


def remembered(mirror: Mirror, name: str) -> list[str]:
    with mirror.state(name).reading() as rows:
        found: list[str] = rows.values(documents.c.id)
        return found


def test_galleries_are_brought_with_all_that_is_remembered(
    mirrors: Mirrors, unit: Unit, tmp_path: Path
) -> None:
    for name in ("boots", "shoes"):
        make_gallery(tmp_path / "a", unit, name)
    a, b = mirrors("a", "b")
    assert a.names() == b.names() == ["boots", "shoes"]
    assert remembered(b, "shoes") == ["shoes"]
    assert not (tmp_path / "a" / "galleries" / "shoes" / "gallery.db").exists()
    for name in b.names():
        b.lay(name)
    assert files_in(b.data_dir) == files_in(a.data_dir)


def test_a_gallery_of_a_name_that_is_taken_is_refused(mirrors: Mirrors, unit: Unit, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        make_gallery(tmp_path / folder, unit)
    mirrors("a")
    with pytest.raises(GalleryExistsError):
        mirrors("b")
    shutil.move(tmp_path / "b" / "galleries" / "shoes", tmp_path / "b" / "galleries" / "other")
    (b,) = mirrors("b")
    assert remembered(b, "other") == ["shoes"]


def test_joining_that_was_cut_off_goes_on(
    mirrors: Mirrors, unit: Unit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("boots", "shoes"):
        make_gallery(tmp_path / "a", unit, name)
    bring, brought = Mirror.bring, []

    def bring_one(mirror: Mirror, folder: Path, *arguments: Any) -> None:
        if brought:
            raise HomeError("home 'x' does not answer: it is a test")
        brought.append(folder)
        bring(mirror, folder, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Mirror, "bring", bring_one)
        with pytest.raises(HomeError):
            mirrors("a")
    (a,) = mirrors("a")
    assert [remembered(a, name) for name in a.names()] == [["boots"], ["shoes"]]


def test_a_home_and_a_database_belong_together(mirrors: Mirrors, tmp_path: Path) -> None:
    mirrors("a")
    with pytest.raises(HomeError, match="is not that of this database"):
        mirrors("b", home=str(tmp_path / "other"))
    (tmp_path / "home").rename(tmp_path / "moved")
    mirrors("a", home=str(tmp_path / "moved"))
    with pytest.raises(HomeError, match="must lie apart"):
        mirrors("c", home=str(tmp_path / "c" / "home"))
