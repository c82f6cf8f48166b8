"""Calibrator: measures the scores that the matcher gives, and chooses the threshold for a target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from vicinal.calibration import Target, choose_threshold
from vicinal.indexer.graph.neighbor_graph import N_NEIGHBORS
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.progress import OnProgress, no_progress
from vicinal.service.measuring.evidence import (
    ERROR_RATES,
    Apart,
    Evidence,
    SpaceOpis,
    gather_evidence,
    measure_opis,
    visit_evidence,
)
from vicinal.service.measuring.group_trials import (
    MetricTrial,
    choose_metric,
    measure_groups,
    require_group_target,
    require_reached,
)
from vicinal.service.measuring.measurement import Measurement, TrialScoring
from vicinal.service.measuring.queries import LabelledQueries, require_labels
from vicinal.service.measuring.records.curves import CalibrationCurves, gather_curves
from vicinal.service.measuring.records.points import CalibrationPoints, gather_points
from vicinal.service.measuring.records.record import (
    CalibrationRecord,
    CalibrationSource,
    Rates,
    StoredScores,
    new_calibration_id,
)
from vicinal.service.measuring.searches import DrawnSearches, with_telling
from vicinal.service.measuring.twins import GalleryPictures, searched_apart
from vicinal.service.measuring.visits import Visits, look_alikes
from vicinal.service.request_fields import MetricChoice
from vicinal.service.search.item_spaces import OpenedRefiner
from vicinal.service.search.pipeline import Group, Pipeline
from vicinal.service.search.scorer import Scorer

# Below this many labels a rate says more about these labels than about the next ones.
_FEW_LABELS = 30


@dataclass(frozen=True)
class Calibration:
    """Calibration: record, scores, curves and points are kept; `measured` and `opis` are not."""

    record: CalibrationRecord
    scores: StoredScores
    curves: CalibrationCurves
    points: CalibrationPoints
    measured: Measurement
    opis: dict[str, SpaceOpis]


class Calibrator:
    """Calibrates one pipeline on one gallery version, with a sample of queries beyond `most_queries`.

    `starting`, the threshold that the bundle brings, decides between two readings (`ThresholdChoice`). Where
    groups are decided, `metric` says how their score is chosen, and that of the pipeline's group is taken
    where it is None; with `may_decide_items`, items are decided where no metric of labels finds more.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        pipeline: Pipeline,
        *,
        most_queries: int = 2000,
        seed: int = 0,
        refinement: OpenedRefiner | None = None,
        visits: Visits | None = None,
        pictures: GalleryPictures | None = None,
        metric: MetricChoice | None = None,
        may_decide_items: bool = False,
        starting: float | None = None,
        device: str = "cpu",
    ) -> None:
        self.snapshot = snapshot
        self.scorer = Scorer(snapshot, pipeline, refinement)
        self.most_queries = most_queries
        self.seed = seed
        self.visits = visits
        self.pictures = pictures
        self.starting = starting
        self.device = device
        self.metric, self.may_decide_items = metric, may_decide_items
        self._labels = [label for label in snapshot.labels if label is not None]

    def leave_one_out(self) -> LabelledQueries:
        """Every labelled item of the version as a query."""
        return LabelledQueries.leave_one_out(self.snapshot, self.visits)

    def apart(self, queries: LabelledQueries) -> LabelledQueries:
        """Queries from outside as they are searched for: without the items whose very pictures they are."""
        if self.pictures is None or queries.positions is not None:
            return queries
        return searched_apart([queries], [self.pictures])[0]

    def measure(
        self,
        queries: LabelledQueries,
        target: Target,
        *,
        absent: float | None = None,
        on_progress: OnProgress = no_progress,
    ) -> Calibration:
        """Score the queries and choose the best threshold that holds the target. A precision is for the share
        `absent`, in [0, 1), of searches without a mate; that of the queries when None.
        """
        self._require(queries, self.scorer.pipeline.group, target)
        sampled = self.apart(queries.sample(self.most_queries, self.seed))
        keeps_apart = self.visits is not None and self.visits.largest > 1
        n_passes = 2 if keeps_apart else 1
        measured = self.score_items(sampled, pass_of(on_progress, 0, n_passes))
        together = None
        if keeps_apart:
            scoring = TrialScoring(self.snapshot, self.scorer, sampled, device=self.device)
            together = scoring.measure(pass_of(on_progress, 1, n_passes))
        measured, trial = self._decided(measured, target)
        if together is not None and measured.group is not None:
            together = measure_groups(together, measured.group, measured.folds)
        if absent is not None:
            measured = replace(measured, absent=absent)
        return self.calibration(sampled, measured, target, together=together, trial=trial)

    def measure_searches(
        self,
        drawn: DrawnSearches,
        target: Target,
        *,
        threshold: float | None = None,
        absent: float | None = None,
        on_progress: OnProgress = no_progress,
    ) -> Calibration:
        """Choose the best threshold that holds the target by answers to searches, each with the weight of its
        draw; strata have an edge at the threshold in force. Other arguments are those of `measure`.
        """
        self._require(drawn.labelled, self.scorer.pipeline.group, target)
        items = self._score_searches(drawn, on_progress)
        measured, trial = self._decided(items, target)
        searches = drawn.scored(measured, self.snapshot, self.scorer, threshold)
        measured = replace(measured, searches=searches, absent=absent)
        found = self.calibration(drawn.labelled, measured, target, trial=trial)
        record, warnings = found.record, (*drawn.warnings, *found.record.warnings)
        # A threshold of another score says nothing of this one.
        before = threshold if measured.group == self.scorer.pipeline.group else None
        evidence = record.evidence and with_telling(
            record.evidence, searches, target, record.threshold, before
        )
        return replace(found, record=record.model_copy(update={"warnings": warnings, "evidence": evidence}))

    def score_searches(
        self, drawn: DrawnSearches, threshold: float, on_progress: OnProgress = no_progress
    ) -> Measurement:
        """Score answered searches, with the weights of their draw; groups as the pipeline does."""
        measured = self.decide(self._score_searches(drawn, on_progress))
        return replace(measured, searches=drawn.scored(measured, self.snapshot, self.scorer, threshold))

    def _score_searches(self, drawn: DrawnSearches, on_progress: OnProgress) -> Measurement:
        asked = drawn.labelled
        scoring = TrialScoring(self.snapshot, self.scorer, asked, takes_out=False, device=self.device)
        return scoring.measure(on_progress)

    def score(self, queries: LabelledQueries, on_progress: OnProgress) -> Measurement:
        """Score all queries as a calibration does; nothing is chosen."""
        return self.decide(self.score_items(queries, on_progress))

    def score_items(self, queries: LabelledQueries, on_progress: OnProgress) -> Measurement:
        """Score all queries, item by item."""
        scoring = TrialScoring(self.snapshot, self.scorer, queries, visits=self.visits, device=self.device)
        return scoring.measure(on_progress)

    def decide(self, items: Measurement) -> Measurement:
        """Decide by the items themselves, or by groups of them, as the pipeline does."""
        group = self.scorer.pipeline.group
        return items if group is None else measure_groups(items, group)

    def _decided(self, items: Measurement, target: Target) -> tuple[Measurement, MetricTrial | None]:
        group = self.scorer.pipeline.group
        if group is None and self.may_decide_items:
            return items, MetricTrial(chosen="cosine", chose_labels=True, reason="no other was to be tried")
        if group is None or self.metric is None:
            return self.decide(items), None
        measured, trial = choose_metric(items, group.by, target, self.metric, seed=self.seed)
        if trial is None or not self.may_decide_items:
            return measured, trial
        trial = trial.model_copy(update={"chose_labels": True})
        return (measured if trial.chosen == "lda" else items), trial

    def calibration(
        self,
        queries: LabelledQueries,
        measured: Measurement,
        target: Target,
        *,
        together: Measurement | None = None,
        trial: MetricTrial | None = None,
    ) -> Calibration:
        """Choose the best threshold that holds the target; for arguments see `measure`."""
        self._require(queries, measured.group, target)
        trials, pipeline = measured.trials, self.scorer.pipeline
        threshold, leaves_one_out = choose_threshold(trials, target), queries.positions is not None
        apart = chosen = None
        if leaves_one_out and self.visits is not None and not self.visits.are_told:
            apart = Apart.of(measured, look_alikes(self.snapshot, self.visits))
            is_best_photo = measured.group is None or measured.group.score == "max"
            chosen = apart.choose(trials, target, threshold, self.starting if is_best_photo else None)
            threshold = threshold if chosen is None else chosen.threshold
        if measured.group is not None:
            require_reached(measured, target, threshold)
        pipeline = pipeline.model_copy(update={"group": measured.group})
        opis = measure_opis(measured)
        visits = None if self.visits is None else visit_evidence(self.visits, measured, together, target)
        evidence = gather_evidence(
            measured,
            target,
            threshold,
            opis=opis,
            visits=visits,
            leaves_one_out=leaves_one_out,
            apart=apart,
            chosen=chosen,
            metric=trial,
        )
        record = self._record(queries, measured, target, threshold, pipeline, evidence)
        curves = gather_curves(measured, threshold, snapshot=self.snapshot, queries=queries, opis=opis)
        scores = StoredScores.of(trials, measured.searched_scores, apart)
        points = gather_points(measured, snapshot=self.snapshot, queries=queries)
        return Calibration(record, scores, curves, points, measured, opis)

    def _record(
        self,
        queries: LabelledQueries,
        measured: Measurement,
        target: Target,
        threshold: float,
        pipeline: Pipeline,
        evidence: Evidence,
    ) -> CalibrationRecord:
        trials, manifest = measured.trials, self.snapshot.manifest
        shares = {name: evidence.rates[name].rate if name in evidence.rates else None for name in ERROR_RATES}
        return CalibrationRecord(
            format_version=2,
            id=new_calibration_id(),
            created_at=datetime.now(UTC),
            source=_source_of(measured, queries),
            target=target,
            threshold=threshold,
            rates=Rates(**shares, hit_rate_1=measured.hit_rate_1),
            evidence=evidence,
            pipeline=pipeline,
            bundle=manifest.bundle,
            version=manifest.version,
            n_items=manifest.n_items,
            n_with_mate=len(trials.best_mate_scores),
            n_without_mate=len(trials.best_scores_without_mate),
            n_labels=len(set(queries.labels)),
            seed=self.seed,
            warnings=tuple(self._warnings(queries, measured)),
        )

    def _require(self, queries: LabelledQueries, group: Group | None, target: Target) -> None:
        require_labels(self._labels, queries.labels)
        if group is not None:
            require_group_target(group, target)

    def _warnings(self, queries: LabelledQueries, measured: Measurement) -> Iterator[str]:
        yield from queries.warnings
        counts, n_items = Counter(self._labels), len(self.snapshot)
        single = sum(count == 1 for count in counts.values())
        unlabelled = n_items - len(self._labels)
        if queries.positions is not None and single:
            yield f"labels with one item and no mate, counted only as negative: {single}"
        rerank = self.scorer.pipeline.rerank
        longest = N_NEIGHBORS - rerank.n_listed if rerank.method != "off" else n_items
        large = sum(count > longest for count in counts.values())
        if queries.positions is not None and large:
            yield (
                f"labels with more than {longest} items: {large}; with a whole label taken out, the stored "
                f"lists of {N_NEIGHBORS} neighbors can run out, and FPIR be measured slightly too low"
            )
        if unlabelled:
            yield f"items without a label, left out of all pairs: {unlabelled}"
        if self.visits is not None and self.visits.largest > longest:
            yield (
                f"the largest visit has {self.visits.largest} items: with it taken out, the stored lists "
                f"of {N_NEIGHBORS} neighbors can run out, and contextual similarities be measured too low"
            )
        with_mate = queries.labels[measured.mates.has_mate]
        for what, labels in (("FNIR", with_mate), ("FPIR", measured.names[measured.codes_without])):
            n_labels = len(set(labels.tolist()))
            if n_labels < _FEW_LABELS:
                yield f"few labels stand behind {what} ({n_labels}): other labels can behave differently"


def _source_of(measured: Measurement, queries: LabelledQueries) -> CalibrationSource:
    if measured.searches is not None:
        return "searches"
    return "queries" if queries.positions is None else "leave_one_out"


def pass_of(on_progress: OnProgress, number: int, n_passes: int) -> OnProgress:
    """Progress of one of several passes over as many queries."""

    def report(stage: str, done: int, n_queries: int, _note: str = "", /) -> None:
        on_progress(stage, number * n_queries + done, n_passes * n_queries)

    return report
