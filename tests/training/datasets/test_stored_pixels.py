"""Decoded images: the same pixels and batches whatever is held, never more bytes, and errors that name."""

from __future__ import annotations

import pickle
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from vicinal.models.errors import DatasetError
from vicinal.training.datasets import LabelledImages, load_datasets
from vicinal.training.datasets.layouts.folder import FolderConfig
from vicinal.training.datasets.stored_pixels import PixelStore, StoredPixels

SIDE = 48
IMAGE_BYTES = SIDE * SIDE * 3
N_IMAGES = 60
LIMITS = (0, IMAGE_BYTES, 7 * IMAGE_BYTES, 10**9)


def _fit(image: Image.Image) -> Image.Image:
    return image.resize((SIDE, SIDE))


def _larger(image: Image.Image) -> Image.Image:
    """A size that differs from image to image."""
    return image.resize((SIDE, SIDE + image.getpixel((0, 0))[0] % 7))  # type: ignore[index]


@pytest.fixture
def opened(color_folder: Path) -> Iterator[Callable[..., LabelledImages]]:
    stores: list[PixelStore] = []

    def load(limit: int, fit: Callable[[Image.Image], Image.Image] = _fit, **options: Any) -> LabelledImages:
        root = options.pop("root", color_folder)
        images = load_datasets([FolderConfig(kind="folder", root=root)], fit, limit=limit)
        assert isinstance(images.pixels, StoredPixels)
        stores.append(images.pixels.store)
        return images

    yield load
    for store in stores:
        store.close()


@pytest.mark.parametrize("limit", LIMITS)
def test_pixels_are_those_of_a_plain_loop_whatever_is_held(
    opened: Callable[..., LabelledImages], color_folder: Path, limit: int
) -> None:
    paths = sorted(color_folder.rglob("*.png"))
    images = opened(limit)
    images.pixels.store.keep(images.positions[::2])
    rng = np.random.default_rng(1)
    for rows in rng.integers(0, N_IMAGES, (3, 12)).tolist():
        images.pixels.expect(rows)
        for row in rows:
            np.testing.assert_array_equal(images.pixels[row], np.asarray(_fit(Image.open(paths[row]))))
    some = images.subset(np.arange(N_IMAGES) % 3 == 1).pixels
    for start in (0, 16):
        found = some[start : start + 8]
        wanted = [np.asarray(_fit(Image.open(path))) for path in paths[1::3][start : start + 8]]
        np.testing.assert_array_equal(np.stack(found), np.stack(wanted))


@pytest.mark.parametrize("fit", [_fit, _larger])
@pytest.mark.parametrize("limit", LIMITS)
def test_no_more_bytes_are_held_than_allowed(
    opened: Callable[..., LabelledImages], fit: Callable[[Image.Image], Image.Image], limit: int
) -> None:
    """Counted from the arrays that the store has, those that are on their way among them."""
    images = opened(limit, fit)
    store = images.pixels.store

    def held() -> int:
        coming = [one.result() for one in store._coming.values()]
        return sum(one.nbytes for one in (*store._kept.values(), *coming) if one is not None)

    n_kept = store.keep(images.positions)
    assert n_kept == N_IMAGES if limit == LIMITS[-1] else n_kept <= limit // IMAGE_BYTES
    for start in range(0, N_IMAGES, 10):
        images.pixels.expect(range(start, start + 10))
        assert held() <= limit
        assert store.held_bytes == held()
        for row in range(start, start + 10):
            _ = images.pixels[row]
    assert held() <= limit


def test_memory_is_that_of_the_limit_and_not_of_the_set(opened: Callable[..., LabelledImages]) -> None:
    """By what Python allocates, of which Pillow's own memory is no part."""
    side, limit = 200, 6 * 200 * 200 * 3

    def peak(limit: int) -> int:
        images = opened(limit, lambda image: image.resize((side, side)))
        tracemalloc.start()
        try:
            images.pixels.store.keep(images.positions)
            for start in range(0, N_IMAGES, 4):
                _ = images.pixels[start : start + 4]
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    # A slice of four is in the caller's hands; a thread and the caller have an image each under way, twice.
    assert peak(limit) < limit + 14 * side * side * 3 < peak(10**9)


def test_a_copy_for_another_process_reads_for_itself(opened: Callable[..., LabelledImages]) -> None:
    images = opened(10**9)
    images.pixels.store.keep(images.positions)
    store = PixelStore(_open_one, _fit, 10**9)
    copy = pickle.loads(pickle.dumps(store))
    np.testing.assert_array_equal(copy[0], store[0])
    assert copy.limit == 0
    for one in (store, copy):
        one.close()


class _open_one:  # noqa: N801
    """A context manager that any process can make."""

    def __enter__(self) -> Callable[[int], Image.Image]:
        return lambda position: Image.new("RGB", (9, 9), (position, 0, 0))

    def __exit__(self, *_: object) -> None:
        return None


@pytest.mark.parametrize("is_expected", [True, False])
def test_a_file_that_goes_is_named(
    opened: Callable[..., LabelledImages],
    make_class_folders: Callable[..., Path],
    tmp_path: Path,
    is_expected: bool,
) -> None:
    images = opened(10**9, root=make_class_folders(tmp_path / "set", n_classes=2, per_class=2))
    _ = images.pixels[0]
    (tmp_path / "set" / "class01" / "1.png").unlink()
    if is_expected:
        images.pixels.expect([3])
    with pytest.raises(DatasetError, match=r"has no image 'class01/1\.png', which it lists"):
        _ = images.pixels[3]


def test_batches_are_the_same_whatever_is_held_and_however_many_workers(
    opened: Callable[..., LabelledImages], make_training_config: Callable[..., Any], color_folder: Path
) -> None:
    torch = pytest.importorskip("torch")
    from vicinal.training.augmentation import stored_size, training_batches

    config = make_training_config(optimizer={"steps": 3})
    fit, _ = stored_size(config.preprocessing, config.augmentation)
    held = load_datasets(config.datasets, fit)
    expected = list(training_batches(held, config))
    for limit, workers in ((0, 0), (5 * 37 * 37 * 3, 0), (10**9, 0), (5 * 37 * 37 * 3, 1)):
        images = opened(limit, fit)
        images.pixels.store.keep(images.positions)
        own = config.model_copy(update={"workers": workers})
        for (pixels, labels), (wanted, named) in zip(training_batches(images, own), expected, strict=True):
            assert torch.equal(pixels, wanted)
            assert torch.equal(labels, named)
    assert list(training_batches(images, config, first_step=3)) == []


@pytest.mark.parametrize("workers", [0, 1])
def test_an_image_that_goes_while_training_is_one_sentence(
    opened: Callable[..., LabelledImages],
    make_training_config: Callable[..., Any],
    make_class_folders: Callable[..., Path],
    tmp_path: Path,
    workers: int,
) -> None:
    pytest.importorskip("torch")
    from vicinal.training.augmentation import stored_size, training_batches

    root = make_class_folders(tmp_path / "set", n_classes=4, per_class=4)
    config = make_training_config(workers=workers, optimizer={"steps": 100})
    images = opened(0, stored_size(config.preprocessing, config.augmentation)[0], root=root)
    batches = training_batches(images, config)
    next(batches)
    (root / "class02" / "1.png").unlink()
    with pytest.raises(DatasetError) as refused:
        list(batches)
    assert str(refused.value) == f"'{root}' has no image 'class02/1.png', which it lists"


def test_an_archive_is_read_by_several_processes(
    make_training_config: Callable[..., Any], tmp_path: Path, color_folder: Path
) -> None:
    """Each opens it for itself: one file read at two places would mix them up."""
    torch = pytest.importorskip("torch")
    from vicinal.training.augmentation import stored_size, training_batches
    from vicinal.training.datasets.layouts.protocol import ProtocolConfig

    lines = ["path,label,split,role"]
    with zipfile.ZipFile(tmp_path / "train.zip", "w") as archive:
        for path in sorted(color_folder.rglob("*.png")):
            member = f"{path.parent.name}/{path.name}"
            archive.write(path, member)
            lines.append(f"{member},{path.parent.name},train,train")
    (tmp_path / "protocol.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    dataset = ProtocolConfig(kind="protocol", root=tmp_path, split="train", roles=("train",))
    config = make_training_config(datasets=[dataset], optimizer={"steps": 4})
    fit, _ = stored_size(config.preprocessing, config.augmentation)
    expected = list(training_batches(load_datasets(config.datasets, fit), config))
    images = load_datasets(config.datasets, fit, limit=0)
    # Opened here already, as a run does that keeps some.
    _ = images.pixels[0]
    found = list(training_batches(images, config.model_copy(update={"workers": 2})))
    for (pixels, _), (wanted, _) in zip(found, expected, strict=True):
        assert torch.equal(pixels, wanted)
    images.pixels.store.close()
