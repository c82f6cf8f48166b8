"""Labelled items of a gallery, to learn from: their embeddings as they are before any refinement."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vicinal.calibration.arrays import FloatArray, Ints, Mask, Objects
from vicinal.calibration.label_codes import label_codes
from vicinal.indexer.views.view import GalleryView
from vicinal.service.errors import RequestError


@dataclass(frozen=True)
class LabelledItems:
    """Items of a gallery to learn from."""

    gallery: str
    embeddings: FloatArray  # (n, d) float32, L2-normalized
    labels: Objects  # (n,) as objects: text of numpy gives each the room of the longest
    n_unlabelled: int
    n_repeated: int  # Left out because the same picture is there with the same label
    n_not_drawn: int  # Of labels that were not drawn

    @classmethod
    def read(cls, view: GalleryView, gallery: str, *, max_items: int, seed: int) -> LabelledItems:
        """Labelled items of a state of a gallery."""
        positions = np.arange(view.n_positions)
        positions = positions[~view.is_dead(positions)]
        named = [row["label"] for row in view.items(positions)]
        is_labelled = np.array([label is not None for label in named], dtype=bool)
        if not is_labelled.any():
            raise RequestError(
                f"gallery '{gallery}' has no labels to learn from: index it from a folder a label, or from a "
                "manifest with a column 'label'"
            )
        labels = np.array([label for label in named if label is not None], dtype=object)
        embeddings = view.vectors(positions[is_labelled])
        distinct = distinct_items(embeddings, labels)
        drawn = distinct[drawn_labels(labels[distinct], max_items, seed=seed)]
        return cls(
            gallery=gallery,
            embeddings=embeddings[drawn],
            labels=labels[drawn],
            n_unlabelled=int((~is_labelled).sum()),
            n_repeated=len(labels) - len(distinct),
            n_not_drawn=len(distinct) - len(drawn),
        )


def distinct_items(embeddings: FloatArray, labels: Objects) -> Ints:
    """Rows without those that are there before: one picture twice would be found by itself."""
    first: dict[tuple[str, bytes], int] = {}
    for i, (label, row) in enumerate(zip(labels.tolist(), embeddings, strict=True)):
        first.setdefault((label, row.tobytes()), i)
    return np.fromiter(first.values(), np.int64, len(first))


def drawn_labels(labels: Objects, max_items: int, *, seed: int) -> Mask:
    """(n,) whether an item's label is drawn."""
    _, codes = label_codes(labels)
    sizes = np.bincount(codes)
    order = np.random.default_rng(seed).permutation(len(sizes))
    has_room = np.empty(len(sizes), dtype=bool)
    has_room[order] = np.cumsum(sizes[order]) <= max_items
    return np.asarray(has_room[codes])
