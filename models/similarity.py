"""Exact cosine similarities that do not depend on what else is computed beside them.

A matrix product through BLAS rounds differently for different shapes, so the same pair could score
differently alone and in a batch, and a threshold could be passed in one and missed in the other.
Here every similarity is a float64 dot product of its own, rounded once: the same two
vectors give the same bits in every batch, in either order, in the index and in the query.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vicinal.calibration.arrays import FloatArray, Floats, Ints, Mask
from vicinal.models.errors import IMAGE_HINT, EmbeddingError, NoDirectionError

_SMALLEST_NORM = 1e-12
# Numbers that are widened at a time, so that they stay in the processor's cache.
_AT_ONCE = 2**17


def normalize(vectors: npt.ArrayLike) -> FloatArray:
    """L2-normalize (n, d) finite vectors, none of them zero, to float32."""
    wide = np.asarray(vectors, dtype=np.float64)
    with np.errstate(over="ignore"):
        norms = np.sqrt(np.einsum("nd,nd->n", wide, wide))
    odd = np.flatnonzero(~np.isfinite(norms) | (norms < _SMALLEST_NORM))
    found: dict[int, str] = {}
    if len(odd):
        wide = wide.copy()
    for row in odd.tolist():
        largest = float(np.abs(wide[row]).max(initial=0.0))
        if not np.isfinite(largest):
            found[row] = "holds NaN or infinity"
        elif norms[row] < _SMALLEST_NORM:
            found[row] = f"is nearly zero (no number above {largest:.2g})" if largest else "is zero"
        else:
            # The squares of numbers such as 1e200 are beyond what a float holds; the direction is not.
            wide[row] /= largest
            norms[row] = np.sqrt(np.einsum("d,d->", wide[row], wide[row]))
    if found:
        raise NoDirectionError(found)
    return (wide / norms[:, None]).astype(np.float32)


def as_embeddings(vectors: npt.ArrayLike, dim: int) -> FloatArray:
    """Check embeddings that come from outside, (d,) or (n, d), and L2-normalize them."""
    try:
        given = np.asarray(vectors)
        if given.dtype.kind in "cmM":
            raise TypeError(f"it holds {given.dtype}")
        array = np.atleast_2d(np.asarray(given, dtype=np.float64))
    except (OverflowError, TypeError, ValueError) as error:
        raise EmbeddingError(f"an embedding is a list of {dim} numbers: {error}") from error
    if array.ndim != 2:
        raise EmbeddingError(
            f"expected embeddings of the shape ({dim},) or (n, {dim}), got an array of the shape "
            f"{array.shape}; {IMAGE_HINT}"
        )
    if array.shape[1] != dim:
        raise EmbeddingError(f"expected {dim} numbers an embedding, got {array.shape[-1]}")
    return normalize(array)


def exact_similarities(queries: FloatArray, items: FloatArray) -> FloatArray:
    """(..., n) cosine similarity of each query (..., d) to each of its own items (..., n, d), unit rows."""
    n_rows = max(1, _AT_ONCE // max(1, items[:1].size))
    if items.ndim > 2 and len(items) == len(queries) > n_rows:
        starts = range(0, len(items), n_rows)
        return np.concatenate(
            [exact_similarities(queries[i : i + n_rows], items[i : i + n_rows]) for i in starts]
        )
    # The product of two float32 is exact in float64, and vecdot sums each pair on its own;
    # C order, because a transposed array would be summed in another order.
    wide_items, wide_queries = items.astype(np.float64, order="C"), queries.astype(np.float64, order="C")
    wide = np.vecdot(wide_items, wide_queries[..., None, :])
    return np.clip(wide, -1.0, 1.0).astype(np.float32)


def reaches(vectors: FloatArray, least: Floats, asked: Mask, asking: Ints | None = None) -> Mask:
    """(B, r, w) whether the exact similarity of vector i to vector j of each set is at least what i asks for.

    A product of matrices tells of nearly all pairs, however it is rounded; the few others are summed one by
    one, as `exact_similarities` does.

    Args:
        vectors: (B, w, d) float32, L2-normalized.
        least: (B, r) what each of those that ask asks for.
        asked: Pairs to tell of, in a shape that goes with (B, r, w); the others are told anything.
        asking: (r,) which vectors ask, each as often as it likes; each of them once when None.
    """
    wide, bound = vectors.astype(np.float64), _off_by(vectors.shape[-1], 2.0**-53)
    products, cut = wide @ wide.transpose(0, 2, 1), _rounded_up_from(least)[:, :, None]
    if asking is not None:
        products = products[:, asking]
    reached = products >= cut + bound
    undecided = ((products >= cut - bound) & asked) > reached
    pairs, n_pairs = np.flatnonzero(undecided), 32 * _AT_ONCE // vectors.shape[-1]
    # Among copies many are left: their vectors would take more than all else.
    for start in range(0, len(pairs), n_pairs):
        rows, i, j = np.unravel_index(pairs[start : start + n_pairs], undecided.shape)
        told = vectors[rows, i if asking is None else asking[i]]
        exact = exact_similarities(told, vectors[rows, j][:, None])[:, 0]
        reached[rows, i, j] = exact >= least[rows, i]
    return reached


def _rounded_up_from(least: Floats) -> Floats:
    """Least sums that, once rounded to float32 in [-1, 1], are at least so much."""
    above = least.astype(np.float32)
    above = np.where(above < least, np.nextafter(above, np.float32(np.inf)), above)
    below = np.nextafter(above, np.float32(-np.inf))
    return np.where(least <= -1.0, -np.inf, (above.astype(np.float64) + below) / 2.0)


def most_similar(products: FloatArray, n: int, dim: int) -> Ints:
    """Find items that can be among the n most similar ones of a query, however products were rounded.

    `products`, (B, w), are of queries of length 1 at most with unit vectors, summed in float32; -inf for
    items that do not count. Gives (B, m) places in a row, in no order, the n most similar of each row among
    them; m is at least the smaller one of n and w.
    """
    width = products.shape[1]
    if width <= n:
        return np.broadcast_to(np.arange(width), products.shape)
    # One unit more for the rounding of what is compared: float32 similarities.
    bound = np.float32(_off_by(dim + 1, 2.0**-24))
    least = np.partition(products, width - n, axis=1)[:, width - n, None] - bound
    n_kept = int((products >= least).sum(axis=1).max())
    return np.argpartition(products, width - n_kept, axis=1)[:, width - n_kept :]


def _off_by(dim: int, unit: float) -> float:
    """Most that two sums of the d products of two unit vectors, in any order, differ by.

    Each is off by at most `d u / (1 - d u)` times the sum of their absolute values, u the unit of rounding
    (Higham, Accuracy and Stability of Numerical Algorithms, 3.1), and that sum is at most 1 here, or a little
    more, as lengths are rounded too.
    """
    terms = dim * unit
    return 2.5 * terms / (1.0 - terms)
