"""Surface patterns and textures as functions of surface coordinates."""

from collections.abc import Callable

import numpy as np

from vicinal.calibration.arrays import AnyArray, FloatArray

_REPEATS = 8.0  # pattern periods over the width of the canvas at scale 1


def pattern_weight(name: str, u: FloatArray, v: FloatArray, scale: float) -> FloatArray:
    """(...) share in [0, 1] of the accent color that each surface point takes.

    `u` is the coordinate around the product, 0 at its front, `v` that downward, in units of the canvas; they
    broadcast. `scale` is 1 for 8 periods over the canvas.
    """
    if name in _WHOLE:
        return _WHOLE[name](u, v).astype(np.float32)
    return _REPEATED[name](u * (_REPEATS / scale), v * (_REPEATS / scale)).astype(np.float32)


def texture_gain(name: str, u: FloatArray, v: FloatArray) -> FloatArray:
    """Brightness factor near 1 of the material; name is one of products.TEXTURES."""
    return _TEXTURES[name](u, v).astype(np.float32)


def _saw(x: AnyArray) -> AnyArray:
    """A triangle wave of period 1 in [0, 1]."""
    return np.asarray(np.abs(2 * (x - np.floor(x)) - 1))


def _dots(u: FloatArray, v: FloatArray) -> AnyArray:
    row = np.floor(v)
    x = u + 0.5 * np.mod(row, 2)
    return np.asarray((x - np.floor(x) - 0.5) ** 2 + (v - row - 0.5) ** 2 < 0.095)


def _plaid(u: FloatArray, v: FloatArray) -> AnyArray:
    across, down = _saw(u / 2), _saw(v / 2)
    wide = np.float32(0.32) * (across > 0.5) + np.float32(0.32) * (down > 0.5)
    return np.where((across > 0.93) | (down > 0.93), np.float32(1), wide)


def _speckles(u: FloatArray, v: FloatArray) -> AnyArray:
    # Integer arithmetic only: a float hash would differ between processors.
    i, j = np.floor(u * 90).astype(np.int32), np.floor(v * 90).astype(np.int32)
    mixed = (i * 73856093) ^ (j * 19349663)
    return np.asarray(1 - 0.3 * ((mixed ^ (mixed >> 7)) % 17 == 0))


_WHOLE: dict[str, Callable[[FloatArray, FloatArray], AnyArray]] = {
    "plain": lambda _u, _v: np.zeros((1, 1), dtype=np.float32),
    "gradient": lambda _u, v: np.clip((v - 0.2) / 0.6, 0, 1),
    "blocks": lambda u, v: v > 0.54 + 0.12 * u,
}
_REPEATED: dict[str, Callable[[FloatArray, FloatArray], AnyArray]] = {
    "stripes": lambda _u, v: np.mod(v, 1) < 0.5,
    "pinstripes": lambda u, _v: np.mod(u + 0.15, 0.75) < 0.27,
    "diagonals": lambda u, v: np.mod(u + v, 1.3) < 0.5,
    "dots": _dots,
    "checks": lambda u, v: (np.floor(u) + np.floor(v)) % 2 == 0,
    "chevrons": lambda u, v: np.mod(v + 0.8 * _saw(u * 0.7), 1) < 0.45,
    "waves": lambda u, v: np.mod(v + 0.28 * np.sin(u * 4.5), 0.9) < 0.36,
    "plaid": _plaid,
    "diamonds": lambda u, v: _saw(u * 0.8) + _saw(v * 0.55) < 0.62,
}
_TEXTURES: dict[str, Callable[[FloatArray, FloatArray], AnyArray]] = {
    "smooth": lambda _u, _v: np.ones((1, 1), dtype=np.float32),
    "ribbed": lambda u, _v: 1 - 0.13 * (_saw(u * 26) > 0.6),
    "woven": lambda u, v: 1 - 0.14 * ((np.floor(u * 64) + np.floor(v * 64)) % 2),
    "speckled": _speckles,
}
