"""Similarities: the same bits for a pair, whatever is computed beside it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from vicinal.calibration.arrays import FloatArray
from vicinal.models import similarity
from vicinal.models.errors import EmbeddingError
from vicinal.models.similarity import as_embeddings, exact_similarities, most_similar, normalize, reaches

SHAPES = {"n_items": st.integers(1, 40), "dim": st.integers(2, 200), "seed": st.integers(0, 2**32 - 1)}


def _random(n_items: int, dim: int, seed: int) -> FloatArray:
    return normalize(np.random.default_rng(seed).normal(size=(n_items, dim)))


def _almost_orthogonal(n_items: int, dim: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """A query and items whose products cancel, so that any other order of summing shows in the bits."""
    rng = np.random.default_rng(seed)
    half = rng.normal(size=(n_items, dim))
    order = rng.permutation(2 * dim)
    query = np.concatenate([np.ones(dim), np.ones(dim)])
    items = np.concatenate([half, -half], axis=1)[:, order]
    return normalize(query[None])[0], normalize(items)


@given(**SHAPES)
@settings(max_examples=60, deadline=None)
def test_pair_has_the_same_bits_alone_and_in_a_batch(n_items: int, dim: int, seed: int) -> None:
    query, items = _almost_orthogonal(n_items, dim, seed)
    together = exact_similarities(query, items)
    alone = [exact_similarities(query, item[None])[0] for item in items]
    assert together.tobytes() == np.array(alone).tobytes()


@given(**SHAPES)
@settings(max_examples=60, deadline=None)
def test_pair_has_the_same_bits_in_either_order(n_items: int, dim: int, seed: int) -> None:
    query, items = _almost_orthogonal(n_items, dim, seed)
    forth = exact_similarities(query, items)
    back = [exact_similarities(item, query[None])[0] for item in items]
    assert forth.tobytes() == np.array(back).tobytes()


@given(**SHAPES)
@settings(max_examples=60, deadline=None)
def test_query_has_the_same_bits_alone_and_among_queries(n_items: int, dim: int, seed: int) -> None:
    query, items = _almost_orthogonal(n_items, dim, seed)
    queries = np.stack([query, items[0], query])
    stacked = exact_similarities(queries, np.stack([items] * 3))
    assert stacked[2].tobytes() == exact_similarities(query, items).tobytes()


@given(**SHAPES)
@settings(max_examples=60, deadline=None)
def test_layout_in_memory_does_not_change_the_bits(n_items: int, dim: int, seed: int) -> None:
    """A transposed or sliced array counts as its values, not as its strides."""
    query, items = _almost_orthogonal(n_items, dim, seed)
    expected = exact_similarities(query, items).tobytes()
    sliced = np.repeat(items, 2, axis=1)[:, ::2]
    assert exact_similarities(query, np.asfortranarray(items)).tobytes() == expected
    assert exact_similarities(query, sliced).tobytes() == expected


def test_another_order_of_summing_would_not_pass_the_bit_tests() -> None:
    """Negative control: the same products, added up back to front, give other bits."""
    differing = 0
    for seed in range(10):
        query, items = _almost_orthogonal(33, 150, seed)
        backwards = exact_similarities(query[::-1], items[:, ::-1])
        differing += backwards.tobytes() != exact_similarities(query, items).tobytes()
    assert differing > 0


def test_similarity_is_the_sum_of_products() -> None:
    """Slow reference: the exact sum of the exact products, rounded once."""
    query, items = _random(1, 50, 0)[0], _random(20, 50, 1)
    expected = [math.fsum(float(a) * float(b) for a, b in zip(item, query, strict=True)) for item in items]
    assert exact_similarities(query, items) == pytest.approx(np.array(expected, np.float32), abs=1e-7)


def test_similarity_stays_within_one() -> None:
    """Rounded rows can be longer than 1; the similarity of one to itself is not."""
    items = _random(500, 7, 0)
    similarities = exact_similarities(items, items[:, None])[:, 0]
    assert similarities.dtype == np.float32
    assert similarities.max() <= 1.0
    assert similarities.min() > 1.0 - 1e-6
    assert exact_similarities(items, -items[:, None]).min() >= -1.0


@given(**SHAPES)
@settings(max_examples=30, deadline=None)
def test_normalized_rows_have_length_one(n_items: int, dim: int, seed: int) -> None:
    rows = normalize(np.random.default_rng(seed).normal(size=(n_items, dim)) * 1e3)
    assert rows.dtype == np.float32
    assert np.linalg.norm(rows.astype(np.float64), axis=1) == pytest.approx(np.ones(n_items), abs=1e-6)


def test_normalized_row_has_the_same_bits_alone_and_in_a_batch() -> None:
    raw = np.random.default_rng(0).normal(size=(37, 129)).astype(np.float32)
    alone = np.concatenate([normalize(row[None]) for row in raw])
    assert normalize(raw).tobytes() == alone.tobytes()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_row_with_a_value_that_is_not_finite_is_named(bad: float) -> None:
    rows = np.ones((3, 4))
    rows[1, 2] = bad
    with pytest.raises(EmbeddingError, match="embedding 1 holds NaN or infinity"):
        normalize(rows)


def test_row_of_zeros_is_named() -> None:
    with pytest.raises(EmbeddingError, match="embedding 2 is zero"):
        normalize([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])


def test_single_vector_becomes_one_row() -> None:
    assert as_embeddings([0.0, 2.0], 2).tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize("vectors", [[1.0], [1.0, 2.0, 3.0], [], [[1.0, 2.0, 3.0]], np.ones((2, 2, 2))])
def test_wrong_length_is_refused(vectors: object) -> None:
    with pytest.raises(EmbeddingError, match=r"expected (2 numbers|embeddings of the shape)"):
        as_embeddings(vectors, 2)


@pytest.mark.parametrize(
    "vectors",
    [
        "text",
        [["a", "b"]],
        [[1.0, 2.0], [1.0]],
        [10**400, 1],
        [{}, {}],
        [1j, 2.0],
        np.ones(2, "m8[m]"),
        np.ones(2, "M8[D]"),
    ],
    ids=str,
)
def test_what_is_no_list_of_numbers_is_refused(vectors: object) -> None:
    with pytest.raises(EmbeddingError, match="list of 2 numbers"):
        as_embeddings(vectors, 2)


@pytest.mark.parametrize("vector", [[math.nan, 1.0], [math.inf, 1.0], [0.0, 0.0], [None, 1.0]])
def test_vector_that_points_nowhere_is_refused(vector: list[float]) -> None:
    with pytest.raises(EmbeddingError, match="points nowhere"):
        as_embeddings(vector, 2)


def _nearly_equal(n_items: int, dim: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Queries, and items whose similarities to them differ by the last bits alone."""
    rng = np.random.default_rng(seed)
    queries = normalize(rng.normal(size=(3, dim)))
    items = queries[:, None] + 0.3 * rng.normal(size=(3, 1, dim)) + 1e-7 * rng.normal(size=(3, n_items, dim))
    return queries, normalize(items.reshape(-1, dim)).reshape(3, n_items, dim)


def _rounded(queries: FloatArray, items: FloatArray) -> FloatArray:
    return np.asarray((items @ queries[:, :, None])[:, :, 0])


@given(**SHAPES, n=st.integers(1, 45))
@settings(max_examples=100, deadline=None)
def test_every_one_of_the_most_similar_is_kept(n_items: int, dim: int, seed: int, n: int) -> None:
    queries, items = _nearly_equal(n_items, dim, seed)
    out = np.random.default_rng(seed).random((3, n_items)) < 0.2
    exact = exact_similarities(queries, items)
    exact[out] = -np.inf
    places = most_similar(np.where(out, -np.inf, _rounded(queries, items)), n, dim)
    assert places.shape[1] >= min(n, n_items)
    for row, kept in zip(exact, places, strict=True):
        assert len(set(kept.tolist())) == len(kept)
        in_order = np.lexsort((np.arange(n_items), -row))[:n]
        assert set(in_order[np.isfinite(row[in_order])].tolist()) <= set(kept.tolist())


def test_what_is_clearly_less_similar_is_left_out() -> None:
    queries, items = _random(1, 64, 0), _random(400, 64, 1)[None]
    assert most_similar(_rounded(queries, items), 100, 64).shape == (1, 100)


def test_keeping_by_rounded_products_alone_would_lose_some() -> None:
    """Negative control: without the bound on rounding, an item of the first ten is missed."""
    missed = 0
    for seed in range(20):
        queries, items = _nearly_equal(200, 128, seed)
        exact = exact_similarities(queries, items)
        for row, one in zip(exact, _rounded(queries, items), strict=True):
            missed += len(set(np.argsort(-row)[:10].tolist()) - set(np.argsort(-one)[:10].tolist()))
    assert missed > 0


def _sets_of_near_vectors(seed: int) -> tuple[FloatArray, FloatArray, NDArray[np.float64]]:
    """Sets of vectors that point nearly the same way, their similarities, and limits that some just reach."""
    rng = np.random.default_rng(seed)
    n_sets, width, dim = int(rng.integers(1, 6)), int(rng.integers(1, 40)), int(rng.choice([8, 64, 256]))
    middle = rng.normal(size=dim) * rng.choice([0, 5, 50])
    vectors = normalize(middle + rng.normal(size=(n_sets * width, dim))).reshape(n_sets, width, dim)
    vectors[:, rng.integers(0, width)] = vectors[:, 0]
    exact = exact_similarities(vectors, vectors[:, None])
    chosen = rng.integers(0, width, (n_sets, width))
    limits = np.take_along_axis(exact, chosen[:, :, None], axis=2)[:, :, 0].astype(np.float64)
    return vectors, exact, limits - rng.choice([0.0, 0.025], limits.shape)


@given(st.integers(0, 2**32 - 1), st.sampled_from([None, 1e-6]))
@settings(max_examples=60, deadline=None)
def test_what_reaches_a_limit_is_told_as_exact_similarities_tell(seed: int, bound: float | None) -> None:
    """Also where a wider bound leaves many pairs to be summed one by one."""
    vectors, exact, limits = _sets_of_near_vectors(seed)
    asked = np.random.default_rng(seed).random(exact.shape) < 0.9
    with pytest.MonkeyPatch.context() as patched:
        if bound is not None:
            patched.setattr(similarity, "_off_by", lambda *_: bound)
        told = reaches(vectors, limits, asked)
    assert (told == (exact >= limits[:, :, None]))[asked].all()


@given(st.integers(0, 2**32 - 1), st.sampled_from([None, 1e-6]), st.booleans())
@settings(max_examples=30, deadline=None)
def test_each_limit_of_a_vector_that_asks_for_several_is_told(
    seed: int, bound: float | None, is_by_little: bool
) -> None:
    """Also where pairs are summed a few at a time."""
    sets, exact, limits = _sets_of_near_vectors(seed)
    asking = np.random.default_rng(seed).integers(0, sets.shape[1], 70)
    least = limits[:1, asking] - np.arange(70) % 3 * 0.01
    with pytest.MonkeyPatch.context() as patched:
        if bound is not None:
            patched.setattr(similarity, "_off_by", lambda *_: bound)
        if is_by_little:
            patched.setattr(similarity, "_AT_ONCE", 256)
        told = reaches(sets[:1], least, np.ones((1, 1, 1), bool), asking)
    np.testing.assert_array_equal(told, exact[:1, asking] >= least[:, :, None])


def test_sums_that_are_not_rounded_would_tell_wrongly() -> None:
    """Negative control: some pairs reach their limit only as float32 numbers."""
    wrong = 0
    for seed in range(20):
        vectors, exact, limits = _sets_of_near_vectors(seed)
        wide = vectors.astype(np.float64)
        told = wide @ wide.transpose(0, 2, 1) >= limits[:, :, None]
        wrong += int((told != (exact >= limits[:, :, None])).sum())
    assert wrong > 0


def test_opposite_vectors_reach_the_least_limit() -> None:
    vectors = np.stack([row := _random(1, 200, 3)[0], -row])[None]
    assert reaches(vectors, np.full((1, 2), -1.0), np.ones((1, 2, 2), bool)).all()
