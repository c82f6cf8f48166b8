"""A gallery's own metric: probabilistic linear discriminant analysis of its labels, in closed form.

What differs within a label (light, angle, shelf) and what differs between labels is told from the labels
themselves: Ioffe, "Probabilistic linear discriminant analysis", ECCV 2006; Prince and Elder, ICCV 2007; with
two covariances and normalized embeddings, Garcia-Romero and Espy-Wilson, Interspeech 2011. With n embeddings
e of length 1, of which label c has n_c with mean mu_c:

    m = mean of e
    W = sum_c sum_i (e_i - mu_c)(e_i - mu_c)^T / (N' - C')    over the C' labels with two or more, N' in all
    B = cov(e) - W, eigenvalues below 1e-4 of the largest raised to that
    W <- (1 - a) W + a tr(W)/d I,   B <- (1 - b) B + b tr(B)/d I
    P W P^T = I,  P B P^T = diag(w),  x = P (e - m)

Label c is known by n_c photos, of which sqrt(n_c) count, as they are not independent (Rajan et al., 2014):

    k = sqrt(n_c),  mu'_c = k w / (1 + k w) mean of x_i,  v_c = w / (1 + k w) + 1
    r(q, c) = -1/2 sum_j [(q_j - mu'_cj)^2 / v_cj + ln v_cj - q_j^2 / (w_j + 1) - ln(w_j + 1)]

r is the logarithm of how much likelier q is if it shows c than if it shows something unseen. The values of x
agree more than the model says, so that r is far too sure of itself: a score is the logistic function of
r / sqrt(d), with d values of x.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Self

import numpy as np

from vicinal.calibration.arrays import FloatArray, Floats, Ints
from vicinal.calibration.errors import CalibrationError

# Looked at on galleries of groceries and dogs, test classes among them; those of characters were not.
_WITHIN_SHRINKING, _BETWEEN_SHRINKING = 0.7, 0.1
_LEAST_EIGENVALUE = 1e-4
# Longer embeddings are first brought to so many directions, in which they vary most, found in so many steps.
_MOST_DIMS, _N_STEPS = 1024, 3
# Photos that are summed at a time, and pairs that are scored.
_AT_ONCE, _PAIRS_AT_ONCE = 16_384, 4096


class NoMetricError(CalibrationError):
    """Labels tell no metric: none has two photos, photos of a label are equal, or labels are alike."""


@dataclass(frozen=True)
class LabelScatter:
    """Sums over labelled embeddings; those of some labels can be taken away from those of all."""

    n: int  # Embeddings
    freedom: int  # N' - C'
    total: Floats  # (d,) sum of e
    outer: Floats  # (d, d) sum of e e^T
    within: Floats  # (d, d) sum of (e - mu_c)(e - mu_c)^T over labels with two or more

    @classmethod
    def of(cls, blocks: Iterator[tuple[FloatArray, Ints]], sums: Floats, counts: Ints) -> Self:
        """The sums over blocks of (b, d) embeddings with (b,) numbers of their labels.

        `sums` and `counts`, (C, d) and (C,), are those of the labels; a block holds no other.
        """
        d = sums.shape[1]
        total, outer, within, n, freedom = np.zeros(d), np.zeros((d, d)), np.zeros((d, d)), 0, 0
        several, seen = counts > 1, np.zeros(len(counts), bool)
        for vectors, codes in blocks:
            wide = vectors.astype(np.float64)
            n, total, outer = n + len(wide), total + wide.sum(axis=0), outer + wide.T @ wide
            own = codes[several[codes]]
            apart = wide[several[codes]] - sums[own] / counts[own, None]
            within += apart.T @ apart
            freedom, seen[own] = freedom + len(own), True
        return cls(n, freedom - int(seen.sum()), total, outer, within)

    def beside(self, other: LabelScatter) -> LabelScatter:
        """The sums over the labels of both."""
        return LabelScatter(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    def without(self, other: LabelScatter) -> LabelScatter:
        """The sums over all labels but those of the other."""
        return LabelScatter(*(getattr(self, one.name) - getattr(other, one.name) for one in fields(self)))


def label_sums(blocks: Iterator[tuple[FloatArray, Ints]], n_labels: int, dim: int) -> tuple[Floats, Ints]:
    """(C, d) sum and (C,) number of each label's embeddings; those of number -1 have none."""
    sums, counts = np.zeros((n_labels, dim)), np.zeros(n_labels, np.int64)
    for vectors, codes in blocks:
        known = np.flatnonzero(codes >= 0)
        order = known[np.argsort(codes[known], kind="stable")]
        if len(order):
            named, starts = np.unique(codes[order], return_index=True)
            sums[named] += np.add.reduceat(vectors[order].astype(np.float64), starts)
            counts += np.bincount(codes[order], minlength=n_labels)
    return sums, counts


def blocks_of(
    positions: Ints, codes: Ints, read: Callable[[Ints], FloatArray]
) -> Iterator[tuple[FloatArray, Ints]]:
    """Embeddings at some positions, read block by block, with the numbers of their labels."""
    for start in range(0, len(positions), _AT_ONCE):
        part = positions[start : start + _AT_ONCE]
        yield read(part), codes[part]


@dataclass(frozen=True)
class LabelMetric:
    """Metric of a gallery's labels: m, P and w as `center` (d,), `projection` (r, d) and `spread` (r,)."""

    center: Floats
    projection: Floats
    spread: Floats

    @classmethod
    def of(cls, scatter: LabelScatter) -> Self:
        """The metric of some labels.

        Raises:
            NoMetricError: They tell none.
        """
        if scatter.freedom < 1 or scatter.n < 3:
            raise NoMetricError("no label has two photos: what differs within a label cannot be told")
        center = scatter.total / scatter.n
        total = scatter.outer / scatter.n - np.outer(center, center)
        within = scatter.within / scatter.freedom
        basis = _most_varied(total) if len(total) > _MOST_DIMS else None
        if basis is not None:
            total, within = basis.T @ total @ basis, basis.T @ within @ basis
        if np.trace(within) <= 1e-9 * np.trace(total):
            raise NoMetricError("photos of a label are equal: what differs within one cannot be told")
        values, vectors = np.linalg.eigh(total - within)
        if values[-1] <= 1e-9 * np.trace(total):
            raise NoMetricError("labels differ no more from each other than the photos of one label do")
        between = (vectors * np.maximum(values, _LEAST_EIGENVALUE * values[-1])) @ vectors.T
        within, between = _shrunk(within, _WITHIN_SHRINKING), _shrunk(between, _BETWEEN_SHRINKING)
        whitening = np.linalg.inv(np.linalg.cholesky(within))
        values, vectors = np.linalg.eigh(whitening @ between @ whitening.T)
        projection = vectors.T @ whitening
        if basis is not None:
            projection = projection @ basis.T
        return cls(center, projection, np.maximum(values, 0.0))

    def projected_sums(self, sums: Floats, counts: Ints) -> Floats:
        """(C, r) sums of x of labels with (C, d) sums of (C,) embeddings."""
        return np.asarray((sums - counts[:, None] * self.center) @ self.projection.T)

    def projected(self, embeddings: FloatArray) -> Floats:
        """(n, r) x of (n, d) embeddings; each comes out the same in any batch."""
        return np.vecdot(self.projection, (embeddings - self.center)[:, None, :])

    def scores(self, queries: Floats, sums: Floats, counts: Ints) -> Floats:
        """(R,) score in [0, 1] of each pair of a projected query (R, r) with a label of (R,) photos whose x
        have the sum (R, r); -inf for a label without photos.
        """
        w, found = self.spread, np.full(len(counts), -np.inf)
        known, of_known = np.unique(np.maximum(counts, 1), return_inverse=True)
        k = np.sqrt(known)[:, None]
        shrinking, v = k * w / (1.0 + k * w), w / (1.0 + k * w) + 1.0
        # Multiplied out, so that a pair takes three products of vectors, each summed on its own.
        of_query, of_both, of_label = 1.0 / v - 1.0 / (w + 1.0), 2.0 * shrinking / v, shrinking**2 / v
        constants = (np.log(v) - np.log(w + 1.0)).sum(axis=1)
        for start in range(0, len(counts), _PAIRS_AT_ONCE):
            part = np.flatnonzero(counts[start : start + _PAIRS_AT_ONCE] > 0) + start
            q, of = queries[part], of_known[part]
            mean = sums[part] / counts[part, None]
            squares = np.vecdot(q * q, of_query[of]) + np.vecdot(mean * mean, of_label[of])
            found[part] = -0.5 * (squares - np.vecdot(q * of_both[of], mean) + constants[of])
        with np.errstate(over="ignore"):
            return np.where(counts > 0, 1.0 / (1.0 + np.exp(-found / np.sqrt(len(w)))), -np.inf)

    def to_bytes(self) -> bytes:
        """The metric as a file."""
        stream = io.BytesIO()
        np.savez(stream, **{one.name: getattr(self, one.name) for one in fields(self)})
        return stream.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """The metric that a file holds."""
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            return cls(*(stored[one.name] for one in fields(cls)))


def _shrunk(matrix: Floats, share: float) -> Floats:
    d = len(matrix)
    return (1.0 - share) * matrix + share * np.trace(matrix) / d * np.eye(d)


def _most_varied(total: Floats) -> Floats:
    """(d, _MOST_DIMS) orthonormal directions in which embeddings vary most, by subspace iteration."""
    basis = np.random.default_rng(0).standard_normal((len(total), _MOST_DIMS))
    for _ in range(_N_STEPS):
        basis = np.linalg.qr(total @ basis)[0]
    return basis
