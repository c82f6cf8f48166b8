"""Index job over a source: from files to a searchable version, whatever some of the files are."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.indexer.pictures import write_picture
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer import Gallery, SourceItem, index_items, read_source
from vicinal.indexer.errors import BuildError
from vicinal.indexer.jobs.preparation import THUMBNAIL_SIDE, make_thumbnail
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.models.progress import OnProgress

BATCH_SIZE = 4


@pytest.fixture(scope="module")
def embedder(tiny_bundle: ModelBundle) -> Embedder:
    return Embedder(tiny_bundle, device="cpu", threads=1, batch_size=BATCH_SIZE)


@pytest.fixture
def gallery(tmp_path: Path) -> Gallery:
    return Gallery(tmp_path / "galleries" / "shoes")


def _images(root: Path, n: int) -> list[SourceItem]:
    return [SourceItem(f"item {i}", write_picture(root / f"{i}.png", seed=i)) for i in range(n)]


def _class_folders(root: Path) -> Path:
    """25 images in four classes and one loose; PNG and JPEG; sizes that differ."""
    for i in range(24):
        suffix = ("png", "jpg")[i % 2]
        write_picture(root / f"class {i % 4}" / f"{i:02d}.{suffix}", seed=i, size=(24 + 3 * i, 60 - i))
    write_picture(root / "loose.png", seed=24)
    return root


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _class_folders(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def built(folder: Path, embedder: Embedder, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One job over the whole folder: its result, its gallery and what it reported on the way."""
    gallery = Gallery(tmp_path_factory.mktemp("galleries") / "shoes")
    seen: list[tuple[str, int, int]] = []
    items = read_source(folder)
    result = index_items(gallery, items, embedder, on_progress=lambda *one: seen.append(one))
    return {"result": result, "gallery": gallery, "progress": seen, "items": items}


def test_embeddings_are_those_of_each_image_alone(built: dict[str, Any], embedder: Embedder) -> None:
    embeddings = built["gallery"].snapshot().embeddings
    alone = np.concatenate([embedder.embed([item.path]) for item in built["items"]])
    assert embeddings == pytest.approx(alone, abs=1e-6)


def test_what_is_odd_in_a_folder_fails_alone_and_is_named(
    gallery: Gallery, embedder: Embedder, tmp_path: Path
) -> None:
    for name in ("a/1.png", "b/2.png", "b/line\nbreak.png", "b/bell\a.png"):
        write_picture(tmp_path / name)
    (tmp_path / "a/loop").symlink_to("loop")
    (tmp_path / "a/loop.png").symlink_to("loop.png")
    (tmp_path / "b/gone.png").symlink_to("nowhere")
    os.mkfifo(tmp_path / "b/pipe.png")
    result = index_items(gallery, read_source(tmp_path), embedder, source=str(tmp_path))
    reasons = {failure.id: failure.reason for failure in result.failures}
    assert result.n_items == 2
    assert reasons.keys() == {"a/loop.png", "b/gone.png", "b/line\\nbreak.png", "b/bell\\x07.png"}
    assert reasons["a/loop.png"] == os.strerror(errno.ELOOP)
    assert "U+000A" in reasons["b/line\\nbreak.png"]
    again = index_items(gallery, read_source(tmp_path), embedder, source=str(tmp_path), delete=True)
    assert (again.counts, len(again.failures)) == ({"unchanged": 2}, 4)


def test_an_item_whose_file_cannot_be_seen_any_more_stays(
    gallery: Gallery, embedder: Embedder, tmp_path: Path
) -> None:
    """It may lie on a disk that is not there today."""
    for name in ("1.png", "2.png"):
        write_picture(tmp_path / name)
    index_items(gallery, read_source(tmp_path), embedder, source=str(tmp_path))
    (tmp_path / "1.png").unlink()
    (tmp_path / "1.png").symlink_to("1.png")
    result = index_items(gallery, read_source(tmp_path), embedder, source=str(tmp_path), delete=True)
    assert result.n_items == 2
    assert "the item stays as it was" in result.failures[0].reason


def test_too_many_failures_stop_the_job_and_the_active_version_stays(
    gallery: Gallery, embedder: Embedder, tmp_path: Path
) -> None:
    first = index_items(gallery, _images(tmp_path / "source", 5), embedder).version
    items = [*_images(tmp_path / "other", 6), *(SourceItem(f"{i}", tmp_path / f"{i}.png") for i in range(3))]
    with pytest.raises(BuildError, match="3 images could not be used, at most 2 were allowed"):
        index_items(gallery, items, embedder, max_failures=2)
    assert (gallery.versions(), gallery.active_version, len(gallery.snapshot())) == ([first], first, 5)


@pytest.mark.parametrize(("n", "workers"), [(BATCH_SIZE - 1, 1), (BATCH_SIZE, 3), (3 * BATCH_SIZE + 1, 3)])
def test_every_item_is_kept_around_the_batch_size(
    gallery: Gallery, embedder: Embedder, tmp_path: Path, n: int, workers: int
) -> None:
    index_items(gallery, _images(tmp_path / "source", n), embedder, workers=workers)
    rows = gallery.snapshot().items(range(n))
    assert [row["id"] for row in rows] == [f"item {i}" for i in range(n)]


class _StopError(Exception):
    """The run is stopped here."""


def _stop_at(n_done: int) -> OnProgress:
    def on_progress(stage: str, done: int, _total: int) -> None:
        if stage == "embed" and done >= n_done:
            raise _StopError

    return on_progress


def test_a_run_over_changed_files_begins_anew(gallery: Gallery, embedder: Embedder, tmp_path: Path) -> None:
    """What was staged of the file as it was then is not what the source holds now."""
    items = _images(tmp_path / "source", 12)
    with pytest.raises(_StopError):
        index_items(gallery, items, embedder, on_progress=_stop_at(8))
    write_picture(items[0].path, seed=99)
    index_items(gallery, items, embedder)
    assert gallery.snapshot().embeddings[:1] == pytest.approx(embedder.embed([items[0].path]), abs=1e-6)


@pytest.mark.parametrize(
    ("size", "expected"),
    [((40, 30), (40, 30)), ((1024, 512), (256, 128)), ((300, 900), (85, 256)), ((5000, 8), (256, 1))],
)
def test_thumbnail_fits_its_side_and_is_never_enlarged(
    size: tuple[int, int], expected: tuple[int, int]
) -> None:
    with Image.open(io.BytesIO(make_thumbnail(Image.new("RGB", size, "teal")))) as image:
        assert image.size == expected
        assert max(image.size) <= THUMBNAIL_SIDE


class _BlindToOne(Embedder):
    """The real embedder, except that the second image of each batch gets no direction."""

    def infer(self, tensors: Sequence[FloatArray]) -> FloatArray:
        raw = super().infer(tensors).copy()
        raw[1:2] = 0.0
        return raw


def test_an_image_without_direction_fails_alone(
    gallery: Gallery, tiny_bundle: ModelBundle, tmp_path: Path
) -> None:
    blind = _BlindToOne(tiny_bundle, device="cpu", threads=1, batch_size=BATCH_SIZE)
    result = index_items(gallery, _images(tmp_path / "source", 3), blind)
    assert result.n_items == 2
    assert [(one.id, "is zero" in one.reason) for one in result.failures] == [("item 1", True)]
