"""Photos to fit to: what is used, what is held out, and when there is too little."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vicinal.indexer.sources import read_source
from vicinal.service.errors import RequestError
from vicinal.service.fitting.labelled_images import hold_out, read_labelled_images
from vicinal.training.datasets.layouts.manifest import ManifestConfig
from vicinal.training.fitting.labelled_images import LabelledImages


def photos_of(sizes: list[int]) -> LabelledImages:
    labels = np.repeat([f"label {i:03d}" for i in range(len(sizes))], sizes)
    return LabelledImages(tuple(Path(f"/photos/{i}.jpg") for i in range(len(labels))), labels)


def _write(path: Path, color: str | tuple[int, ...]) -> None:
    image = Image.new("RGB", (16, 16), color)
    image.paste("white", (0, 0, 16, 4))
    image.save(path)


def test_what_cannot_be_used_is_counted_and_left_out(tmp_path: Path) -> None:
    for name, color in (
        ("cup/1.png", "red"),
        ("cup/2.png", "blue"),
        ("cup/again.png", "red"),
        ("loose.png", "red"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        _write(tmp_path / name, color)
    (tmp_path / "cup" / "broken.jpg").write_bytes(b"no picture")
    found = read_labelled_images(read_source(tmp_path))
    assert [path.name for path in found.paths] == ["1.png", "2.png"]
    assert (found.n_unlabelled, found.n_repeated) == (1, 1)
    assert [Path(one.path).name for one in found.unusable] == ["broken.jpg"]


def test_one_of_five_labels_is_held_out_of_every_size() -> None:
    photos = photos_of([100] * 10 + [10] * 10)
    split = hold_out(photos, 0)
    held = photos.labels[split.held_out]
    assert sorted(np.unique(held, return_counts=True)[1]) == [10, 10, 100, 100]
    assert not set(held) & set(photos.labels[split.training])
    assert (split.training | split.held_out).all()


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([10] * 7 + [1] * 20, "7 labels have two photos or more, 12 are needed"),
        ([2] * 12, "have 4 photos together, at least 20 are needed"),
    ],
)
def test_too_little_is_refused(sizes: list[int], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        hold_out(photos_of(sizes), 0)


def test_the_manifest_is_one_that_training_reads(tmp_path: Path) -> None:
    photos = photos_of([10] * 15)
    split = hold_out(photos, 0)
    photos.write_manifest(tmp_path / "photos.csv", split)
    config = ManifestConfig(kind="manifest", root=tmp_path, file=Path("photos.csv"), split="held-out")
    assert [row.label for row in config.rows()] == photos.labels[split.held_out].tolist()
