"""Crashes at every step on the disk, in this process: a change is wholly there afterwards, or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import wraps
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.crash.children import RETENTION, STEPS_ON_DISK
from tests.indexer.conftest import BUNDLE, make_rows, publish_rows
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import Patch, add_items, patch_items, remove_items
from vicinal.indexer.jobs.compaction import compact
from vicinal.indexer.jobs.retention import prune
from vicinal.indexer.reader import GalleryReader
from vicinal.models.similarity import normalize

Items = dict[str, str | None]
N_ITEMS, DIM = 12, 8


class KilledError(BaseException):
    """The process is dead."""


class Fuse:
    """Ends what runs before or after a step on the disk: none is taken any more, not even to clean up."""

    def __init__(self, n_steps: int) -> None:
        self.left = n_steps

    @property
    def is_burnt(self) -> bool:
        """Whether it has ended anything."""
        return self.left <= 0

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Count steps from now on."""
        for owner, names in STEPS_ON_DISK:
            for name in names:
                patch.setattr(owner, name, self._burning(getattr(owner, name)))

    def _burning(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def step(*arguments: Any, **keywords: Any) -> Any:
            self._burn()
            done = function(*arguments, **keywords)
            self._burn()
            return done

        return step

    def _burn(self) -> None:
        self.left -= 1
        if self.is_burnt:
            raise KilledError


def rows_of(ids: list[str]) -> Any:
    drawn = np.random.default_rng(len(ids)).normal(size=(len(ids), DIM))
    return make_rows(ids, normalize(drawn.astype(np.float32)))


def items_of(gallery: Gallery) -> Items:
    """Items and labels that a search finds; the files of every version, and of the table, are whole."""
    view = GalleryReader(gallery).view()
    gallery.table.check(view.revision)
    for version in gallery.versions():
        gallery.snapshot(version).check()
    found = view.nearest(normalize(np.ones((1, DIM), np.float32)), len(view)).ravel()
    return {str(item["id"]): item["label"] for item in view.items(found[found >= 0])}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A gallery with a version, and changes after it; it is copied."""
    gallery = Gallery(tmp_path / "base" / "shoes")
    publish_rows(gallery, rows_of([f"first-{i}" for i in range(N_ITEMS)]))
    reader = GalleryReader(gallery)
    add_items(reader, rows_of(["later"]), bundle=BUNDLE)
    remove_items(reader, ["first-3"])
    return gallery.path


CHANGES: dict[str, Callable[[GalleryReader], object]] = {
    "add": lambda reader: add_items(reader, rows_of(["new", "newer"]), bundle=BUNDLE),
    "patch": lambda reader: patch_items(reader, {"first-1": Patch(label="patched")}),
    "delete": lambda reader: remove_items(reader, ["first-1", "later"]),
    "compact": compact,
    "prune": lambda reader: prune(reader.gallery, RETENTION, grace=timedelta(0)),
}


@pytest.mark.parametrize(
    ("kind", "every"),
    [
        ("add", 1),
        pytest.param("patch", 1, marks=pytest.mark.slow),
        pytest.param("delete", 1, marks=pytest.mark.slow),
        pytest.param("compact", 7, marks=pytest.mark.slow),
        pytest.param("prune", 2, marks=pytest.mark.slow),
    ],
)
def test_a_change_that_dies_at_any_step_is_done_or_not_and_can_be_made_again(
    base: Path, tmp_path: Path, kind: str, every: int
) -> None:
    before, n_steps = items_of(Gallery.open(base)), count(1, every)
    whole = Gallery.open(Path(shutil.copytree(base, tmp_path / "whole" / "shoes")))
    CHANGES[kind](GalleryReader(whole))
    after, seen = items_of(whole), set[bool]()
    for n in n_steps:
        gallery = Gallery.open(Path(shutil.copytree(base, tmp_path / str(n) / "shoes")))
        fuse = Fuse(n)
        with pytest.MonkeyPatch.context() as patch:
            fuse.install(patch)
            with suppress(KilledError):
                CHANGES[kind](GalleryReader(gallery))
        found = items_of(Gallery.open(gallery.path))
        assert found in (before, after), n
        seen.add(found == after)
        if not fuse.is_burnt:
            break
        if kind in ("compact", "prune", "patch") or found == before:
            CHANGES[kind](GalleryReader(Gallery.open(gallery.path)))
        assert items_of(Gallery.open(gallery.path)) == after, n
        shutil.rmtree(gallery.path.parent)
    assert n > 10
    assert seen == ({True} if before == after else {True, False})
