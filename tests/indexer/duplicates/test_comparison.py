"""Comparison: every kind of made copy is found among many photos, with what was done to it."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from tests.photos import draw_photo
from vicinal.indexer.duplicates import comparison
from vicinal.indexer.duplicates.candidates import CutIndex, unordered
from vicinal.indexer.duplicates.comparison import ComparedPairs, Images, compare
from vicinal.indexer.duplicates.made_copies import CHANGES, Change, make_copy
from vicinal.indexer.duplicates.signatures import ORIENTATIONS, undone
from vicinal.indexer.jobs.preparation import make_signature

N_PHOTOS = 60
SURE = 0.6


def store(images: list[Image.Image]) -> Images:
    pictures = Images(len(images))
    for position, image in enumerate(images):
        stream = io.BytesIO()
        image.save(stream, "JPEG", quality=90)
        pictures.put(position, stream.getvalue(), make_signature(image))
    return pictures


def copies_of(images: list[Image.Image], change: Change) -> list[Image.Image]:
    rng = np.random.default_rng(5)
    return [Image.open(io.BytesIO(make_copy(one, change, rng))).convert("RGB") for one in images]


def identity(n: int) -> np.ndarray:
    return np.stack([np.arange(n)] * 2, axis=1)


@pytest.fixture(scope="module")
def photos() -> list[Image.Image]:
    return [draw_photo(seed, (160, 120) if seed % 2 else (120, 140)) for seed in range(N_PHOTOS)]


@pytest.fixture(scope="module")
def pictures(photos: list[Image.Image]) -> Images:
    return store(photos)


@pytest.fixture(scope="module")
def index(pictures: Images) -> CutIndex:
    return CutIndex(pictures.signatures)


@pytest.mark.parametrize("change", CHANGES)
def test_copies_are_found(
    change: Change, photos: list[Image.Image], pictures: Images, index: CutIndex
) -> None:
    copies = store(copies_of(photos, change))
    pairs = index.candidates(copies.signatures)
    found = compare(copies, pictures, pairs)
    own = pairs[:, 0] == pairs[:, 1]
    assert (found.scores[own] >= SURE).sum() >= 0.9 * N_PHOTOS
    assert (found.scores[~own] >= SURE).sum() == 0


def test_photos_are_no_copies_of_each_other(pictures: Images, index: CutIndex) -> None:
    pairs = unordered(index.candidates(pictures.signatures, own=True))
    assert len(pairs) > N_PHOTOS
    assert compare(pictures, pictures, pairs).scores.max() < 0.3


@pytest.mark.parametrize("orientation", range(8))
def test_how_a_copy_was_turned_is_told_from_either_side(
    orientation: int, photos: list[Image.Image], pictures: Images
) -> None:
    turns, is_mirrored = ORIENTATIONS[orientation]
    turned = [
        (one.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if is_mirrored else one).rotate(
            90 * turns, expand=True
        )
        for one in photos[:8]
    ]
    copies = store(turned)
    there = compare(pictures, copies, identity(8))
    back = compare(copies, pictures, identity(8))
    assert there.orientations.tolist() == [orientation] * 8
    assert back.orientations.tolist() == [undone(orientation)] * 8
    assert there.scores.min() > 0.9


def test_a_stretched_picture_is_no_plain_copy(photos: list[Image.Image], pictures: Images) -> None:
    """Negative control: its aspect tells, though every block is alike."""
    stretched = store([one.resize((one.width * 2, one.height)) for one in photos[:8]])
    assert compare(stretched, pictures, identity(8)).scores.max() < 0.1


def test_pairs_keep_their_order(photos: list[Image.Image], pictures: Images) -> None:
    pairs = np.random.default_rng(0).integers(0, N_PHOTOS, (300, 2))
    found = compare(pictures, pictures, pairs)
    assert np.array_equal(found.pairs, pairs)
    assert found.scores[pairs[:, 0] == pairs[:, 1]] == pytest.approx(1.0, abs=0.01)


def same_shots(photos: list[Image.Image], index: int) -> list[Image.Image]:
    """A photo, and others like it in which something moved: between copies and mere photos."""
    first = photos[index]
    moved = [first.copy() for _ in range(3)]
    for number, one in enumerate(moved):
        one.paste(photos[index + 1].crop((0, 0, 12 + 8 * number, 12)), (30, 40))
    return [first, *moved]


@pytest.mark.slow
def test_what_is_left_out_would_not_score(photos: list[Image.Image], monkeypatch: pytest.MonkeyPatch) -> None:
    """All scores from the least on are those, to the last bit, of a comparison that leaves nothing out."""
    likes = [one for index in range(0, 16, 4) for one in same_shots(photos, index)]
    copies = [one for change in CHANGES for one in copies_of(photos[:20], change)]
    pictures = store([*photos, *likes, *copies])
    n = len(pictures.sizes)
    pairs = np.stack(np.triu_indices(n, 1), axis=1)
    pairs = pairs[np.random.default_rng(0).permutation(len(pairs))[:6000]]
    pairs = unordered(pairs, CutIndex(pictures.signatures).candidates(pictures.signatures, own=True))
    found = compare(pictures, pictures, pairs)
    thorough = compare_thoroughly(monkeypatch, pictures, pairs)
    reach = thorough.scores >= comparison.LEAST_SCORE
    assert reach.sum() > 200
    assert np.array_equal(found.scores, np.where(reach, thorough.scores, 0.0))
    for name in ("areas", "orientations"):
        assert np.array_equal(getattr(found, name)[reach], getattr(thorough, name)[reach])


def compare_thoroughly(monkeypatch: pytest.MonkeyPatch, pictures: Images, pairs: np.ndarray) -> ComparedPairs:
    with monkeypatch.context() as patched:
        patched.setattr(comparison, "LEAST_SCORE", 0.0)
        return compare(pictures, pictures, pairs)


def test_a_look_that_asks_too_much_is_noticed(
    photos: list[Image.Image], pictures: Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control."""
    monkeypatch.setattr(comparison, "_FAR_OFF", 0.999999)
    crops = store([one.crop((0, 0, 130, 100)) for one in photos[:8]])
    assert compare(crops, pictures, identity(8)).scores.max() == 0.0


def test_pairs_score_the_same_alone_and_among_others(pictures: Images) -> None:
    pairs = np.random.default_rng(1).integers(0, 12, (60, 2))
    together = compare(pictures, pictures, pairs)
    alone = [compare(pictures, pictures, pairs[i : i + 1]).scores[0] for i in range(len(pairs))]
    assert together.scores.tolist() == alone


def test_what_pictures_need_lies_in_files(pictures: Images) -> None:
    """The memory of a look does not grow with the gallery: the system may drop mapped pages at any time."""
    pictures.prepare()
    for held in (pictures.pixels, pictures.grays, pictures.cuts, pictures.turned):
        assert isinstance(held, np.memmap)
