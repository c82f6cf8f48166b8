"""Signatures: pictures of a few pixels, in every orientation and cut, to find copies by."""

from __future__ import annotations

import numpy as np

from vicinal.calibration.arrays import AnyArray, Bytes, FloatArray

SIGNATURE_SIDE = 16
# The ways that a picture is turned: quarter turns against the clock, after it was mirrored or not.
ORIENTATIONS = tuple((turns, is_mirrored) for is_mirrored in (False, True) for turns in range(4))
_PLACES = ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (0.5, 0.5))
# Left, top and side of the cuts, of a picture whose sides are 1: all of it, and what crops mostly leave.
BOXES = np.array(
    [(0.0, 0.0, 1.0), *((x * (1 - side), y * (1 - side), side) for side in (0.85, 0.7) for x, y in _PLACES)],
    dtype=np.float32,
)
# Pixels a side of a compared cut: more tell less, because cuts never fit crops exactly.
_SIDE = 6
CUT_DIM = _SIDE**2 * 3
_BLANK = 1e-3


def oriented(pictures: AnyArray, orientation: int) -> AnyArray:
    """Turn square pictures, (..., S, S, C)."""
    turns, is_mirrored = ORIENTATIONS[orientation]
    return np.rot90(pictures[..., :, ::-1, :] if is_mirrored else pictures, turns, axes=(-3, -2))


def undone(orientation: int) -> int:
    """The orientation that turns back, as a place in `ORIENTATIONS`."""
    turns, is_mirrored = ORIENTATIONS[orientation]
    return ORIENTATIONS.index((turns if is_mirrored else -turns % 4, is_mirrored))


def unit_boxes(signatures: Bytes, boxes: FloatArray = BOXES) -> FloatArray:
    """(n, b, 108) unit cuts of (n, 768) RGB signatures at (b, 3) left, top and side, whose products are their
    correlations, color by color; blank ones are zero.
    """
    pictures = _pictures(signatures)
    cuts = [
        np.einsum("iy,nyxc,jx->nijc", _means(top, side), pictures, _means(left, side), optimize=True)
        for left, top, side in boxes
    ]
    return _unit(np.stack(cuts, axis=1))


def turned_signatures(signatures: Bytes) -> FloatArray:
    """(n, 8, 108) whole pictures in every orientation, as `unit_boxes` gives them."""
    small = np.einsum("iy,nyxc,jx->nijc", _means(0.0, 1.0), _pictures(signatures), _means(0.0, 1.0))
    return _unit(np.stack([oriented(small, one) for one in range(len(ORIENTATIONS))], axis=1))


def _pictures(signatures: Bytes) -> FloatArray:
    return signatures.reshape(-1, SIGNATURE_SIDE, SIGNATURE_SIDE, 3).astype(np.float32)


def _means(start: float, length: float) -> FloatArray:
    """(6, 16) shares of a row's pixels in the pixels of a part of it."""
    edges = (start + length * np.arange(_SIDE + 1) / _SIDE) * SIGNATURE_SIDE
    pixels = np.arange(SIGNATURE_SIDE)
    shared = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    shares = np.maximum(shared, 0.0)
    return np.asarray(shares / shares.sum(axis=1, keepdims=True), dtype=np.float32)


def _unit(pictures: FloatArray) -> FloatArray:
    centered = pictures - pictures.mean(axis=(-3, -2), keepdims=True)
    rows = centered.reshape(*pictures.shape[:-3], -1)
    norms = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(np.divide(rows, norms, out=np.zeros_like(rows), where=norms > _BLANK))
