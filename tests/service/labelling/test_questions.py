"""Questions: which pairs are asked about, and how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from vicinal.calibration import Target
from vicinal.calibration.arrays import FloatArray
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.similarity import normalize
from vicinal.service.labelling import questions
from vicinal.service.labelling.questions import (
    ScoredPairs,
    next_block,
    posterior,
)
from vicinal.service.search.pipeline import Pipeline, Rerank
from vicinal.service.search.scorer import Scorer

TARGET = Target(rate="precision", value=0.9)
OFF = Pipeline(rerank=Rerank(method="off"))
N_LABELS, VIEWS = 20, 6
LABELS = np.repeat(np.arange(N_LABELS), VIEWS)

WriteGallery = Callable[..., Snapshot]


def embeddings() -> FloatArray:
    """Photos of things, of which some are hard to tell from others."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(N_LABELS, 8))
    return normalize((centers[LABELS] + 0.45 * rng.normal(size=(len(LABELS), 8))).astype(np.float32))


@pytest.fixture(scope="module")
def snapshot(write_gallery: WriteGallery) -> Snapshot:
    return write_gallery(embeddings())


@pytest.fixture(scope="module")
def pairs(snapshot: Snapshot) -> ScoredPairs:
    return ScoredPairs.of(Scorer(snapshot, OFF), seed=0)


def is_same(pairs: ScoredPairs, pair: int) -> bool:
    return bool(LABELS[pairs.queries[pair]] == LABELS[pairs.items[pair]])


def answer_all(
    pairs: ScoredPairs, n: int, *, errs: float = 0.0, seed: int = 0
) -> tuple[list[int], list[bool | None]]:
    """Answers to the first n questions or a few more."""
    rng = np.random.default_rng(seed)
    asked: list[int] = []
    answers: list[bool | None] = []
    while len(asked) < n:
        found = posterior(pairs, asked, answers, seed)
        block = next_block(pairs, asked, answers, found=found, target=TARGET, seed=seed)
        for question in block:
            asked.append(question.pair)
            answers.append(is_same(pairs, question.pair) != bool(rng.random() < errs))
    return asked, answers


def test_pairs_are_what_a_search_for_each_item_shows(snapshot: Snapshot, pairs: ScoredPairs) -> None:
    n = len(snapshot)
    assert len(pairs.scores) + pairs.n_others == n * (n - 1)
    assert (pairs.queries != pairs.items).all()
    assert Counter(pairs.queries.tolist()) == dict.fromkeys(range(n), 100)
    own = np.flatnonzero(pairs.queries == 7)
    found = Scorer(snapshot, OFF).score(
        np.asarray(snapshot.embeddings[7:8]), 100, excluded=[np.array([7])], items=np.array([7])
    )
    assert pairs.items[own].tolist() == found.positions[0].tolist()
    assert pairs.scores[own].tolist() == found.scores[0].tolist()
    assert pairs.top_scores[7] == found.scores[0, 0]


@pytest.mark.slow
def test_two_photos_are_asked_about_once_but_for_repeated_questions(pairs: ScoredPairs) -> None:
    asked, _ = answer_all(pairs, 120)
    times = Counter(pairs.photos[one] for one in asked)
    repeated = sum(count - 1 for count in times.values())
    # Every eighth question is one that was asked before, but for the first eight.
    assert repeated == 120 // 8 - 1


def test_every_pair_of_a_stratum_is_as_probable(pairs: ScoredPairs) -> None:
    strata = pairs.own_strata
    stratum = int(np.argmax(np.bincount(strata)))
    own = set(np.flatnonzero(strata == stratum).tolist())
    drawn = [questions._Drawing(pairs, [], np.random.default_rng(seed)).draw(stratum) for seed in range(300)]
    assert set(drawn) <= own
    # 300 draws of so many pairs meet each other as often as by chance.
    expected = len(own) * (1.0 - (1.0 - 1.0 / len(own)) ** 300)
    assert len(set(drawn)) == pytest.approx(expected, abs=0.1 * expected)
