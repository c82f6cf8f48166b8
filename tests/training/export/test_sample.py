"""Sample: the images of any folder, labelled where its subfolders are labels, or drawn ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vicinal.models.bundle import ModelBundle
from vicinal.training.export.sample import drawn_sample, folder_sample


def _write(root: Path, *names: str) -> Path:
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 16), (number * 20, 90, 200)).save(root / name)
    return root


@pytest.mark.parametrize(
    ("names", "is_labelled"),
    [
        (["a/1.png", "a/2.png", "b/1.png"], True),
        (["x/a/1.png", "x/a/2.png", "x/b/1.png"], True),
        (["1.png", "2.png"], False),
        (["a/1.png", "a/2.png", "3.png"], False),
        (["a/1.png", "b/1.png"], False),
        (["a/1.png", "a/2.png"], False),
    ],
    ids=["labels", "deep labels", "no folders", "one outside", "one a label", "one label"],
)
def test_subfolders_are_labels_where_searches_can_be_judged(
    tmp_path: Path, names: list[str], is_labelled: bool
) -> None:
    found = folder_sample(_write(tmp_path, *names, "a/._1.png", ".Trash-1000/1.png", "b/@eaDir/1.png"))
    assert (len(found.listing), found.is_labelled) == (len(names), is_labelled)


def test_drawn_images_are_a_hundred_without_labels(tiny_bundle: ModelBundle) -> None:
    found = drawn_sample()
    prepared = found.prepared(tiny_bundle.manifest.preprocessing, 3)
    assert (len(found.listing), found.is_labelled) == (100, False)
    assert [one.shape for one in prepared] == [(3, 32, 32)] * 3
    assert not np.array_equal(prepared[0], prepared[1])
