"""Registration: lays one picture onto another, and says how alike they are where they lie on each other.

A warp takes places of the inner picture to places of the outer one; both have sides from -1 to 1. It is found
by the inverse compositional form of the enhanced correlation coefficient (Evangelidis and Psarakis, 2008).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from vicinal.calibration.arrays import AnyArray, FloatArray, Ints

# What one step may move, of half a side.
_LONGEST_STEP = 0.2
_DAMPING = 1e-3
_GRAY = np.full(3, 1 / 3, np.float32)
_N_BLOCKS = 4
# Standard deviation of what compression adds to a pixel, of 255: it makes plain blocks alike.
_NOISE = 4.0
# A copy shows nothing that lies outside of its original.
_LEAST_COVER = 0.9
# A warp of a copy only scales and moves: 99 of 100 are off by less than these, of 1. Beyond them a score
# falls off steeply, so that photos of one scene leave few scores in between.
_SHEAR = 0.012
_TURN = 0.008


@dataclass(frozen=True)
class Warps:
    """Affine warps."""

    matrices: FloatArray  # (m, 2, 2) float32, of x and y
    shifts: FloatArray  # (m, 2) float32

    @classmethod
    def onto(cls, boxes: FloatArray) -> Self:
        """Warps onto parts of the outer pictures: (m, 3) left, top and side, where a whole side is 1."""
        matrices = boxes[:, 2, None, None] * np.eye(2, dtype=np.float32)
        return cls(matrices, 2.0 * boxes[:, :2] + boxes[:, 2:] - 1.0)

    def __getitem__(self, chosen: AnyArray) -> Warps:
        return Warps(self.matrices[chosen], self.shifts[chosen])

    @property
    def inverted(self) -> Warps:
        """Warps that put the outer pictures on the inner ones."""
        back = np.linalg.inv(self.matrices)
        return Warps(back, -np.einsum("mij,mj->mi", back, self.shifts))

    @property
    def areas(self) -> FloatArray:
        """(m,) share of the outer picture that the inner one takes."""
        return np.asarray(np.abs(np.linalg.det(self.matrices)))

    def plainness(self, inner: Ints, outer: Ints) -> FloatArray:
        """(m,) nearness to mere scaling and moving, 1 for exact; arguments are (m, 2) width and height."""
        pixels = self.matrices * outer[:, :, None] / inner[:, None, :]
        (a, b), (c, d) = pixels[:, 0].T, pixels[:, 1].T
        scale = np.sqrt(np.maximum(np.abs(a * d - b * c), 1e-9))
        shear, turn = np.hypot((a - d) / 2, (b + c) / 2) / scale, (c - b) / 2 / scale
        return np.asarray(np.exp(-((shear / _SHEAR) ** 4) - (turn / _TURN) ** 4), dtype=np.float32)


def halved(pictures: FloatArray) -> FloatArray:
    """Images at half their side, (m, S/2, S/2, C)."""
    m, side, _, n_colors = pictures.shape
    return np.asarray(pictures.reshape(m, side // 2, 2, side // 2, 2, n_colors).mean(axis=(2, 4)))


def grayed(pictures: FloatArray) -> FloatArray:
    """Gray images, (..., 1), of (..., 3 or 1) pixels."""
    return pictures if pictures.shape[-1] == 1 else np.asarray(pictures @ _GRAY)[..., None]


def align(inner: FloatArray, outer: FloatArray, start: Warps, n_steps: int) -> tuple[Warps, FloatArray]:
    """Move warps to where (m, S, S, 3 or 1) pictures correlate best; also gives (m,) correlations there."""
    m, side = inner.shape[:2]
    grid = _grid(side)
    gray = grayed(inner)[..., 0]
    template = gray.reshape(m, side * side)
    template = template - template.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(template, axis=1) + 1e-3
    solver = _solver(gray, template / norms[:, None], grid)
    gray_outer = grayed(outer)
    matrices, shifts = start.matrices.copy(), start.shifts.copy()
    best, best_matrices, best_shifts = np.full(m, -1.0, np.float32), matrices.copy(), shifts.copy()
    for step in range(n_steps + 1):
        seen = _sampled(gray_outer, grid @ matrices.transpose(0, 2, 1) + shifts[:, None])[..., 0]
        seen = seen - seen.mean(axis=1, keepdims=True)
        products = np.einsum("mp,mp->m", seen, template)
        found = products / (norms * (np.linalg.norm(seen, axis=1) + 1e-3))
        better = found > best
        best[better], best_matrices[better], best_shifts[better] = (
            found[better],
            matrices[better],
            shifts[better],
        )
        if step == n_steps:
            break
        gains = norms**2 / np.maximum(products, 0.3 * norms**2)
        moves = np.einsum("mkp,mp->mk", solver, gains[:, None] * seen).clip(-_LONGEST_STEP, _LONGEST_STEP)
        back = np.linalg.inv(moves[:, 2:].reshape(m, 2, 2) + np.eye(2, dtype=np.float32))
        matrices = matrices @ back
        shifts = shifts - np.einsum("mij,mj->mi", matrices, moves[:, :2])
    return Warps(best_matrices, best_shifts), best


def likeness(inner: FloatArray, outer: FloatArray, warps: Warps) -> FloatArray:
    """Likeness of pictures under warps: correlation of colors, times that of the least alike of 4 x 4 blocks,
    as photos of one scene differ somewhere; 0 where more than a tenth of the inner picture lies outside.
    """
    m, side = inner.shape[:2]
    places = _grid(side) @ warps.matrices.transpose(0, 2, 1) + warps.shifts[:, None]
    inside = (np.abs(places).max(axis=-1) <= 1.0 + 1.0 / side).astype(np.float32)
    seen = _sampled(outer, places)
    whole = _correlation(inner.reshape(m, side * side, 3), seen, inside, noise=0.0)
    parts = [_blocks(one) for one in (inner, seen.reshape(inner.shape), inside.reshape(m, side, side, 1))]
    worst = (
        _correlation(parts[0], parts[1], parts[2][..., 0], noise=_NOISE).reshape(m, _N_BLOCKS**2).min(axis=1)
    )
    alike = np.maximum(whole, 0.0) * np.maximum(worst, 0.0)
    return np.asarray(np.where(inside.mean(axis=1) >= _LEAST_COVER, alike, 0.0))


def _grid(side: int) -> FloatArray:
    """(S * S, 2) x and y of the pixels' centers."""
    centers = (np.arange(side, dtype=np.float32) + 0.5) / side * 2.0 - 1.0
    y, x = np.meshgrid(centers, centers, indexing="ij")
    return np.stack([x.ravel(), y.ravel()], axis=-1)


def _solver(gray: FloatArray, unit: FloatArray, grid: FloatArray) -> FloatArray:
    """(m, 6, P) what turns the centered pixels of the outer picture into a move of the warp."""
    m, side = gray.shape[:2]
    down, right = (one.reshape(m, side * side) * (side / 2) for one in np.gradient(gray, axis=(1, 2)))
    x, y = grid.T
    slopes = np.stack([right, down, right * x, right * y, down * x, down * y], axis=1)
    slopes -= slopes.mean(axis=2, keepdims=True)
    slopes -= np.einsum("mp,mkp->mk", unit, slopes)[..., None] * unit[:, None]
    hessian = slopes @ slopes.transpose(0, 2, 1)
    diagonal = np.einsum("mkk->mk", hessian)
    damped = hessian + np.eye(6, dtype=np.float32) * (_DAMPING * diagonal + _DAMPING)[:, None]
    return np.asarray(np.linalg.solve(damped, slopes))


def _sampled(pictures: FloatArray, places: FloatArray) -> FloatArray:
    """(m, P, C) pixels between pixels, those beyond the edge as at the edge."""
    m, side = pictures.shape[:2]
    pixels = np.clip((places + 1.0) * (side / 2) - 0.5, 0.0, side - 1.001)
    corners = pixels.astype(np.int32)
    right, down = np.moveaxis((pixels - corners)[..., None], 2, 0)
    flat = pictures.reshape(m, side * side, pictures.shape[3])
    first, rows = corners[..., 1] * side + corners[..., 0], np.arange(m)[:, None]
    above = flat[rows, first] * (1 - right) + flat[rows, first + 1] * right
    below = flat[rows, first + side] * (1 - right) + flat[rows, first + side + 1] * right
    return np.asarray(above * (1 - down) + below * down)


def _blocks(pictures: FloatArray) -> FloatArray:
    """(m * 16, P / 16, C) pixels block by block."""
    m, side, _, n_colors = pictures.shape
    cut = pictures.reshape(m, _N_BLOCKS, side // _N_BLOCKS, _N_BLOCKS, side // _N_BLOCKS, n_colors)
    return cut.transpose(0, 1, 3, 2, 4, 5).reshape(m * _N_BLOCKS**2, (side // _N_BLOCKS) ** 2, n_colors)


def _correlation(first: FloatArray, second: FloatArray, weights: FloatArray, *, noise: float) -> FloatArray:
    """(m,) correlation of (m, P, C) pixels, color by color, as if both also had some noise in common."""
    total = weights.sum(axis=1)[:, None, None] + 1e-6
    wide = weights[..., None]
    a, b = (one - (one * wide).sum(axis=1, keepdims=True) / total for one in (first, second))
    common = noise**2 * a.shape[1] * a.shape[2]
    products, a_squared, b_squared = (
        np.einsum("mpc,mpc,mp->m", left, right, weights) + common for left, right in ((a, b), (a, a), (b, b))
    )
    return np.asarray(products / np.sqrt(a_squared * b_squared + 1e-6))
