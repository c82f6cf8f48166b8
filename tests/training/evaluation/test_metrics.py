"""Retrieval metrics against the reference vectors and against a slow, obvious loop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from vicinal.models.errors import EvaluationError
from vicinal.training.evaluation import RetrievalMetrics, auroc, retrieval_metrics

KS = (1, 2, 4, 8, 16)
Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


def _cosine(one: Floats, other: Floats) -> float:
    return float(one @ other / np.sqrt((one @ one) * (other @ other)))


def _ranked_mates(
    query: Floats, label: int, gallery: Floats, gallery_labels: Labels, leave_out: int | None
) -> list[bool]:
    positions = [position for position in range(len(gallery)) if position != leave_out]
    positions.sort(key=lambda position: -round(_cosine(query, gallery[position]), 9))
    return [gallery_labels[position] == label for position in positions]


def _slow_metrics(
    queries: Floats, labels: Labels, gallery: Floats | None = None, gallery_labels: Labels | None = None
) -> dict[str, float]:
    """Every metric as its definition reads, one query and one rank at a time."""
    alone = gallery is None
    items, item_labels = (queries, labels) if gallery is None else (gallery, gallery_labels)
    rows = []
    for index, (query, label) in enumerate(zip(queries, labels, strict=True)):
        mates = _ranked_mates(query, label, items, item_labels, index if alone else None)
        n_mates = sum(mates)
        if not n_mates:
            continue
        precisions = [sum(mates[: rank + 1]) / (rank + 1) if mate else 0.0 for rank, mate in enumerate(mates)]
        row = {
            "r_precision": sum(mates[:n_mates]) / n_mates,
            "map_at_r": sum(precisions[:n_mates]) / n_mates,
            "mean_average_precision": sum(precisions) / n_mates,
            "map_at_1000": sum(precisions[:1000]) / min(n_mates, 1000),
        }
        row |= {f"hit@{k}": float(any(mates[:k])) for k in KS}
        row |= {f"recall@{k}": sum(mates[:k]) / n_mates for k in KS}
        rows.append(row)
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}


def _flat(metrics: RetrievalMetrics) -> dict[str, float]:
    names = ("r_precision", "map_at_r", "mean_average_precision", "map_at_1000")
    flat = {name: getattr(metrics, name) for name in names}
    flat |= {f"hit@{k}": value for k, value in metrics.hit_rate.items()}
    return flat | {f"recall@{k}": value for k, value in metrics.recall.items()}


def _sample(seed: int, n_items: int, dim: int, n_classes: int) -> tuple[Floats, Labels]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, n_classes, n_items)
    return rng.normal(size=(n_items, dim)) + 0.7 * rng.normal(size=(n_classes, dim))[labels], labels


@pytest.fixture(scope="module")
def reference(vectors_dir: Path) -> dict[str, NDArray[np.generic]]:
    with np.load(vectors_dir / "metrics.npz") as stored:
        return dict(stored)


def test_metrics_equal_the_reference_vectors(reference: dict[str, NDArray[np.generic]]) -> None:
    metrics = retrieval_metrics(reference["E"], reference["labels"], ks=KS)
    assert list(metrics.hit_rate.values()) == pytest.approx(reference["own_hit_rate_at_k"], rel=1e-9)
    assert list(metrics.recall.values()) == pytest.approx(reference["own_true_recall_at_k"], rel=1e-9)
    assert metrics.map_at_r == pytest.approx(float(reference["own_MAP_at_R"]), rel=1e-9)
    assert metrics.r_precision == pytest.approx(float(reference["own_r_precision"]), rel=1e-9)
    assert metrics.mean_average_precision == pytest.approx(float(reference["own_mAP"]), rel=1e-9)


@given(seed=st.integers(0, 10_000), n_items=st.integers(8, 30), n_classes=st.integers(1, 6))
@settings(max_examples=30, deadline=None)
def test_leave_one_out_equals_the_slow_loop(seed: int, n_items: int, n_classes: int) -> None:
    embeddings, labels = _sample(seed, n_items, 5, n_classes)
    actual = _flat(retrieval_metrics(embeddings, labels, ks=KS))
    assert actual == pytest.approx(_slow_metrics(embeddings, labels), rel=1e-9)


@given(seed=st.integers(0, 10_000), n_gallery=st.integers(8, 30))
@settings(max_examples=30, deadline=None)
def test_separate_gallery_equals_the_slow_loop(seed: int, n_gallery: int) -> None:
    embeddings, labels = _sample(seed, n_gallery + 10, 5, 4)
    gallery, gallery_labels = embeddings[10:], labels[10:]
    labels[0] = gallery_labels[0]
    actual = retrieval_metrics(
        embeddings[:10], labels[:10], gallery_embeddings=gallery, gallery_labels=gallery_labels, ks=KS
    )
    expected = _slow_metrics(embeddings[:10], labels[:10], gallery, gallery_labels)
    assert _flat(actual) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda embeddings, labels: (embeddings - embeddings.mean(axis=0), labels),
        lambda embeddings, labels: (embeddings, np.roll(labels, 1)),
        lambda embeddings, labels: (np.abs(embeddings), labels),
    ],
)
def test_wrong_embeddings_or_labels_fail_the_slow_comparison(
    wrong: Callable[[Floats, Labels], tuple[Floats, Labels]],
) -> None:
    """Negative control: the loop tells other inputs apart."""
    embeddings, labels = _sample(0, 30, 5, 4)
    actual = _flat(retrieval_metrics(*wrong(embeddings, labels), ks=KS))
    assert actual != pytest.approx(_slow_metrics(embeddings, labels), rel=1e-3)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_order_of_items_does_not_matter_without_ties(seed: int) -> None:
    embeddings, labels = _sample(seed, 25, 8, 4)
    order = np.random.default_rng(seed).permutation(25)
    expected = _flat(retrieval_metrics(embeddings, labels))
    assert _flat(retrieval_metrics(embeddings[order], labels[order])) == pytest.approx(expected)


def _copies(seed: int) -> tuple[Floats, Floats]:
    """Queries, and a gallery of one item many times over, in sizes that leave BLAS kernels a remainder."""
    rng = np.random.default_rng(seed)
    dim, n_copies, n_queries = rng.integers((2, 2, 1), (300, 60, 9))
    return rng.normal(size=(n_queries, dim)), np.repeat(rng.normal(size=(1, dim)), n_copies, axis=0)


@pytest.mark.parametrize("seed", range(12))
def test_equal_items_are_ranked_by_gallery_position(seed: int) -> None:
    """Only the first of many copies is the query's mate, so only its position can put it first."""
    queries, copies = _copies(seed)
    metrics = retrieval_metrics(
        queries,
        np.zeros(len(queries), np.int64),
        gallery_embeddings=copies,
        gallery_labels=np.arange(len(copies)),
        ks=(1,),
    )
    assert metrics.hit_rate == {1: 1.0}


def test_map_at_1000_counts_the_first_thousand_ranks() -> None:
    """One query, 1,300 items of which 1,100 are mates: more than the cutoff, and some rank behind it."""
    rng = np.random.default_rng(0)
    gallery, labels = rng.normal(size=(1300, 6)), rng.permutation(1300) // 1100
    metrics = retrieval_metrics(
        gallery[:1], np.zeros(1, np.int64), gallery_embeddings=gallery, gallery_labels=labels
    )
    expected = _slow_metrics(gallery[:1], np.zeros(1, np.int64), gallery, labels)
    assert metrics.map_at_1000 == pytest.approx(expected["map_at_1000"], rel=1e-12)
    assert metrics.map_at_1000 != pytest.approx(metrics.mean_average_precision, rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"labels": [0, 1]}, "3 query embeddings, but 2 labels"),
        ({"gallery_embeddings": np.eye(3), "gallery_labels": [0]}, "3 gallery embeddings, but 1 labels"),
    ],
)
def test_lengths_that_differ_are_refused(arguments: dict[str, object], reason: str) -> None:
    with pytest.raises(EvaluationError, match=reason):
        retrieval_metrics(**{"embeddings": np.eye(3), "labels": [0, 0, 1], **arguments})


def test_no_query_with_a_mate_is_refused() -> None:
    with pytest.raises(ValueError, match="no query has a mate"):
        retrieval_metrics(np.eye(3), [0, 1, 2])


@given(
    with_mate=st.lists(st.integers(0, 9), min_size=1, max_size=20),
    without_mate=st.lists(st.integers(0, 9), min_size=1, max_size=20),
)
def test_auroc_is_the_share_of_pairs_in_order_with_ties_half(
    with_mate: list[int], without_mate: list[int]
) -> None:
    """Slow reference: one pair at a time."""
    wins = [(1.0 if one > other else 0.5 * (one == other)) for one in with_mate for other in without_mate]
    assert auroc(with_mate, without_mate) == pytest.approx(sum(wins) / len(wins))


@pytest.mark.parametrize("has_gallery", [False, True])
@pytest.mark.parametrize("offset", [0.0, 50.0])
def test_euclidean_ranks_are_those_of_a_loop_over_distances(has_gallery: bool, offset: float) -> None:
    """Of embeddings whose lengths differ, far from the origin too: cosines rank them otherwise."""
    rng = np.random.default_rng(0)
    embeddings = rng.normal(size=(40, 3)) * rng.uniform(0.5, 8.0, (40, 1)) + offset
    labels = rng.integers(0, 6, 40)
    own = np.arange(15, 40) if has_gallery else np.arange(40)
    asked = np.arange(15) if has_gallery else np.arange(40)
    hits, precisions = [], []
    for q in asked:
        database = [x for x in own if x != q]
        ranked = sorted(database, key=lambda x: float(np.linalg.norm(embeddings[q] - embeddings[x])))
        relevant = [labels[x] == labels[q] for x in ranked]
        if any(relevant):
            hits.append(relevant[0])
            found = [i for i, one in enumerate(relevant) if one]
            precisions.append(np.mean([(n + 1) / (i + 1) for n, i in enumerate(found)]))
    gallery = {"gallery_embeddings": embeddings[own], "gallery_labels": labels[own]} if has_gallery else {}
    metrics = retrieval_metrics(embeddings[asked], labels[asked], distance="euclidean", **gallery)
    assert metrics.hit_rate[1] == pytest.approx(np.mean(hits))
    assert metrics.mean_average_precision == pytest.approx(np.mean(precisions))
    by_cosine = retrieval_metrics(embeddings[asked], labels[asked], **gallery)
    assert by_cosine.mean_average_precision != pytest.approx(np.mean(precisions), rel=1e-3)
