"""Comparison: how surely two pictures are copies of each other, and what was done to one of them."""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from PIL import Image

from vicinal.calibration.arrays import AnyArray, Bytes, FloatArray, Ints
from vicinal.indexer.duplicates.registration import Warps, align, grayed, halved, likeness
from vicinal.indexer.duplicates.signatures import (
    BOXES,
    CUT_DIM,
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
# Nothing asks for scores below this one, which are 0 where that takes less time.
LEAST_SCORE = 0.1
# Share of the larger picture from which on neither is taken for a part of the other.
_NEARLY_WHOLE = 0.95
# Pairs, or images, that are looked at in one go.
_BLOCK = 512
_MOST_THREADS = 8


class Images:
    """Images of items as they are compared, kept in files that go with the object."""

    def __init__(self, n: int) -> None:
        self.pixels: Bytes = _mapped((n, _SIDE, _SIDE, 3), np.uint8)
        self.signatures = np.zeros((n, 768), np.uint8)
        self.sizes = np.ones((n, 2), np.int64)

    def put(self, position: int, thumbnail: bytes, signature: Bytes) -> None:
        """Keep an image, with its signature of 16 x 16 RGB pixels, (768,) uint8."""
        with Image.open(io.BytesIO(thumbnail)) as image:
            self.sizes[position] = image.size
            small = image.convert("RGB").resize((_SIDE, _SIDE), Image.Resampling.BOX, reducing_gap=2.0)
        self.pixels[position] = np.asarray(small)
        self.signatures[position] = signature

    @cached_property
    def grays(self) -> FloatArray:
        """(n, S/2, S/2, 1) gray images at half their side, once all were put."""
        made: FloatArray = _mapped((len(self.signatures), _SIDE // 2, _SIDE // 2, 1), np.float32)
        for start in range(0, len(self.signatures), _BLOCK):
            made[start : start + _BLOCK] = grayed(
                halved(self.pixels[start : start + _BLOCK].astype(np.float32))
            )
        return made

    @cached_property
    def cuts(self) -> FloatArray:
        """(n, b, 108) cuts of the images, once all were put: every pair of an image needs the same ones."""
        return self._of_signatures(unit_boxes, len(BOXES))

    @cached_property
    def turned(self) -> FloatArray:
        """(n, 8, 108) whole images in every orientation, once all were put."""
        return self._of_signatures(turned_signatures, len(ORIENTATIONS))

    def prepare(self) -> None:
        """Make what is looked at first, before several threads do."""
        _ = self.grays, self.cuts, self.turned

    def _of_signatures(self, make: Callable[[Bytes], FloatArray], n_each: int) -> FloatArray:
        made: FloatArray = _mapped((len(self.signatures), n_each, CUT_DIM), np.float32)
        for start in range(0, len(self.signatures), _BLOCK):
            made[start : start + _BLOCK] = make(self.signatures[start : start + _BLOCK])
        return made


def _mapped(shape: tuple[int, ...], dtype: type[np.generic]) -> Any:
    """Array in a file of its own, which needs no memory beyond what the system has to spare."""
    # The map outlives the file's name and its handle; no file can be mapped that is empty.
    with tempfile.TemporaryFile() as file:
        return np.memmap(file, dtype, "w+", shape=(max(shape[0], 1), *shape[1:]))


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
    def unlike(cls, pairs: Ints) -> Self:
        """Pairs that have nothing in common."""
        m = len(pairs)
        return cls(pairs, np.zeros(m, np.float32), np.zeros(m, np.int64), np.ones(m, np.float32))

    def put(self, places: slice, part: ComparedPairs) -> None:
        """Take what is known of the pairs at some places."""
        for field in fields(self):
            getattr(self, field.name)[places] = getattr(part, field.name)

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


def no_estimate(n_pairs: int, seconds: float, /) -> None:
    """Tell nobody."""


def compare(
    first: Images,
    second: Images,
    pairs: Ints,
    on_progress: OnProgress = no_progress,
    *,
    on_estimate: Callable[[int, float], None] = no_estimate,
    clock: Callable[[], float] = time.monotonic,
) -> ComparedPairs:
    """Lay the images at (m, 2) positions onto each other, first onto second and the other way round.

    Scores below `LEAST_SCORE` are 0, as shear and turn alone often tell. `on_estimate` is told
    once how many pairs there are, and in how many seconds all of them are compared, by the first few.
    """
    n_threads = min(_MOST_THREADS, usable_processors())
    # Each block holds pairs from all over, so that the first ones take as long as others.
    n_blocks = -(-len(pairs) // _BLOCK)
    for images in (first, second):
        images.prepare()
    found, done = ComparedPairs.unlike(pairs.copy()), 0
    with ThreadPoolExecutor(n_threads) as pool:
        try:
            began = clock()
            blocks = pool.map(lambda one: _compare(first, second, pairs[one::n_blocks]), range(n_blocks))
            on_progress("compare", 0, len(pairs))
            for number, part in enumerate(blocks):
                found.put(slice(number, None, n_blocks), part)
                if number + 1 == min(n_threads, n_blocks):
                    on_estimate(len(pairs), (clock() - began) * n_blocks / (number + 1))
                done += len(part.pairs)
                on_progress("compare", done, len(pairs))
        finally:
            # Whoever stops the work waits for no other block.
            pool.shutdown(wait=False, cancel_futures=True)
    return found


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
    found = ComparedPairs.unlike(pairs)
    found.orientations[:] = start.orientations
    near = np.flatnonzero(start.likeness >= _LEAST_LIKELY)
    near, warps = _first_look(inner, outer, pairs, start, near)
    if not len(near):
        return found
    turns = start.orientations[near]
    laid = [_turned(inner.pixels, pairs[near, 0], turns), outer.pixels[pairs[near, 1]].astype(np.float32)]
    shapes = [_turned_sizes(inner.sizes, pairs[near, 0], turns), outer.sizes[pairs[near, 1]]]
    # A crop that is much like the whole can have been taken for it: the smaller one lies on the larger.
    swapped = np.flatnonzero(warps.areas > 1.0)
    for both in (laid, shapes):
        both[0][swapped], both[1][swapped] = both[1][swapped], both[0][swapped]
    back = warps[swapped].inverted
    warps.matrices[swapped], warps.shifts[swapped] = back.matrices, back.shifts
    scores, areas = _finely(laid, shapes, warps)
    # Which of two that show nearly the same lies on the other is chance, and one way can end beside the best.
    alike = np.flatnonzero(areas >= _NEARLY_WHOLE)
    exchanged, their_shapes = ([both[1][alike], both[0][alike]] for both in (laid, shapes))
    others, their_areas = _finely(exchanged, their_shapes, warps[alike].inverted)
    better = others > scores[alike]
    scores[alike[better]], areas[alike[better]] = others[better], their_areas[better]
    found.scores[near], found.areas[near] = scores, areas
    return found


def _first_look(inner: Images, outer: Images, pairs: Ints, start: _Start, near: Ints) -> tuple[Ints, Warps]:
    """Pairs that small gray pictures leave open, and about how the pictures lie."""
    turned = _turned(inner.grays, pairs[near, 0], start.orientations[near])
    below, onto = outer.grays[pairs[near, 1]], Warps.onto(BOXES[start.boxes[near]])
    warps, found = align(turned, below, onto, _STEPS)
    kept = np.flatnonzero(found >= _FAR_OFF)
    return near[kept], warps[kept]


def _turned(pictures: AnyArray, positions: Ints, orientations: Ints) -> FloatArray:
    """(m, S, S, C) pictures at positions, each in its orientation."""
    turned = np.empty((len(positions), *pictures.shape[1:]), np.float32)
    for one in range(len(ORIENTATIONS)):
        chosen = orientations == one
        turned[chosen] = oriented(pictures[positions[chosen]], one)
    return turned


def _turned_sizes(sizes: Ints, positions: Ints, orientations: Ints) -> Ints:
    """(m, 2) width and height of pictures at positions, each in its orientation."""
    is_on_side = np.array([turns % 2 == 1 for turns, _ in ORIENTATIONS])[orientations]
    return np.where(is_on_side[:, None], sizes[positions, ::-1], sizes[positions])


def _finely(laid: list[FloatArray], shapes: list[Ints], start: Warps) -> tuple[FloatArray, FloatArray]:
    """Scores and areas of pictures that lie on others, from about where they do."""
    warps, _ = align(laid[0], laid[1], start, _FINE_STEPS)
    scores = warps.plainness(shapes[0], shapes[1])
    # No likeness is above 1.
    plain = np.flatnonzero(scores >= LEAST_SCORE)
    scores[plain] *= likeness(laid[0][plain], laid[1][plain], warps[plain])
    return np.where(scores >= LEAST_SCORE, scores, 0.0), np.minimum(warps.areas, 1.0)


def _start(inner: Images, outer: Images, pairs: Ints) -> _Start:
    products = inner.turned[pairs[:, 0]] @ outer.cuts[pairs[:, 1]].transpose(0, 2, 1)
    rows = products.reshape(len(pairs), -1)
    best = rows.argmax(axis=1)
    return _Start(rows[np.arange(len(rows)), best], best // len(BOXES), best % len(BOXES))
