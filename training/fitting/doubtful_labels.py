"""Labels that look wrong: photos that lie with another label's and far from all of their own (numpy)."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vicinal.calibration.arrays import AnyFloats, FloatArray, Floats, Ints
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.models.progress import OnProgress
from vicinal.training.files import replacing
from vicinal.training.fitting.labelled_images import LabelledImages, Split
from vicinal.training.fitting.report import DoubtfulLabel, LabelLook

if TYPE_CHECKING:
    from vicinal.training.fitting.recipe import FitRecipe

# The second photo of another label must be nearer than so many photos are to the nearest of their own label,
# so that a photo unlike all others is not doubted, and nearer than the nearest of its own label by so many
# standard deviations of how near second photos are.
_NEARER_THAN = 0.4
_DEVIATIONS = 1.5
# Nearest photos of other labels among which two of one label are looked for.
_NEAREST = 32
_ROWS = 512
# Fewer photos of a label say little of it.
_LEAST_OF_A_LABEL = 3
# Photos that are embedded at a time.
_BATCH = 64
# From so many on, wrong labels cost recall@k less than multi-similarity. Half of them are found.
_MANY_DOUBTFUL = 0.05
_NAMED = 5


def look_at_labels(
    recipe: FitRecipe, most: int, table: Path, report: OnProgress
) -> tuple[LabelLook, dict[str, FloatArray]]:
    """Find labels that look wrong, by the bundle before, which has learned nothing of these labels.

    It looks at no more than `most` photos, lists what it finds in `table`, and gives the embeddings by file.
    """
    photos = recipe.photos
    looked = choose_photos(photos, most, recipe.seed)
    known = embed_photos(recipe.before, [photos.paths[i] for i in looked], report)
    doubtful = doubtful_labels(photos, looked, known)
    if doubtful:
        write_doubtful(table, doubtful)
    is_many = len(doubtful) > _MANY_DOUBTFUL * len(looked)
    look = LabelLook(
        n_looked=len(looked),
        n_doubtful=len(doubtful),
        # Where a report goes, the folders of this machine are nobody's.
        doubtful=tuple(one.model_copy(update={"file": Path(one.file).name}) for one in doubtful[:_NAMED]),
        safer_loss=recipe.safer_loss if is_many else None,
    )
    return look, known


def choose_photos(photos: LabelledImages, most: int, seed: int) -> Ints:
    """Positions of at most so many photos, of each label as many as that allows, or of none."""
    pairs = Split(~photos.is_single, photos.is_single)
    sizes = np.bincount(photos.codes[pairs.training])
    for cap in range(int(sizes.max()), _LEAST_OF_A_LABEL - 1, -1):
        if np.minimum(sizes, cap).sum() <= most:
            return np.flatnonzero(photos.at_most(cap, pairs, seed).training)
    return np.empty(0, np.int64)


def embed_photos(bundle: ModelBundle, paths: Sequence[Path], report: OnProgress) -> dict[str, FloatArray]:
    """Embed photos; gives the (d,) normalized embedding of each by its file."""
    embedder = Embedder(bundle, device="cpu")
    rows: dict[str, FloatArray] = {}
    for start in range(0, len(paths), _BATCH):
        some = paths[start : start + _BATCH]
        rows |= dict(zip(map(str, some), embedder.embed([one.read_bytes() for one in some]), strict=True))
        report("labels", len(rows), len(paths))
    return rows


def doubtful_labels(
    photos: LabelledImages, looked: Ints, embeddings: Mapping[str, FloatArray]
) -> list[DoubtfulLabel]:
    """The photos at these positions whose label looks wrong, most doubtful first."""
    if not len(looked):
        return []
    files = [str(photos.paths[i]) for i in looked]
    rows = np.stack([embeddings[file] for file in files])
    found, looks_like, margins = find_doubtful(rows, photos.codes[looked])
    names = dict(zip(photos.codes.tolist(), photos.labels.tolist(), strict=True))
    return [
        DoubtfulLabel(
            file=files[place],
            label=photos.labels[looked[place]],
            looks_like=names[code],
            margin=round(margin, 4),
        )
        for place, code, margin in zip(found, looks_like.tolist(), margins.tolist(), strict=True)
    ]


def find_doubtful(embeddings: AnyFloats, codes: Ints) -> tuple[Ints, Ints, Floats]:
    """Find the photos whose label looks wrong, by (n, d) normalized embeddings and (n,) codes of labels.

    Photos alone with their label are not doubted: strangers have nothing near. Gives the (m,) positions, the
    code that each looks like and the margin, largest first.
    """
    own, other, looks_like = _nearest_of_labels(embeddings, codes)
    has_both = np.isfinite(own) & np.isfinite(other)
    if not has_both.any():
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    margin = np.where(has_both, other, 0.0) - np.where(has_both, own, 0.0)
    is_near = other >= np.quantile(own[has_both], _NEARER_THAN)
    found = np.flatnonzero(has_both & is_near & (margin > _DEVIATIONS * other[has_both].std()))
    found = found[np.argsort(-margin[found], kind="stable")]
    return found, looks_like[found], margin[found]


def _nearest_of_labels(embeddings: AnyFloats, codes: Ints) -> tuple[Floats, Floats, Ints]:
    """Similarity to the nearest photo of the own label, (n,), that to the second-nearest of the first other
    label of which two are near, and that label; -inf where there is none.
    """
    n, k = len(codes), min(_NEAREST, len(codes))
    own, other = np.full(n, -np.inf), np.full(n, -np.inf)
    looks_like = np.full(n, -1, np.int64)
    for start in range(0, n, _ROWS):
        rows = np.arange(start, min(n, start + _ROWS))
        similarities = np.asarray(embeddings[rows] @ embeddings.T, np.float64)
        similarities[rows - start, rows] = -np.inf
        is_own = codes[rows, None] == codes
        own[rows] = np.where(is_own, similarities, -np.inf).max(axis=1)
        similarities[is_own] = -np.inf
        nearest = np.argpartition(-similarities, k - 1, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(similarities, nearest, axis=1), axis=1, kind="stable")
        nearest = np.take_along_axis(nearest, order, axis=1)
        found = codes[nearest]
        is_second = np.tril(found[:, :, None] == found[:, None, :], -1).any(axis=2)
        place = is_second.argmax(axis=1)[:, None]
        has_two = is_second.any(axis=1)
        second = np.take_along_axis(nearest, place, axis=1)
        other[rows] = np.where(has_two, np.take_along_axis(similarities, second, axis=1)[:, 0], -np.inf)
        looks_like[rows] = codes[second[:, 0]]
    return own, other, looks_like


def write_doubtful(path: Path, doubtful: Sequence[DoubtfulLabel]) -> None:
    """Write the photos whose label looks wrong as a table, most doubtful first."""
    with replacing(path) as partial, partial.open("w", newline="", encoding="utf-8") as stream:
        rows = csv.writer(stream)
        rows.writerow(DoubtfulLabel.model_fields)
        rows.writerows((one.file, one.label, one.looks_like, one.margin) for one in doubtful)
