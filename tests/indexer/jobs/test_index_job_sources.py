"""Index job over a source: from files to a searchable version, whatever some of the files are."""

from __future__ import annotations

import errno
import io
import json
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
from vicinal.indexer.errors import BuildError, GalleryError
from vicinal.indexer.jobs.preparation import THUMBNAIL_SIDE, make_thumbnail
from vicinal.indexer.jobs.staging import Staging
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


def _text(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("no image", encoding="utf-8")
    return path


def _truncated(path: Path) -> Path:
    content = write_picture(path, seed=77, size=(200, 200)).read_bytes()
    path.write_bytes(content[: len(content) * 3 // 4])
    return path


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


def test_every_image_is_in_the_gallery_in_source_order(built: dict[str, Any]) -> None:
    snapshot, items = built["gallery"].snapshot(), built["items"]
    assert len(items) == 25
    assert [(row["id"], row["label"], row["uri"]) for row in snapshot.items(range(25))] == [
        (item.id, item.label, str(item.path)) for item in items
    ]


def test_embeddings_are_those_of_each_image_alone(built: dict[str, Any], embedder: Embedder) -> None:
    embeddings = built["gallery"].snapshot().embeddings
    alone = np.concatenate([embedder.embed([item.path]) for item in built["items"]])
    assert embeddings == pytest.approx(alone, abs=1e-6)


def test_stages_come_in_order_and_end_at_their_total(built: dict[str, Any]) -> None:
    stages = [stage for stage, _, _ in built["progress"]]
    assert list(dict.fromkeys(stages)) == ["embed", "neighbors", "publish"]
    last = {stage: (done, total) for stage, done, total in built["progress"]}
    assert last == {"embed": (25, 25), "neighbors": (25, 25), "publish": (1, 1)}


def test_unusable_files_are_listed_with_the_reason_and_the_rest_is_indexed(
    gallery: Gallery, embedder: Embedder, tmp_path: Path
) -> None:
    items = _images(tmp_path / "source", 6)
    items.insert(2, SourceItem("text", _text(tmp_path / "text.jpg")))
    items.insert(4, SourceItem("broken", _truncated(tmp_path / "broken.jpg")))
    items.insert(5, SourceItem("absent", tmp_path / "absent.jpg"))
    items.insert(6, SourceItem("small", write_picture(tmp_path / "small.png", size=(4, 4))))
    result = index_items(gallery, items, embedder)
    reasons = {failure.id: failure.reason for failure in result.failures}
    assert list(reasons) == ["text", "broken", "absent", "small"]
    assert "the bytes are no image" in reasons["text"]
    assert "damaged or breaks off" in reasons["broken"]
    assert reasons["absent"] == "No such file or directory"
    assert "too few" in reasons["small"]
    assert [row["id"] for row in gallery.snapshot().items(range(6))] == [f"item {i}" for i in range(6)]


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


def test_what_another_job_or_process_is_staging_is_left_alone(
    gallery: Gallery, embedder: Embedder, tmp_path: Path
) -> None:
    job, run = Staging(gallery, "20261121-182954-a3aecaa8"), Staging(gallery, "index-other")
    with job.held():
        job.begin(embedder.bundle.fingerprint)
    with run.held():
        run.begin(embedder.bundle.fingerprint)
        index_items(gallery, _images(tmp_path / "source", 3), embedder)
        assert (job.path.is_dir(), run.path.is_dir()) == (True, True)
    index_items(gallery, _images(tmp_path / "source", 3), embedder)
    assert (job.path.is_dir(), run.path.exists()) == (True, False)


def test_report_file_holds_the_result(gallery: Gallery, embedder: Embedder, tmp_path: Path) -> None:
    items = [*_images(tmp_path / "source", 3), SourceItem("absent", tmp_path / "absent.png")]
    result = index_items(gallery, items, embedder)
    file = gallery.path / "reports" / f"{result.version}.json"
    report = json.loads(file.read_text(encoding="utf-8"))
    assert report == {**gallery.reports.of(result.version), "sha256": report["sha256"]}
    assert (report["n_items"], report["provider"]) == (3, "CPUExecutionProvider")
    assert report["failures"] == [vars(failure) for failure in result.failures]
    assert report["hygiene"]["n_unlabelled"] == 3


def test_duplicates_among_the_files_are_reported(
    gallery: Gallery, embedder: Embedder, tmp_path: Path
) -> None:
    """One file twice, and once saved again as JPEG under another label."""
    original = write_picture(tmp_path / "source" / "boots" / "1.png", seed=1)
    (original.parent / "2.png").write_bytes(original.read_bytes())
    write_picture(tmp_path / "source" / "hats" / "1.jpg", seed=1)
    write_picture(tmp_path / "source" / "hats" / "2.png", seed=2)
    hygiene = index_items(gallery, read_source(tmp_path / "source"), embedder).hygiene
    assert hygiene.exact_duplicates == [("boots/1.png", "boots/2.png")]
    assert hygiene.near_duplicates == [("boots/1.png", "hats/1.jpg"), ("boots/2.png", "hats/1.jpg")]
    assert hygiene.conflicting_labels == hygiene.near_duplicates


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


def test_unknown_index_is_refused_before_anything_is_embedded(gallery: Gallery, embedder: Embedder) -> None:
    unreadable = [SourceItem("a", Path("nowhere.jpg"))]
    with pytest.raises(GalleryError, match="'nonsense' is no kind of index"):
        index_items(gallery, unreadable, embedder, index="nonsense")


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
