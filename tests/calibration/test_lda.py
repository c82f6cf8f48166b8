"""The gallery's own metric against normal distributions with explicit covariances, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from vicinal.calibration import lda
from vicinal.calibration.arrays import Floats, Ints
from vicinal.calibration.lda import LabelMetric, LabelScatter, NoMetricError, blocks_of, label_sums
from vicinal.models.similarity import normalize

SIZES = (1, 2, 3, 5, 8, 4)


def photos(sizes: tuple[int, ...] = SIZES, dim: int = 6, noise: float = 0.4) -> tuple[Floats, Ints]:
    """Embeddings of labels that differ more in some directions than in others."""
    rng = np.random.default_rng(3)
    codes = np.repeat(np.arange(len(sizes)), sizes)
    centers = rng.normal(size=(len(sizes), dim)) * np.linspace(2.0, 0.5, dim)
    embeddings = centers[codes] + noise * rng.normal(size=(len(codes), dim)) * np.linspace(0.3, 1.5, dim)
    return normalize(embeddings), codes


def scatter_of(embeddings: Floats, codes: Ints, among: Ints | None = None) -> LabelScatter:
    def blocks() -> Iterator[tuple[Floats, Ints]]:
        positions = np.arange(len(codes)) if among is None else among
        return blocks_of(positions, codes, lambda part: embeddings[part])

    return LabelScatter.of(blocks(), *label_sums(blocks(), int(codes.max()) + 1, embeddings.shape[1]))


def slow_covariances(embeddings: Floats, codes: Ints) -> tuple[Floats, Floats, Floats]:
    """m, W and B before shrinking, by loops."""
    wide, d = embeddings.astype(np.float64), embeddings.shape[1]
    within, n, c = np.zeros((d, d)), 0, 0
    for code in np.unique(codes):
        own = wide[codes == code]
        if len(own) > 1:
            n, c = n + len(own), c + 1
            for one in own:
                within += np.outer(one - own.mean(axis=0), one - own.mean(axis=0))
    within /= n - c
    values, vectors = np.linalg.eigh(np.cov(wide.T, bias=True) - within)
    return wide.mean(axis=0), within, vectors @ np.diag(np.maximum(values, 1e-4 * values.max())) @ vectors.T


def slow_metric(embeddings: Floats, codes: Ints) -> tuple[Floats, Floats, Floats]:
    """m, W and B after shrinking."""
    center, within, between = slow_covariances(embeddings, codes)
    d = len(center)
    within = 0.3 * within + 0.7 * np.trace(within) / d * np.eye(d)
    between = 0.9 * between + 0.1 * np.trace(between) / d * np.eye(d)
    return center, within, between


def slow_score(metric: tuple[Floats, Floats, Floats], query: Floats, own: Floats, k: float) -> float:
    """Posterior of a label's mean, and the likelihoods of the query, in the embeddings' own space."""
    center, within, between = metric
    gain = between @ np.linalg.inv(between + within / k)
    shown = multivariate_normal(
        center + gain @ (own.mean(axis=0) - center), within + between - gain @ between
    )
    ratio = shown.logpdf(query) - multivariate_normal(center, within + between).logpdf(query)
    return float(1.0 / (1.0 + np.exp(-ratio / np.sqrt(len(query)))))


def scores(metric: LabelMetric, queries: Floats, embeddings: Floats, codes: Ints) -> Floats:
    """(Q, C) score of every label."""
    sums, counts = label_sums(iter([(embeddings, codes)]), int(codes.max()) + 1, embeddings.shape[1])
    rows, labels = np.divmod(np.arange(len(queries) * len(counts)), len(counts))
    found = metric.all_labels(sums, counts).scores(metric.projected(queries), rows, labels)
    return found.reshape(len(queries), len(counts))


def test_scores_equal_likelihoods_of_explicit_normal_distributions() -> None:
    embeddings, codes = photos()
    queries = photos(noise=0.8)[0].astype(np.float64)
    metric, slow = LabelMetric.of(scatter_of(embeddings, codes)), slow_metric(embeddings, codes)
    found = scores(metric, queries, embeddings, codes)
    for label, size in enumerate(SIZES):
        own = embeddings[codes == label].astype(np.float64)
        expected = [slow_score(slow, query, own, np.sqrt(size)) for query in queries]
        np.testing.assert_allclose(found[:, label], expected, atol=1e-9)
    # Negative control: photos of a label that count as independent.
    wrong = [slow_score(slow, query, embeddings[codes == 4].astype(np.float64), 8) for query in queries]
    assert np.abs(found[:, 4] - wrong).max() > 1e-3


def test_labels_beside_are_what_the_own_are_drawn_to() -> None:
    """With explicit matrices; the size of what differs stays the gallery's own."""
    (own, codes), (other, others) = photos(), photos((4,) * 30, noise=0.9)
    shrinking, d = 0.5, own.shape[1]
    center, within, between = slow_covariances(own, codes)
    _, within_0, between_0 = slow_covariances(other, others)
    even = np.trace(within) / d * np.eye(d)
    within = 0.5 * within + 0.25 * (within_0 * np.trace(within) / np.trace(within_0) + even)
    between = 0.5 * between + 0.5 * between_0 * np.trace(between) / np.trace(between_0)
    found = LabelMetric.of(scatter_of(own, codes), shrinking, scatter_of(other, others))
    np.testing.assert_allclose(found.center, center, atol=1e-12)
    p = found.projection
    np.testing.assert_allclose(p @ within @ p.T, np.eye(d), atol=1e-9)
    np.testing.assert_allclose(p @ between @ p.T, np.diag(found.spread), atol=1e-9)


def test_the_likelihood_within_labels_is_that_of_a_normal_distribution() -> None:
    embeddings, codes = photos()
    metric, (_, within, _) = LabelMetric.of(scatter_of(embeddings, codes)), slow_metric(embeddings, codes)
    pairs = np.flatnonzero(codes == 1)
    apart = (embeddings[pairs[0]] - embeddings[pairs[1]]).astype(np.float64) / np.sqrt(2.0)
    d = len(apart)
    expected = multivariate_normal(np.zeros(d), within).logpdf(apart) / d + 0.5 * np.log(2 * np.pi)
    found = metric.likelihood_within(scatter_of(embeddings, codes, pairs))
    assert found == pytest.approx(expected, abs=1e-9)


def test_what_labels_teach_finds_more_and_drawn_labels_teach_nothing() -> None:
    """Photos that vary most where labels do not differ, which the cosine cannot know."""
    sizes = (4,) * 40
    embeddings, codes = photos(sizes, dim=12, noise=0.8)
    half = np.arange(len(codes)) % 4 < 2

    def right(labels: Ints) -> float:
        metric = LabelMetric.of(scatter_of(embeddings[half], labels[half]))
        return float(
            (
                scores(metric, embeddings[~half], embeddings[half], codes[half]).argmax(axis=1)
                == codes[~half]
            ).mean()
        )

    sums, counts = label_sums(iter([(embeddings[half], codes[half])]), 40, 12)
    cosine = float(((embeddings[~half] @ (sums / counts[:, None]).T).argmax(axis=1) == codes[~half]).mean())
    assert right(codes) > cosine + 0.02
    assert right(np.random.default_rng(0).permutation(codes)) < right(codes)


def test_labels_can_be_taken_away_from_the_sums() -> None:
    embeddings, codes = photos()
    gone, left = np.flatnonzero(codes == 4), np.flatnonzero(codes != 4)
    found = LabelMetric.of(scatter_of(embeddings, codes).without(scatter_of(embeddings, codes, gone)))
    fresh = LabelMetric.of(scatter_of(embeddings[left], codes[left]))
    np.testing.assert_allclose(found.center, fresh.center, atol=1e-12)
    np.testing.assert_allclose(np.sort(found.spread), np.sort(fresh.spread), rtol=1e-9)


def test_a_query_scores_the_same_in_any_batch() -> None:
    embeddings, codes = photos((3,) * 50, dim=48)
    metric = LabelMetric.of(scatter_of(embeddings, codes))
    together = scores(metric, embeddings, embeddings, codes)
    for i in (0, 7, 149):
        np.testing.assert_array_equal(
            scores(metric, embeddings[i : i + 1], embeddings, codes)[0], together[i]
        )


def test_a_file_holds_the_metric_to_the_bit() -> None:
    metric = LabelMetric.of(scatter_of(*photos()))
    kept = LabelMetric.from_bytes(metric.to_bytes())
    assert all(
        (one == other).all() for one, other in zip(vars(kept).values(), vars(metric).values(), strict=True)
    )


@pytest.mark.parametrize("dim", [4, 300])
def test_more_directions_than_photos_are_no_hindrance(dim: int) -> None:
    embeddings, codes = photos((2,) * 12, dim=dim)
    found = scores(LabelMetric.of(scatter_of(embeddings, codes)), embeddings, embeddings, codes)
    assert (found.argmax(axis=1) == codes).mean() > 0.9


def test_long_embeddings_keep_the_directions_in_which_they_vary(monkeypatch: pytest.MonkeyPatch) -> None:
    embeddings, codes = photos((4,) * 30, dim=40)
    whole = scores(LabelMetric.of(scatter_of(embeddings, codes)), embeddings, embeddings, codes)
    monkeypatch.setattr(lda, "_MOST_DIMS", 30)
    short = LabelMetric.of(scatter_of(embeddings, codes))
    assert (short.projection.shape, short.spread.shape) == ((30, 40), (30,))
    ranks = (scores(short, embeddings, embeddings, codes).argmax(axis=1), whole.argmax(axis=1))
    assert (ranks[0] == ranks[1]).mean() > 0.95


@pytest.mark.parametrize(
    ("embeddings", "codes"),
    [
        (np.eye(4), np.arange(4)),
        (np.repeat(np.eye(4), 2, axis=0), np.repeat(np.arange(4), 2)),
        (np.eye(4)[[0, 1, 0, 1]], np.array([0, 0, 1, 1])),
    ],
)
def test_labels_that_tell_no_metric_are_refused(embeddings: Floats, codes: Ints) -> None:
    with pytest.raises(NoMetricError):
        LabelMetric.of(scatter_of(embeddings, codes))


def test_a_label_without_photos_scores_nothing() -> None:
    metric = LabelMetric.of(scatter_of(*photos()))
    labels, none = metric.all_labels(np.zeros((1, 6)), np.zeros(1, np.int64)), np.zeros(1, np.int64)
    assert labels.scores(np.zeros((1, 6)), none, none).tolist() == [-np.inf]
