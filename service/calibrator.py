"""Calibrator: measures the scores that the matcher gives, and chooses the threshold for a target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from calibration import (
    OneLabelError,
    Target,
    Trials,
    UnlabelledGalleryError,
    choose_threshold,
    operating_curve,
)
from indexer.neighbor_graph import N_NEIGHBORS
from indexer.snapshot import Snapshot
from service.calibration_evidence import gather_evidence
from service.calibration_store import CalibrationRecord, Rates, new_calibration_id
from service.labelled_queries import LabelledQueries
from service.pipeline import Pipeline
from service.scorer import Scorer
from service.stored_scores import StoredScores
from service.trial_scoring import TrialScoring

__all__ = ["Calibrator", "LabelledQueries"]

Floats = npt.NDArray[np.float64]
OnProgress = Callable[[int, int], None]

# As many pairs as fit, with their labels, in 600 MB; queries are sampled to stay below.
_MOST_PAIRS = 50_000_000
# Below this many labels a rate says more about these labels than about the next ones.
_FEW_LABELS = 30


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
        self,
        queries: LabelledQueries,
        target: Target,
        *,
        coarse_labels: Mapping[str, str] | None = None,
        on_progress: OnProgress | None = None,
    ) -> CalibrationRecord:
        """The record of `calibrate` without the scores behind it."""
        return self.calibrate(queries, target, coarse_labels=coarse_labels, on_progress=on_progress)[0]

    def calibrate(
        self,
        queries: LabelledQueries,
        target: Target,
        *,
        coarse_labels: Mapping[str, str] | None = None,
        on_progress: OnProgress | None = None,
    ) -> tuple[CalibrationRecord, StoredScores]:
        """Score the queries and choose the best threshold that holds the target.

        Args:
            queries: Leave-one-out queries, or labelled ones from outside.
            target: What to hold.
            coarse_labels: Coarse label of each label, to tell near from far queries without a mate.
            on_progress: Called with finished and all queries.

        Returns:
            The record, and the scores that other thresholds can be tried on.

        Raises:
            CalibrationError: No labels, one label only, too few trials for the target or none that can
                reach it, or a label without a coarse one.
        """
        self._check(queries)
        limit = min(self.max_queries, max(1, _MOST_PAIRS // len(self.snapshot)))
        sampled = queries.sample(limit, self.seed)
        gallery_labels = frozenset(self._labels[self._is_labelled])
        scoring = TrialScoring(self.snapshot, self.scorer, sorted(gallery_labels | set(sampled.labels)))
        measured = scoring.measure(sampled, on_progress or (lambda _done, _total: None))
        trials = measured.trials
        threshold = choose_threshold(trials, target)
        evidence = gather_evidence(
            measured, target, threshold, gallery_labels=gallery_labels, coarse_labels=coarse_labels
        )
        manifest = self.snapshot.manifest
        record = CalibrationRecord(
            format_version=2,
            id=new_calibration_id(),
            created_at=datetime.now(UTC),
            source="queries" if queries.positions is None else "leave_one_out",
            target=target,
            threshold=threshold,
            rates=_rates(trials, threshold, measured.hit_rate_1),
            evidence=evidence,
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
        return record, StoredScores.of(trials, measured.top_scores)

    def _check(self, queries: LabelledQueries) -> None:
        if not self._is_labelled.any():
            raise UnlabelledGalleryError(
                "the gallery has no labels: index it from class subfolders or a manifest with a label column"
            )
        n_labels = len(set(queries.labels) | set(self._labels[self._is_labelled]))
        if n_labels < 2:
            raise OneLabelError(
                "all images carry one label, so that there are no negative pairs: add images of other labels"
            )

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


def _rates(trials: Trials, threshold: float, hit_rate_1: float | None) -> Rates:
    curve = operating_curve(trials, [threshold])
    return Rates(
        far=_rate(curve.far),
        frr=_rate(curve.frr),
        fpir=_rate(curve.fpir),
        fnir=_rate(curve.fnir),
        hit_rate_1=hit_rate_1,
    )


def _rate(values: Floats) -> float | None:
    return None if np.isnan(values[0]) else float(values[0])
