"""Decoded images within a number of bytes: some are kept, others decoded ahead of their use."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from threading import Lock
from typing import Any, overload

import numpy as np
from PIL import Image

from vicinal.calibration.arrays import AnyArray, Bytes, Indices
from vicinal.models.runtime import usable_processors

Fit = Callable[[Image.Image], Image.Image]
OpenImages = Callable[[], AbstractContextManager[Callable[[int], Image.Image]]]

# Share of the bytes for images that are kept; the rest is for those decoded ahead.
_KEPT = 0.75


class PixelStore:
    """Images by their place among all of some data sets, as (H, W, 3) uint8; the same whatever is held.

    Each process opens the images for itself. Those that are kept are shared with processes that are forked
    afterwards; none but the one that made the store decodes ahead. It holds `limit` bytes at most, beside an
    image that a thread is decoding.
    """

    def __init__(self, open_images: OpenImages, fit: Fit, limit: int) -> None:
        self.limit = limit
        self.held_bytes = 0
        self._made_of = open_images, fit
        self._stack, self._lock = ExitStack(), Lock()
        self._pool = ThreadPoolExecutor(usable_processors())
        self._readers: dict[int, Callable[[int], Image.Image]] = {}
        self._read_here()
        self._kept: dict[int, Bytes] = {}
        self._coming: dict[int, Future[Bytes | None]] = {}
        self._largest = 0

    def __reduce__(self) -> tuple[Any, ...]:
        # A process that is not forked would hold the bytes once more.
        return PixelStore, (*self._made_of, 0)

    def close(self) -> None:
        """Drop what is held, and what is about to be decoded."""
        self._pool.shutdown(cancel_futures=True)
        self._kept.clear()
        self._coming.clear()
        self._stack.close()

    def keep(self, positions: Indices) -> int:
        """Decode as many of these images as may be kept, spread over them, and give their number."""
        order = np.random.default_rng(0).permutation(positions).tolist()
        if order and self.limit:
            self._decoded(order[0])
        step = 2 * usable_processors()
        for start in range(0, len(order), step):
            part = order[start : start + step]
            self.expect(part, int(_KEPT * self.limit))
            for position in part:
                coming = self._coming.pop(position, None)
                image = coming.result() if coming else None
                if image is not None:
                    self._kept[position] = image
            if len(self._kept) < start + len(part):
                break
        return len(self._kept)

    def expect(self, positions: Iterable[int], limit: int | None = None) -> None:
        """Begin to decode images that are asked for soon, as far as they may be held."""
        limit = self.limit if limit is None else limit
        for position in positions:
            if position in self._kept or position in self._coming:
                continue
            with self._lock:
                reserved = self._largest
                if not reserved or self.held_bytes + reserved > limit:
                    return
                self.held_bytes += reserved
            self._coming[position] = self._pool.submit(self._within, position, reserved, limit)

    def __getitem__(self, position: int) -> Bytes:
        if position in self._kept:
            return self._kept[position]
        coming = self._coming.pop(position, None)
        image = coming.result() if coming else None
        if image is None:
            return self._decoded(position)
        with self._lock:
            self.held_bytes -= image.nbytes
        return image

    def _within(self, position: int, reserved: int, limit: int) -> Bytes | None:
        """Decode an image, and give it if it is held."""
        image = self._decoded(position)
        with self._lock:
            fits = self.held_bytes + image.nbytes - reserved <= limit
            self.held_bytes += image.nbytes * fits - reserved
        return image if fits else None

    def _decoded(self, position: int) -> Bytes:
        # A view of Pillow's bytes could not be written to, which torch warns of.
        image = np.array(self._made_of[1](self._read_here()(position)), np.uint8)
        self._largest = max(self._largest, image.nbytes)
        return image

    def _read_here(self) -> Callable[[int], Image.Image]:
        # Processes that share an open archive would read at each other's place.
        if os.getpid() not in self._readers:
            self._readers[os.getpid()] = self._stack.enter_context(self._made_of[0]())
        return self._readers[os.getpid()]


@dataclass(frozen=True)
class StoredPixels:
    """Images of a store, (n,) by their places: what an array (n, H, W, 3) is where all are held.

    A slice is a list of decoded images, while those after it are being decoded; a mask gives some of them,
    undecoded.
    """

    store: PixelStore
    positions: Indices

    def __len__(self) -> int:
        return len(self.positions)

    @overload
    def __getitem__(self, chosen: int) -> Bytes: ...

    @overload
    def __getitem__(self, chosen: slice) -> list[Bytes]: ...

    @overload
    def __getitem__(self, chosen: AnyArray) -> StoredPixels: ...

    def __getitem__(self, chosen: int | slice | AnyArray) -> Bytes | list[Bytes] | StoredPixels:
        if isinstance(chosen, slice):
            start, stop, _ = chosen.indices(len(self))
            self.expect(range(start, min(2 * stop - start, len(self))))
            return [self.store[position] for position in self.positions[chosen].tolist()]
        if isinstance(chosen, np.ndarray):
            return StoredPixels(self.store, self.positions[chosen])
        return self.store[int(self.positions[chosen])]

    def expect(self, rows: Sequence[int]) -> None:
        """Begin to decode some of the images; see `PixelStore`."""
        self.store.expect(self.positions[rows].tolist())
