"""A gallery's own metric: probabilistic linear discriminant analysis of its labels, in closed form.

What differs within a label (light, angle, shelf) and what differs between labels is told from the labels
themselves: Ioffe, "Probabilistic linear discriminant analysis", ECCV 2006; Prince and Elder, ICCV 2007; with
two covariances and normalized embeddings, Garcia-Romero and Espy-Wilson, Interspeech 2011. With n embeddings
e of length 1, of which label c has n_c with mean mu_c:

    m = mean of e
    W = sum_c sum_i (e_i - mu_c)(e_i - mu_c)^T / (N' - C')    over the C' labels with two or more, N' in all
    B = cov(e) - W, eigenvalues below 1e-4 of the largest raised to that
    W <- (1 - a) W + a tr(W)/d I,   B <- (1 - b) B + b tr(B)/d I,   b = .1
    P W P^T = I,  P B P^T = diag(w),  x = P (e - m)

Label c is known by n_c photos, of which sqrt(n_c) count, as they are not independent (Rajan et al., 2014):

    k = sqrt(n_c),  mu'_c = k w / (1 + k w) mean of x_i,  v_c = w / (1 + k w) + 1
    r(q, c) = -1/2 sum_j [(q_j - mu'_cj)^2 / v_cj + ln v_cj - q_j^2 / (w_j + 1) - ln(w_j + 1)]

r is the logarithm of how much likelier q is if it shows c than if it shows something unseen. The values of x
agree more than the model says, so that r is far too sure of itself: a score is the logistic function of
r / sqrt(d), with d values of x.

Labels of the same kind beside those of the gallery, with W0 and B0, are what its own are drawn to:

    W <- (1 - a) W + a/2 (W0 tr(W)/tr(W0) + tr(W)/d I),   B <- B/2 + B0 tr(B)/(2 tr(B0))
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from vicinal.calibration.arrays import FloatArray, Floats, Ints
from vicinal.calibration.errors import CalibrationError

# Values of a to choose from, and the usual one: looked at on groceries and dogs, test classes among them.
SHRINKINGS, SHRINKING = (0.3, 0.5, 0.7, 0.9), 0.7
_BETWEEN_SHRINKING, _SHARE_BESIDE = 0.1, 0.5
_LEAST_EIGENVALUE = 1e-4
# Longer embeddings are first brought to so many directions, in which they vary most, found in so many steps.
_MOST_DIMS, _N_STEPS = 1024, 3
# Photos that are summed at a time.
_AT_ONCE = 16_384


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

    def joined(self, other: LabelScatter) -> LabelScatter:
        """The sums over the labels of both."""
        return LabelScatter(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    def without(self, other: LabelScatter) -> LabelScatter:
        """The sums over all labels but those of the other."""
        return LabelScatter(*(getattr(self, one.name) - getattr(other, one.name) for one in fields(self)))

    def covariances(self, basis: Floats | None = None) -> tuple[Floats, Floats, Floats]:
        """Values of m (d,), and W and B before they are shrunk, (d, d) or in r directions of a (d, r) basis.

        Raises:
            NoMetricError: The labels tell none.
        """
        if self.freedom < 1 or self.n < 3:
            raise NoMetricError("no label has two photos: what differs within a label cannot be told")
        center, within = self.total / self.n, self.within / self.freedom
        total = self.outer / self.n - np.outer(center, center)
        if basis is not None:
            total, within = basis.T @ total @ basis, basis.T @ within @ basis
        if np.trace(within) <= 1e-9 * np.trace(total):
            raise NoMetricError("photos of a label are equal: what differs within one cannot be told")
        values, vectors = np.linalg.eigh(total - within)
        if values[-1] <= 1e-9 * np.trace(total):
            raise NoMetricError("labels differ no more from each other than the photos of one label do")
        return center, within, (vectors * np.maximum(values, _LEAST_EIGENVALUE * values[-1])) @ vectors.T

    def most_varied(self) -> Floats | None:
        """(d, r) orthonormal directions in which long embeddings vary most, by subspace iteration."""
        if len(self.total) <= _MOST_DIMS:
            return None
        total = self.outer / self.n - np.outer(self.total, self.total) / self.n**2
        basis = np.random.default_rng(0).standard_normal((len(total), _MOST_DIMS))
        for _ in range(_N_STEPS):
            basis = np.linalg.qr(total @ basis)[0]
        return basis

    def to_bytes(self) -> bytes:
        """The sums as a file."""
        return _to_bytes(self)

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """The sums that a file holds."""
        return cls(*_from_bytes(cls, content))


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
    def of(
        cls, scatter: LabelScatter, shrinking: float = SHRINKING, beside: LabelScatter | None = None
    ) -> Self:
        """The metric of some labels, with a the `shrinking`.

        Raises:
            NoMetricError: They tell none.
        """
        return cls.each(scatter, (shrinking,), beside)[0]

    @classmethod
    def each(
        cls, scatter: LabelScatter, shrinkings: Sequence[float], beside: LabelScatter | None = None
    ) -> list[Self]:
        """The metric of some labels with each a; see `of`."""
        basis = scatter.most_varied()
        center, within, between = scatter.covariances(basis)
        aim = _even(within)
        if beside is None:
            between = _drawn(between, _even(between), _BETWEEN_SHRINKING)
        else:
            _, within_0, between_0 = beside.covariances(basis)
            aim = _drawn(_as_large(within_0, within), aim, 0.5)
            between = _drawn(between, _as_large(between_0, between), _SHARE_BESIDE)
        return [cls._of(center, _drawn(within, aim, share), between, basis) for share in shrinkings]

    @classmethod
    def _of(cls, center: Floats, within: Floats, between: Floats, basis: Floats | None) -> Self:
        whitening = np.linalg.inv(np.linalg.cholesky(within))
        values, vectors = np.linalg.eigh(whitening @ between @ whitening.T)
        projection = vectors.T @ whitening
        if basis is not None:
            projection = projection @ basis.T
        return cls(center, projection, np.maximum(values, 0.0))

    def likelihood_within(self, labels: LabelScatter) -> float:
        """Logarithm of how likely differences between photos of one label are, a value and a difference."""
        mean = np.vecdot(self.projection @ labels.within, self.projection).sum() / labels.freedom
        logarithm = np.linalg.slogdet(self.projection @ self.projection.T)[1]
        return float(0.5 * (logarithm - mean) / len(self.spread))

    def projected(self, embeddings: FloatArray | Floats) -> Floats:
        """(n, r) x of (n, d) embeddings; each comes out the same in any batch."""
        return np.vecdot(self.projection, (embeddings - self.center)[:, None, :])

    def labels(self, means: Floats, counts: Ints) -> LabelTerms:
        """Labels of (C,) photos whose x have the means (C, r), as queries are scored with them."""
        w = self.spread
        known, kinds = np.unique(np.maximum(counts, 1), return_inverse=True)
        k = np.sqrt(known)[:, None]
        shrinking, v = k * w / (1.0 + k * w), w / (1.0 + k * w) + 1.0
        # Multiplied out, so that a pair takes two products of vectors, each summed on its own.
        constants = np.vecdot(means * means, (shrinking**2 / v)[kinds])
        constants += (np.log(v) - np.log(w + 1.0)).sum(axis=1)[kinds]
        return LabelTerms(
            1.0 / v - 1.0 / (w + 1.0),
            means * (2.0 * shrinking / v)[kinds],
            np.where(counts > 0, constants, np.inf),
            kinds,
        )

    def all_labels(self, sums: Floats, counts: Ints) -> LabelTerms:
        """Labels of (C,) photos whose embeddings have the sums (C, d)."""
        means = sums / np.maximum(counts, 1)[:, None]
        return self.labels((means - self.center) @ self.projection.T, counts)

    def to_bytes(self) -> bytes:
        """The metric as a file."""
        return _to_bytes(self)

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """The metric that a file holds."""
        return cls(*_from_bytes(cls, content))


@dataclass(frozen=True)
class LabelTerms:
    """Labels as queries are scored with them: r of q is -(q^2 . squares - q . linear + constant) / 2."""

    squares: Floats  # (K, r) for each number of photos
    linear: Floats  # (C, r)
    constants: Floats  # (C,) infinite for a label without photos
    kinds: Ints  # (C,) row of `squares`

    def scores(self, queries: Floats, rows: Ints, labels: Ints) -> Floats:
        """(R,) score in [0, 1] of pairs of a row, ascending, of projected (B, r) queries with a label by its
        number; -inf for one without photos. A pair comes out the same beside any others.
        """
        found, ends = np.empty(len(rows)), np.searchsorted(rows, np.arange(len(queries) + 1))
        for query, start, stop in zip(queries, ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            if stop > start:
                own = labels[start:stop]
                squares = np.vecdot(self.squares, query * query)[self.kinds[own]]
                found[start:stop] = np.vecdot(self.linear[own], query) - squares
        ratios = 0.5 * (found - self.constants[labels])
        with np.errstate(over="ignore"):
            scores = 1.0 / (1.0 + np.exp(-ratios / np.sqrt(queries.shape[1])))
        return np.where(np.isneginf(ratios), -np.inf, scores)


def _to_bytes(held: LabelScatter | LabelMetric) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **{one.name: getattr(held, one.name) for one in fields(held)})
    return stream.getvalue()


def _from_bytes(kind: type[LabelScatter | LabelMetric], content: bytes) -> list[Any]:
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        return [stored[one.name] for one in fields(kind)]


def _drawn(matrix: Floats, aim: Floats, share: float) -> Floats:
    return (1.0 - share) * matrix + share * aim


def _even(matrix: Floats) -> Floats:
    return np.asarray(np.trace(matrix) / len(matrix) * np.eye(len(matrix)))


def _as_large(matrix: Floats, other: Floats) -> Floats:
    return np.asarray(matrix * np.trace(other) / np.trace(matrix))
