"""Comparison: how surely two pictures are copies of each other, and what was done to one of them."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import NamedTuple, Self

import numpy as np
from PIL import Image

from vicinal.calibration.arrays import AnyArray, Bytes, FloatArray, Ints
from vicinal.indexer.duplicates.registration import Warps, align, halved, likeness
from vicinal.indexer.duplicates.signatures import (
    BOXES,
    ORIENTATIONS,
    oriented,
    turned_signatures,
    undone,
    unit_boxes,
)
from vicinal.models.progress import OnProgress, no_progress
from vicinal.models.runtime import usable_processors

_SIDE = 48
# Below this correlation of the gray pictures at half their side nothing further is looked at.
_FAR_OFF = 0.6
# And none of it below this correlation of their signatures.
_LEAST_LIKELY = 0.6
_STEPS, _FINE_STEPS = 10, 5
# Share of the larger picture from which on neither is taken for a part of the other.
_NEARLY_WHOLE = 0.95
_BLOCK = 128
_MOST_THREADS = 8


class Images:
    """Images of items as they are compared, kept in a file that goes with the object."""

    def __init__(self, n: int) -> None:
        shape = (max(n, 1), _SIDE, _SIDE, 3)
        # The map outlives the file's name and its handle.
        with tempfile.TemporaryFile() as file:
            self.pixels: Bytes = np.memmap(file, np.uint8, "w+", shape=shape)
        self.signatures = np.zeros((n, 768), np.uint8)
        self.sizes = np.ones((n, 2), np.int64)

    def put(self, position: int, thumbnail: bytes, signature: Bytes) -> None:
        """Keep an image, with its signature of 16 x 16 RGB pixels, (768,) uint8."""
        with Image.open(io.BytesIO(thumbnail)) as image:
            self.sizes[position] = image.size
            small = image.convert("RGB").resize((_SIDE, _SIDE), Image.Resampling.BOX, reducing_gap=2.0)
        self.pixels[position] = np.asarray(small)
        self.signatures[position] = signature


@dataclass(frozen=True)
class ComparedPairs:
    """Pairs of pictures and what they have in common."""

    pairs: Ints  # (m, 2) positions
    scores: FloatArray  # (m,) how surely they are copies, in [0, 1]
    orientations: Ints  # (m,) how the first is turned to lie on the second, a place in `ORIENTATIONS`
    areas: FloatArray  # (m,) share of the larger one that the other shows, 1 for all

    def __getitem__(self, chosen: AnyArray) -> ComparedPairs:
        return ComparedPairs(*(getattr(self, field.name)[chosen] for field in fields(self)))

    @classmethod
    def joined(cls, parts: Sequence[ComparedPairs]) -> Self:
        """The pairs of several parts."""
        columns = ([getattr(part, field.name) for part in parts] for field in fields(cls))
        return cls(*(np.concatenate(column) for column in columns))


class _Start(NamedTuple):
    """Likeness of inner pictures to parts of outer ones, how they are turned, and which parts."""

    likeness: FloatArray
    orientations: Ints
    boxes: Ints

    def at(self, chosen: Ints) -> _Start:
        return _Start(self.likeness[chosen], self.orientations[chosen], self.boxes[chosen])


def compare(
    first: Images, second: Images, pairs: Ints, on_progress: OnProgress = no_progress
) -> ComparedPairs:
    """Lay the images at (m, 2) positions onto each other, first onto second and the other way round."""
    n_threads = min(_MOST_THREADS, usable_processors())
    blocks = [pairs[start : start + _BLOCK] for start in range(0, len(pairs), _BLOCK)]
    parts, done = [_nothing()], 0
    with ThreadPoolExecutor(n_threads) as pool:
        try:
            for part in pool.map(lambda block: _compare(first, second, block), blocks):
                parts.append(part)
                done += len(part.pairs)
                on_progress("compare", done, len(pairs))
        finally:
            # Whoever stops the work waits for no other block.
            pool.shutdown(wait=False, cancel_futures=True)
    return ComparedPairs.joined(parts)


def _compare(first: Images, second: Images, pairs: Ints) -> ComparedPairs:
    """Lay one onto the other, the way that their signatures are more alike."""
    onto, back = _start(first, second, pairs), _start(second, first, pairs[:, ::-1])
    is_back = back.likeness > onto.likeness
    ways = [np.flatnonzero(~is_back), np.flatnonzero(is_back)]
    laid = _lay(first, second, pairs[ways[0]], onto.at(ways[0]))
    other = _lay(second, first, pairs[ways[1]][:, ::-1], back.at(ways[1]))
    back_turns = np.array([undone(one) for one in range(len(ORIENTATIONS))])[other.orientations]
    turned_back = ComparedPairs(other.pairs[:, ::-1], other.scores, back_turns, other.areas)
    return ComparedPairs.joined([laid, turned_back])[np.argsort(np.concatenate(ways))]


def _lay(inner: Images, outer: Images, pairs: Ints, start: _Start) -> ComparedPairs:
    scores, areas = np.zeros(len(pairs), np.float32), np.ones(len(pairs), np.float32)
    near = np.flatnonzero(start.likeness >= _LEAST_LIKELY)
    turned = np.empty((len(near), _SIDE, _SIDE, 3), np.float32)
    sizes = inner.sizes[pairs[near, 0]]
    for one, (turns, _) in enumerate(ORIENTATIONS):
        chosen = start.orientations[near] == one
        turned[chosen] = oriented(inner.pixels[pairs[near[chosen], 0]], one)
        sizes[chosen] = sizes[chosen][:, :: -1 if turns % 2 else 1]
    below = outer.pixels[pairs[near, 1]].astype(np.float32)
    warps, found = align(halved(turned), halved(below), Warps.onto(BOXES[start.boxes[near]]), _STEPS)
    kept = np.flatnonzero(found >= _FAR_OFF)
    if not len(kept):
        return ComparedPairs(pairs, scores, start.orientations, areas)
    near, warps = near[kept], warps[kept]
    laid = [turned[kept], below[kept]]
    shapes = [sizes[kept], outer.sizes[pairs[near, 1]]]
    # A crop that is much like the whole can have been taken for it: the smaller one lies on the larger.
    swapped = np.flatnonzero(warps.areas > 1.0)
    for both in (laid, shapes):
        both[0][swapped], both[1][swapped] = both[1][swapped], both[0][swapped]
    back = warps[swapped].inverted
    warps.matrices[swapped], warps.shifts[swapped] = back.matrices, back.shifts
    scores[near], areas[near] = _finely(laid, shapes, warps)
    # Which of two that show nearly the same lies on the other is chance, and one way can end beside the best.
    alike = np.flatnonzero(areas[near] >= _NEARLY_WHOLE)
    exchanged, their_shapes = ([both[1][alike], both[0][alike]] for both in (laid, shapes))
    others, their_areas = _finely(exchanged, their_shapes, warps[alike].inverted)
    better = others > scores[near[alike]]
    scores[near[alike[better]]], areas[near[alike[better]]] = others[better], their_areas[better]
    return ComparedPairs(pairs, scores, start.orientations, areas)


def _finely(laid: list[FloatArray], shapes: list[Ints], start: Warps) -> tuple[FloatArray, FloatArray]:
    """Scores and areas of pictures that lie on others, from about where they do."""
    warps, _ = align(laid[0], laid[1], start, _FINE_STEPS)
    scores = likeness(laid[0], laid[1], warps) * warps.plainness(shapes[0], shapes[1])
    return scores, np.minimum(warps.areas, 1.0)


def _start(inner: Images, outer: Images, pairs: Ints) -> _Start:
    turned = turned_signatures(inner.signatures[pairs[:, 0]])
    products = turned @ unit_boxes(outer.signatures[pairs[:, 1]]).transpose(0, 2, 1)
    rows = products.reshape(len(pairs), -1)
    best = rows.argmax(axis=1)
    return _Start(rows[np.arange(len(rows)), best], best // len(BOXES), best % len(BOXES))


def _nothing() -> ComparedPairs:
    none = np.empty(0, np.float32)
    return ComparedPairs(np.empty((0, 2), np.int64), none, none.astype(np.int64), none)
