"""Versions that wait: put in force later, as they are or with what changed meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.indexer.pictures import write_picture
from vicinal.indexer import Gallery, SourceItem, index_items
from vicinal.indexer.jobs.changes import Patch, patch_items, remove_items
from vicinal.indexer.jobs.embedding_run import RunOptions
from vicinal.indexer.jobs.index_job import IndexJob
from vicinal.indexer.jobs.staging import Staging
from vicinal.indexer.jobs.sync.plan import IndexPlan, IndexResult
from vicinal.indexer.reader import GalleryReader
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder

N = 12


@pytest.fixture
def items(tmp_path: Path) -> list[SourceItem]:
    return [
        SourceItem(f"item {i}", write_picture(tmp_path / f"{i}.png", i), label=f"label {i % 3}")
        for i in range(N)
    ]


@pytest.fixture
def embedder(tiny_bundle: ModelBundle) -> Embedder:
    return Embedder(tiny_bundle, device="cpu", threads=1)


@pytest.fixture
def gallery(tmp_path: Path, items: list[SourceItem], embedder: Embedder) -> Gallery:
    """A gallery of the same pictures, each under the id of another."""
    made = Gallery(tmp_path / "galleries" / "shoes")
    held = [replace(item, path=items[-1 - i].path) for i, item in enumerate(items)]
    index_items(made, held, embedder, workers=1)
    return made


@pytest.fixture(params=["own items", "a source"])
def rebuild(
    request: pytest.FixtureRequest, gallery: Gallery, embedder: Embedder, items: list[SourceItem]
) -> Callable[[], IndexJob]:
    """Makes an attempt at a version that waits, of the gallery's items or of a source."""
    source = items if request.param == "a source" else None
    plan = IndexPlan(source, conflict="replace", activate=False, options=RunOptions(workers=1), job="job")
    return lambda: IndexJob(gallery, embedder, plan, Staging(gallery, "job"))


@pytest.fixture
def waiting(rebuild: Callable[[], IndexJob]) -> IndexResult:
    return rebuild().run()


def ids(gallery: Gallery) -> set[str]:
    view = GalleryReader(gallery).view()
    return {item["id"] for _, item in view.page(None, N)}


def test_a_version_is_put_in_force_with_its_own_calibrations(
    gallery: Gallery, rebuild: Callable[[], IndexJob], waiting: IndexResult
) -> None:
    before = gallery.active_version
    done = rebuild().put_in_force(waiting.version)
    active = gallery.activation
    assert (done.is_active, done.version) == (True, waiting.version)
    assert (active.version, active.calibrated_as) == (waiting.version, waiting.version)
    assert active.calibration_of(before) == 0


def test_changes_that_came_meanwhile_make_it_another_version(
    gallery: Gallery, rebuild: Callable[[], IndexJob], waiting: IndexResult
) -> None:
    reader = GalleryReader(gallery)
    remove_items(reader, ["item 3"])
    patch_items(reader, {"item 4": Patch("renamed", None)})
    done = rebuild().put_in_force(waiting.version)
    active = gallery.activation
    assert (done.is_active, active.version, active.calibrated_as) == (True, done.version, waiting.version)
    assert done.version != waiting.version
    assert ids(gallery) == {f"item {i}" for i in range(N)} - {"item 3"}
    view = GalleryReader(gallery).view()
    assert view.items([view.position("item 4")])[0]["label"] == "renamed"


def test_an_attempt_after_a_death_finds_it_done(
    gallery: Gallery, rebuild: Callable[[], IndexJob], waiting: IndexResult
) -> None:
    first = rebuild().put_in_force(waiting.version)
    versions = gallery.versions()
    assert rebuild().put_in_force(waiting.version) == first
    assert gallery.versions() == versions


def test_what_somebody_else_activated_meanwhile_stays(
    gallery: Gallery,
    rebuild: Callable[[], IndexJob],
    waiting: IndexResult,
    items: list[SourceItem],
    embedder: Embedder,
) -> None:
    index_items(gallery, items[:5], embedder, conflict="replace", workers=1)
    theirs, versions = gallery.active_version, gallery.versions()
    done = rebuild().put_in_force(waiting.version)
    assert (done.is_active, gallery.active_version) == (False, theirs)
    assert "activated meanwhile" in done.remark
    assert gallery.versions() == versions
