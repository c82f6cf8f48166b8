"""Evaluation of a labelled set: who searches whom, and that each figure is that of its own function."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from vicinal.calibration import opis_floor
from vicinal.models.errors import EvaluationError
from vicinal.training.evaluation import EvaluationSettings, auroc, clustering_nmi, evaluate, retrieval_metrics

QUICK = EvaluationSettings(ks=(1, 2), n_repetitions=3)
ROLES = {"gallery": 24, "query": 16, "absent": 9}


def _sample(seed: int = 0) -> tuple[NDArray[np.float64], NDArray[np.str_], NDArray[np.str_]]:
    """Six labels in gallery and queries, three others absent, in mixed order."""
    rng = np.random.default_rng(seed)
    roles = rng.permutation(np.repeat(list(ROLES), list(ROLES.values())))
    classes = np.arange(len(roles)) % 6
    classes[roles == "absent"] = 6 + np.arange(ROLES["absent"]) % 3
    embeddings = rng.normal(size=(9, 8))[classes] + rng.normal(size=(len(roles), 8))
    return embeddings, np.array([f"class-{one}" for one in classes]), roles


def _unit(embeddings: NDArray[np.float64]) -> NDArray[np.float64]:
    return embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)


def test_queries_search_the_gallery_by_their_roles() -> None:
    embeddings, labels, roles = _sample()
    query, gallery = roles == "query", roles == "gallery"
    expected = retrieval_metrics(
        embeddings[query],
        labels[query],
        gallery_embeddings=embeddings[gallery],
        gallery_labels=labels[gallery],
        ks=(1, 2),
    )
    figures = evaluate(embeddings, labels, roles, settings=QUICK).figures
    assert expected.figures.items() <= figures.items()
    assert (figures["n_gallery"], figures["n_queries"], figures["n_absent"]) == (24, 16, 9)


def test_auroc_compares_top_similarities_with_and_without_a_mate() -> None:
    embeddings, labels, roles = _sample()
    unit = _unit(embeddings)
    tops = (unit @ unit[roles == "gallery"].T).max(axis=1)
    figures = evaluate(embeddings, labels, roles, settings=QUICK).figures
    assert figures["auroc"] == pytest.approx(auroc(tops[roles == "query"], tops[roles == "absent"]))


def test_clustering_and_opis_are_over_gallery_and_queries() -> None:
    embeddings, labels, roles = _sample()
    known = roles != "absent"
    figures = evaluate(embeddings, labels, roles, settings=QUICK).figures
    floor = opis_floor(embeddings[known], labels[known], n_repetitions=3)
    assert figures["nmi"] == pytest.approx(clustering_nmi(embeddings[known], labels[known]))
    assert figures["opis"] == pytest.approx(floor.measured.opis, rel=1e-4)
    assert figures["opis_floor"] == pytest.approx(floor.opis, rel=1e-4)


def test_without_a_gallery_all_are_searched_among_themselves() -> None:
    embeddings, labels, _ = _sample()
    figures = evaluate(embeddings, labels, settings=QUICK).figures
    assert retrieval_metrics(embeddings, labels, ks=(1, 2)).figures.items() <= figures.items()
    assert (figures["n_gallery"], figures["n_queries"], "auroc" in figures) == (49, 49, False)


def test_an_opis_that_cannot_be_is_noted() -> None:
    """One label, and an absent one: there are no negative pairs."""
    roles = ["test", "test", "test", "absent"]
    evaluation = evaluate(np.eye(4) + 0.1, list("aaab"), roles, settings=QUICK)
    assert "opis" not in evaluation.figures
    assert evaluation.notes == (
        "OPIS is not measured: all embeddings carry one label: there are no negative pairs",
    )


@pytest.mark.parametrize(
    ("labels", "roles", "reason"),
    [
        ("aab", ["test"] * 3, "4 embeddings, but 3 labels"),
        ("aabb", ["test"] * 3, "4 labels and 3 roles"),
        ("aabb", ["test", "test", "test", "probe"], "role 'probe'"),
        ("aabb", ["query", "test", "test", "test"], "none with the role 'gallery'"),
        ("aabb", ["test", "absent", "test", "test"], "its label 'a' is in the gallery"),
        ("abcd", ["test"] * 4, "no query has a mate"),
        ("aabb", ["unused"] * 4, "no query has a mate"),
    ],
)
def test_sets_that_contradict_themselves_are_refused(labels: str, roles: list[str], reason: str) -> None:
    with pytest.raises(EvaluationError, match=reason):
        evaluate(np.eye(4), list(labels), roles, settings=QUICK)


def test_super_labels_are_ranked_by_too() -> None:
    """An image of another class of its super-label is a mate."""
    embeddings, labels, roles = _sample()
    groups = np.array([f"group-{int(label[-1]) % 3}" for label in labels])
    figures = evaluate(embeddings, labels, roles, super_labels=groups, settings=QUICK).figures
    query, gallery = roles == "query", roles == "gallery"
    precisions = []
    for row, group in zip(_unit(embeddings[query]), groups[query], strict=True):
        order = np.argsort(-(_unit(embeddings[gallery]) @ row))
        found = np.flatnonzero(groups[gallery][order] == group)
        precisions.append(np.mean((np.arange(len(found)) + 1) / (found + 1)))
    assert figures["coarse_mean_average_precision"] == pytest.approx(np.mean(precisions))
    one = evaluate(embeddings, labels, roles, super_labels=["all"] * len(labels), settings=QUICK).figures
    assert not [name for name in one if name.startswith("coarse_")]


def test_embeddings_are_compared_as_they_are_where_that_is_asked_for() -> None:
    embeddings, labels, _ = _sample()
    embeddings = embeddings * np.random.default_rng(1).uniform(0.2, 5.0, (len(labels), 1))
    settings = EvaluationSettings(ks=(1,), distance="euclidean", nmi=False, opis=False)
    figures = evaluate(embeddings, labels, settings=settings).figures
    expected = retrieval_metrics(embeddings, labels, ks=(1,), distance="euclidean").figures
    assert expected.items() <= figures.items()
