"""Calibrator: measures the scores that the matcher gives, and chooses the threshold for a target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from calibration import CalibrationError, Target, Trials, choose_threshold, operating_curve
from indexer.neighbor_graph import N_NEIGHBORS
from indexer.snapshot import Snapshot
from models.similarity import FloatArray
from service.calibration_store import CalibrationRecord, Rates, new_calibration_id
from service.pipeline import Pipeline
from service.scorer import ScoredCandidates, Scorer, similarity_score

__all__ = ["Calibrator", "LabelledQueries"]

Floats = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]
OnProgress = Callable[[int, int], None]

_CHUNK = 64
# As many pairs as fit in 400 MB; queries are sampled to stay below.
_MOST_PAIRS = 50_000_000
_N_CANDIDATES = 100
# Below this many labels a rate says more about these labels than about the next ones.
_FEW_LABELS = 30
_MOST_CANDIDATES = 1024


@dataclass(frozen=True)
class LabelledQueries:
    """Queries whose right answer is known.

    Attributes:
        embeddings: (n, d) float32, L2-normalized.
        labels: n labels; one that the gallery lacks makes a query without a mate.
        positions: Position of each query in the gallery, or None when they come from outside.
    """

    embeddings: FloatArray
    labels: npt.NDArray[np.object_]
    positions: Positions | None = None

    @classmethod
    def leave_one_out(cls, snapshot: Snapshot) -> LabelledQueries:
        """Every labelled item of a gallery as a query."""
        positions = np.flatnonzero(np.array([label is not None for label in snapshot.labels], dtype=bool))
        return cls(np.asarray(snapshot.embeddings[positions]), snapshot.labels[positions], positions)

    def sample(self, n: int, seed: int) -> LabelledQueries:
        """At most n of the queries, drawn without replacement."""
        if n >= len(self.labels):
            return self
        chosen = np.sort(np.random.default_rng(seed).choice(len(self.labels), n, replace=False))
        positions = None if self.positions is None else self.positions[chosen]
        return LabelledQueries(self.embeddings[chosen], self.labels[chosen], positions)


class Calibrator:
    """Calibrates one pipeline on one gallery version.

    Args:
        snapshot: The gallery version; its labelled items are the possible mates.
        pipeline: The pipeline to calibrate.
        max_queries: Most queries that are scored; more are sampled.
        seed: Seed of the sample.
    """

    def __init__(
        self, snapshot: Snapshot, pipeline: Pipeline, *, max_queries: int = 2000, seed: int = 0
    ) -> None:
        self.snapshot = snapshot
        self.scorer = Scorer(snapshot, pipeline)
        self.max_queries = max_queries
        self.seed = seed
        self._labels = snapshot.labels
        self._is_labelled = np.array([label is not None for label in self._labels], dtype=bool)

    def run(
        self, queries: LabelledQueries, target: Target, *, on_progress: OnProgress | None = None
    ) -> CalibrationRecord:
        """Score the queries and choose the lowest threshold that holds the target.

        Args:
            queries: Leave-one-out queries, or labelled ones from outside.
            target: The rate to hold.
            on_progress: Called with finished and all queries.

        Raises:
            CalibrationError: No labels, one label only, or too few trials for the target.
        """
        self._check(queries)
        limit = min(self.max_queries, max(1, _MOST_PAIRS // len(self.snapshot)))
        sampled = queries.sample(limit, self.seed)
        trials, hit_rate = self._measure(sampled, on_progress or (lambda _done, _total: None))
        threshold = choose_threshold(trials, target)
        curve = operating_curve(trials, [threshold])
        manifest = self.snapshot.manifest
        return CalibrationRecord(
            id=new_calibration_id(),
            created_at=datetime.now(UTC),
            source="queries" if queries.positions is None else "leave_one_out",
            target=target,
            threshold=threshold,
            rates=Rates(
                far=_rate(curve.far),
                frr=_rate(curve.frr),
                fpir=_rate(curve.fpir),
                fnir=_rate(curve.fnir),
                hit_rate_1=hit_rate,
            ),
            pipeline=self.scorer.pipeline,
            bundle=manifest.bundle,
            version=manifest.version,
            n_items=manifest.n_items,
            n_negative_pairs=len(trials.non_mate_scores),
            n_positive_pairs=len(trials.mate_scores),
            n_with_mate=len(trials.best_mate_scores),
            n_without_mate=len(trials.best_scores_without_mate),
            n_labels=len(set(sampled.labels)),
            n_labels_without_mate=len(self._labels_without_mate(sampled)),
            seed=self.seed,
            warnings=self._warnings(sampled),
        )

    def _check(self, queries: LabelledQueries) -> None:
        if not self._is_labelled.any():
            raise CalibrationError(
                "the gallery has no labels: index it from class subfolders or a manifest with a label column"
            )
        n_labels = len(set(queries.labels) | set(self._labels[self._is_labelled]))
        if n_labels < 2:
            raise CalibrationError("all images carry one label: a calibration needs negative pairs")

    def _measure(self, queries: LabelledQueries, report: OnProgress) -> tuple[Trials, float | None]:
        n = len(queries.labels)
        parts = []
        for start in range(0, n, _CHUNK):
            rows = slice(start, min(start + _CHUNK, n))
            parts.append(self._measure_chunk(queries, rows))
            report(rows.stop, n)
        hits = np.concatenate([part.hits for part in parts])
        trials = Trials(
            mate_scores=np.concatenate([part.mates for part in parts]),
            non_mate_scores=np.concatenate([part.non_mates for part in parts]),
            best_mate_scores=np.concatenate([part.best_mates for part in parts]),
            best_scores_without_mate=self._scores_without_mate(queries, parts),
        )
        return trials, float(hits.mean()) if len(hits) else None

    def _measure_chunk(self, queries: LabelledQueries, rows: slice) -> _Measured:
        embeddings, labels = queries.embeddings[rows], queries.labels[rows]
        own = None if queries.positions is None else [np.array([p]) for p in queries.positions[rows]]
        scored = self.scorer.score(embeddings, _N_CANDIDATES, excluded=own)
        if (scored.contextual[:, -1] > 0.0).any():
            # The last candidate still shares neighbors, as among many duplicates: so may the next items.
            scored = self.scorer.score(embeddings, _MOST_CANDIDATES, excluded=own)
        scores = self._all_scores(embeddings, scored)
        is_mate = (labels[:, None] == self._labels) & self._is_labelled
        counts = np.broadcast_to(self._is_labelled, scores.shape).copy()
        if queries.positions is not None:
            counts[np.arange(len(labels)), queries.positions[rows]] = False
        is_mate &= counts
        has_mate = is_mate.any(axis=1)
        best = np.where(is_mate, scores, -np.inf).max(axis=1)
        top = scored.positions[:, 0]
        return _Measured(
            mates=scores[is_mate],
            non_mates=scores[counts & ~is_mate],
            best_mates=best[has_mate],
            hits=is_mate[np.flatnonzero(has_mate), top[has_mate]],
            has_mate=has_mate,
            best_scores=scored.scores[:, 0],
        )

    def _all_scores(self, embeddings: FloatArray, scored: ScoredCandidates) -> Floats:
        """(B, n) final score of every item: items that are no candidates share no neighbor."""
        weight = self.scorer.pipeline.rerank.context_weight
        similarities = np.clip(embeddings @ np.asarray(self.snapshot.embeddings).T, -1.0, 1.0)
        scores = similarity_score(similarities, weight)
        rows, columns = np.nonzero(scored.positions >= 0)
        scores[rows, scored.positions[rows, columns]] = scored.scores[rows, columns]
        return scores

    def _scores_without_mate(self, queries: LabelledQueries, parts: Sequence[_Measured]) -> Floats:
        """Best score of each query without a mate; where all have mates, with each one's label taken out."""
        has_mate = np.concatenate([part.has_mate for part in parts])
        if queries.positions is None and not has_mate.all():
            return np.concatenate([part.best_scores for part in parts])[~has_mate]
        positions_of = _positions_by_label(self._labels)
        best = []
        for start in range(0, len(queries.labels), _CHUNK):
            labels = queries.labels[start : start + _CHUNK]
            gone = [positions_of.get(label, np.empty(0, np.int64)) for label in labels]
            scored = self.scorer.score(queries.embeddings[start : start + _CHUNK], 1, excluded=gone)
            best.append(scored.scores[:, 0])
        scores = np.concatenate(best)
        # A label that fills the whole gallery leaves nothing to be drawn to.
        return np.where(np.isfinite(scores), scores, 0.0)

    def _warnings(self, queries: LabelledQueries) -> tuple[str, ...]:
        counts = Counter(label for label in self._labels if label is not None)
        single = sum(count == 1 for count in counts.values())
        unlabelled = len(self._labels) - sum(counts.values())
        found = []
        if queries.positions is not None and single:
            found.append(f"{single} labels have one image and no mate: they count only as negatives")
        longest = N_NEIGHBORS - self.scorer.pipeline.rerank.n_listed
        large = sum(count > longest for count in counts.values())
        if large and self.scorer.pipeline.rerank.method != "off":
            found.append(
                f"{large} labels have more than {longest} images: with a whole label taken out, the stored "
                f"lists of {N_NEIGHBORS} neighbors can run out, and FPIR be measured slightly too low"
            )
        if unlabelled:
            found.append(f"{unlabelled} items have no label and were left out of all pairs")
        for what, labels in (
            ("FNIR", set(queries.labels)),
            ("FPIR", self._labels_without_mate(queries)),
        ):
            if len(labels) < _FEW_LABELS:
                found.append(
                    f"only {len(labels)} labels stand behind {what}: other labels can behave differently"
                )
        return tuple(found)

    def _labels_without_mate(self, queries: LabelledQueries) -> set[str]:
        """Labels that the gallery lacks; all labels where each query's own was taken out instead."""
        known = set(self._labels[self._is_labelled])
        return (set(queries.labels) - known) or set(queries.labels)


@dataclass(frozen=True)
class _Measured:
    mates: Floats
    non_mates: Floats
    best_mates: Floats
    hits: npt.NDArray[np.bool_]
    has_mate: npt.NDArray[np.bool_]
    best_scores: Floats


def _positions_by_label(labels: npt.NDArray[np.object_]) -> dict[str, Positions]:
    positions: dict[str, list[int]] = {}
    for position, label in enumerate(labels):
        if label is not None:
            positions.setdefault(str(label), []).append(position)
    return {label: np.array(own, dtype=np.int64) for label, own in positions.items()}


def _rate(values: Floats) -> float | None:
    return None if np.isnan(values[0]) else float(values[0])
