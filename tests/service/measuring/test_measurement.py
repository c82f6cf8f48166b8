"""Trial scoring: each score stands under the right labels, and answers are those of a search."""

from __future__ import annotations

import numpy as np
import pytest

from tests.service.pipelines import CONTEXTUAL
from tests.service.types import WriteGallery
from vicinal.calibration import label_counts
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.indexer.views.view import GalleryView
from vicinal.models.similarity import normalize
from vicinal.service.measuring import pairs
from vicinal.service.measuring.measurement import Measurement, TrialScoring
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.search.scorer import Scorer

THRESHOLD = 0.75
SIZES = (3, 5, 1, 7, 4, 5)


@pytest.fixture
def snapshot(write_gallery: WriteGallery) -> Snapshot:
    """Six overlapping labels of uneven sizes, and three items without a label."""
    rng = np.random.default_rng(5)
    labels = [f"label {i}" for i, size in enumerate(SIZES) for _ in range(size)]
    centers = np.repeat(rng.normal(size=(len(SIZES), 6)), SIZES, axis=0)
    embeddings = np.concatenate([centers + 0.5 * rng.normal(size=centers.shape), rng.normal(size=(3, 6))])
    return write_gallery(normalize(embeddings), [*labels, None, None, None])


def measure(snapshot: Snapshot, queries: LabelledQueries | None = None) -> Measurement:
    given = queries or LabelledQueries.leave_one_out(snapshot)
    scorer = Scorer(GalleryView.of(snapshot), CONTEXTUAL)
    return TrialScoring(snapshot, scorer, given).measure(lambda *_progress: None)


def search(snapshot: Snapshot, embedding, excluded) -> list[tuple[int, float]]:
    """Positions and scores that one search returns, best first."""
    scored = Scorer(GalleryView.of(snapshot), CONTEXTUAL).score(embedding[None], 100, excluded=[excluded])
    found = zip(scored.positions[0].tolist(), scored.scores[0].tolist(), strict=True)
    return [(position, score) for position, score in found if position >= 0]


def of_label(snapshot: Snapshot, label: str):
    return np.flatnonzero([one == label for one in snapshot.labels])


def test_scores_of_pairs_are_those_of_their_labels(snapshot: Snapshot) -> None:
    """Accepted negative pairs of each label, counted over searches."""
    slow = np.zeros(len(SIZES), dtype=int)
    for i in range(sum(SIZES)):
        for position, score in search(snapshot, snapshot.embeddings[i], np.array([i])):
            other = snapshot.labels[position]
            if other is not None and other != snapshot.labels[i] and score >= THRESHOLD:
                slow[int(snapshot.labels[i][-1])] += 1
                slow[int(other[-1])] += 1
    assert slow.any()
    assert label_counts(measure(snapshot).trials, "far", THRESHOLD).events.tolist() == slow.tolist()


def test_a_precision_is_that_of_searching_with_and_without_each_label(snapshot: Snapshot) -> None:
    mates = returned = 0
    for i in range(sum(SIZES)):
        label = snapshot.labels[i]
        for excluded in (np.array([i]), of_label(snapshot, label)):
            for position, score in search(snapshot, snapshot.embeddings[i], excluded):
                if score >= THRESHOLD and snapshot.labels[position] is not None:
                    returned += 1
                    mates += snapshot.labels[position] == label
    found = label_counts(measure(snapshot).trials, "precision", THRESHOLD)
    assert (found.n_events, found.n_trials) == (mates, returned)


@pytest.mark.slow
@pytest.mark.parametrize("most_listed", [500, 20_000])
def test_pairs_that_are_only_counted_are_those_that_would_be_listed(
    write_gallery: WriteGallery, monkeypatch: pytest.MonkeyPatch, most_listed: int
) -> None:
    """Items without a label among them, and more items than a search fetches."""
    rng = np.random.default_rng(7)
    centers = np.repeat(rng.normal(size=(30, 8)), 10, axis=0)
    labels = [None if i % 7 == 3 else f"label {i // 10:02}" for i in range(300)]
    snapshot = write_gallery(normalize(centers + rng.normal(size=centers.shape)), labels)
    whole = measure(snapshot)
    monkeypatch.setattr(pairs, "listed_of", lambda *_numbers: most_listed)
    short = measure(snapshot)
    for space in ("initial", "final"):
        found, exact = short.trials_in(space), whole.trials_in(space)
        assert exact.low_pairs is None
        assert found.low_pairs is not None
        assert len(found.non_mate_scores) < len(exact.non_mate_scores) == found.n_non_mates
        low = found.low_pairs
        at = np.append(low.ceiling, np.quantile(exact.non_mate_scores, [0.1, 0.5, 0.9, 0.99]))
        for threshold in at:
            counts, expected = (label_counts(one, "far", threshold) for one in (found, exact))
            assert counts.trials.tolist() == expected.trials.tolist()
            if threshold >= low.ceiling:
                assert counts.events.tolist() == expected.events.tolist()
            edge = low.edges[np.searchsorted(low.edges, threshold, side="right") - 1]
            assert (counts.events >= expected.events).all()
            assert (counts.events <= label_counts(exact, "far", edge).events).all()


@pytest.mark.parametrize("is_crowded", [False, True])
def test_what_is_found_does_not_depend_on_who_was_measured_before(
    write_gallery: WriteGallery, monkeypatch: pytest.MonkeyPatch, is_crowded: bool
) -> None:
    """Copies of one picture make a crowd: queries after them are searched for as these were."""
    rng = np.random.default_rng(0)
    others = normalize(rng.normal(size=(130, 8)))
    embeddings = np.concatenate([np.repeat(others[:1], 150 * is_crowded, axis=0), others])
    snapshot = write_gallery(embeddings, [f"label {i // 2}" for i in range(len(embeddings))])
    scorer, every = Scorer(snapshot, CONTEXTUAL), LabelledQueries.leave_one_out(snapshot)
    asked, score = [], scorer.score
    monkeypatch.setattr(scorer, "score", lambda few, n, **more: asked.append(n) or score(few, n, **more))

    def found(scoring: TrialScoring, rows: np.ndarray) -> list[bytes]:
        scored = scoring._score(every.take(rows), [np.array([row]) for row in rows])
        return [one.tobytes() for one in (scored.positions, scored.scores, scored.contextual)]

    after = TrialScoring(snapshot, scorer, every)
    crowd, next_ones, last = np.split(np.arange(len(embeddings))[:15], 3)
    last += len(embeddings) - 15
    in_turn = [found(after, rows) for rows in (crowd, next_ones, last)]
    assert asked == ([100, 1024, 1024, 1024, 100] if is_crowded else [100, 100, 100])
    assert in_turn == [
        found(TrialScoring(snapshot, scorer, every), rows) for rows in (crowd, next_ones, last)
    ]
