"""Hygiene of a gallery: duplicates and thin classes, which make a calibration promise too much."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from vicinal.calibration.arrays import Bytes, FloatArray, Mask, ShortInts
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.storage.item_table import as_matrix
from vicinal.indexer.views.view import GalleryView

# Correlation of the thumbnails of almost the same picture.
SAME_PICTURE = 0.98
# Pairs must be as close in the embedding to be compared at all.
CLOSE_SIMILARITY = 0.9
# Cosine of almost the same embedding, where there is no picture.
SAME_EMBEDDING = 0.999
_MOST_EXAMPLES = 20
# Length of the centered pixels of a picture without anything on it, at most.
_BLANK = 1e-3
_CHUNK = 65_536


@dataclass(frozen=True)
class Hygiene:
    """Faults that stand out in a gallery; each list holds at most 20 examples.

    Exact duplicates are items beyond the first of each content; near ones are other pairs whose 16 x 16 pixel
    thumbnails correlate above 0.98. A label with a single image can never be found by another.
    """

    n_exact_duplicates: int = 0
    n_near_duplicates: int = 0
    n_conflicting_labels: int = 0
    n_single_image_labels: int = 0
    n_unlabelled: int = 0
    exact_duplicates: list[tuple[str, str]] = field(default_factory=list)
    near_duplicates: list[tuple[str, str]] = field(default_factory=list)
    conflicting_labels: list[tuple[str, str]] = field(default_factory=list)
    single_image_labels: list[str] = field(default_factory=list)


def examine(
    *,
    ids: Sequence[str],
    labels: Sequence[str | None],
    contents: Sequence[bytes],
    signatures: Bytes | None,
    neighbor_ids: ShortInts,
    neighbor_similarities: FloatArray,
) -> Hygiene:
    """Look for thin classes, and along the (n, K) graph for duplicates, by (n, 768) thumbnails if any."""
    exact = _exact_pairs(contents)
    alike = () if signatures is None else _near_pairs(signatures, neighbor_ids, neighbor_similarities)
    near = [pair for pair in alike if contents[pair[0]] != contents[pair[1]]]
    conflicting = [(a, b) for a, b in exact + near if labels[a] != labels[b]]
    counts = Counter(label for label in labels if label is not None)
    single = sorted(label for label, count in counts.items() if count == 1)
    return Hygiene(
        n_exact_duplicates=len(exact),
        n_near_duplicates=len(near),
        n_conflicting_labels=len(conflicting),
        n_single_image_labels=len(single),
        n_unlabelled=sum(label is None for label in labels),
        exact_duplicates=_examples(exact, ids),
        near_duplicates=_examples(near, ids),
        conflicting_labels=_examples(conflicting, ids),
        single_image_labels=single[:_MOST_EXAMPLES],
    )


def examine_items(gallery: Gallery, view: GalleryView, *, has_images: bool) -> Hygiene:
    """Hygiene of the items that a gallery holds in some state."""
    names = ["id", "label", "content_sha256", "sequence", *(["signature"] if has_images else [])]
    columns = gallery.table.columns(view.revision, names)
    positions = view.positions_of_sequences(columns["sequence"].to_numpy())
    # The last entry stands for the padding, which -1 points to.
    row_of_position = np.full(view.n_positions + 1, -1)
    row_of_position[positions] = np.arange(len(positions))
    return examine(
        ids=columns["id"].to_pylist(),
        labels=columns["label"].to_pylist(),
        contents=columns["content_sha256"].to_pylist(),
        signatures=as_matrix(columns["signature"]) if has_images else None,
        neighbor_ids=row_of_position[view.neighbor_positions(positions)],
        neighbor_similarities=view.neighbor_similarities(positions),
    )


def are_same_pictures(first: Bytes, second: Bytes) -> Mask:
    """Tell pair by pair whether pictures are almost the same; blank ones are like nothing."""
    a, b = (_centered(rows.astype(np.float32)) for rows in (first, second))
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    products = np.einsum("nd,nd->n", a, b)
    alike = np.divide(products, norms, out=np.zeros_like(products), where=norms > _BLANK**2)
    return np.asarray(alike >= SAME_PICTURE)


def are_near_equal(cosines: FloatArray, first: Bytes, second: Bytes) -> Mask:
    """Tell of (m,) pairs by their cosines and (m, 768) thumbnails whether they show almost the same picture,
    or are almost the same embedding where one is without: then its thumbnail is zero.
    """
    are_seen = first.any(axis=1) & second.any(axis=1)
    is_same = (cosines >= CLOSE_SIMILARITY) & are_same_pictures(first, second)
    return np.where(are_seen, is_same, cosines >= SAME_EMBEDDING)


def correlations(signatures: Bytes) -> FloatArray:
    """(n, n) Pearson correlations of pictures, color by color; blank pictures correlate with nothing."""
    rows = _centered(signatures.astype(np.float32))
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > _BLANK)
    return np.asarray(unit @ unit.T)


def _exact_pairs(contents: Sequence[bytes]) -> list[tuple[int, int]]:
    groups: dict[bytes, list[int]] = defaultdict(list)
    for position, content in enumerate(contents):
        groups[content].append(position)
    return [(group[0], other) for group in groups.values() for other in group[1:]]


def _near_pairs(
    signatures: Bytes, neighbor_ids: ShortInts, similarities: FloatArray
) -> Iterator[tuple[int, int]]:
    rows, columns = np.nonzero((similarities >= CLOSE_SIMILARITY) & (neighbor_ids >= 0))
    others = neighbor_ids[rows, columns].astype(np.int64)
    pairs = np.unique(np.sort(np.stack([rows, others], axis=1), axis=1), axis=0)
    for start in range(0, len(pairs), _CHUNK):
        chunk = pairs[start : start + _CHUNK]
        same = are_same_pictures(signatures[chunk[:, 0]], signatures[chunk[:, 1]])
        yield from ((int(a), int(b)) for a, b in chunk[same])


def _centered(rows: FloatArray) -> FloatArray:
    # Color by color: otherwise two plain pictures of one tint would correlate.
    colors = rows.reshape(len(rows), rows.shape[1] // 3, 3)
    return (colors - colors.mean(axis=1, keepdims=True)).reshape(rows.shape)


def _examples(pairs: Sequence[tuple[int, int]], ids: Sequence[str]) -> list[tuple[str, str]]:
    return [(ids[a], ids[b]) for a, b in pairs[:_MOST_EXAMPLES]]
