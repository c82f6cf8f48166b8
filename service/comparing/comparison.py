"""Comparison: variants of a gallery, tried on the same queries, each with a threshold of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from vicinal.calibration import CalibrationError, Target, UnlabelledGalleryError
from vicinal.calibration.arrays import Objects
from vicinal.indexer.errors import SourceError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.sources import Refuse, SourceOptions, refuse_none
from vicinal.models.progress import OnProgress, no_progress
from vicinal.service.comparing.figures import (
    Answers,
    ComparedSearches,
    Outcomes,
    count_flips,
)
from vicinal.service.comparing.record import (
    ComparedFlips,
    Comparison,
    ComparisonRequest,
    FigureName,
    PairedFigure,
    Variant,
    asked_error,
    recommend,
)
from vicinal.service.comparing.store import ComparisonStore, keep_calibration
from vicinal.service.comparing.variants import (
    OpenedVariant,
    common_items,
    of_other_items,
    open_variants,
    read_common,
)
from vicinal.service.errors import ComparisonNotFoundError, RequestError
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.measuring.calibrator import Calibration, Calibrator, pass_of
from vicinal.service.measuring.evidence import measure_opis
from vicinal.service.measuring.measurement import Measurement
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.measuring.records.record import CalibrationRecord
from vicinal.service.measuring.records.store import Attached, CalibrationStore
from vicinal.service.measuring.twins import GalleryPictures, searched_apart
from vicinal.service.measuring.visits import Visits, find_visits, visit_column
from vicinal.service.search.item_spaces import SearchSpace
from vicinal.service.search.pipeline import starting_threshold
from vicinal.service.words import number_of

# Below this many labels a percentile interval is too short.
_FEW_LABELS = 30


@dataclass(frozen=True)
class ComparisonPlan:
    """Plan of a comparison; without `queries` it leaves items out."""

    gallery: Gallery
    bundles: ServedBundles
    request: ComparisonRequest = field(default_factory=ComparisonRequest)
    queries: Path | str | None = None
    refuse: Refuse = refuse_none
    on_stage: OnProgress = no_progress
    options: SourceOptions | None = None


def compare(plan: ComparisonPlan, name: str) -> Comparison:
    """Try the variants, keep the comparison, and make the calibrations of other versions ready."""
    store = ComparisonStore(plan.gallery.path)
    try:
        return store.find(name)
    except ComparisonNotFoundError:
        made = _Trial(plan, name).make()
    store.keep(made)
    return made


@dataclass
class _Tried:
    """Variant with what was found of it, and why something is missing."""

    opened: OpenedVariant
    record: CalibrationRecord | None
    made: Attached | None = None
    outcomes: Outcomes | None = None
    figures: dict[FigureName, PairedFigure] = field(default_factory=dict)
    flips: dict[str, ComparedFlips] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    error: CalibrationError | None = None

    def described(self) -> Variant:
        opis = None if self.outcomes is None else self.outcomes.opis
        # With what was fitted for it.
        pipeline = self.opened.pipeline if self.record is None else self.record.pipeline
        return Variant(
            version=self.opened.version,
            bundle=self.opened.snapshot.manifest.bundle,
            pipeline=pipeline,
            calibration=self.record,
            figures=self.figures,
            opis_floor=None if opis is None else opis.evidence.floor,
            flips=self.flips,
            left_out=self.left_out,
            problem=self.opened.problem,
        )


class _Trial:
    """A comparison under way."""

    def __init__(self, plan: ComparisonPlan, name: str) -> None:
        self.plan, self.request, self.name = plan, plan.request, name
        opened, self.warnings = open_variants(plan.gallery, plan.bundles, plan.request)
        # The first of each version has its own pipeline.
        self.versions: dict[int, OpenedVariant] = {}
        for one in opened:
            self.versions.setdefault(one.version, one)
        self.in_force = opened[0].record_in_force()
        self.target = self._target(opened)
        self.tried: list[_Tried] = []
        for one in opened:
            # The present one keeps what is in force, another its own for the same target.
            record = one.record_in_force()
            is_own = record is not None and record.version == one.version and record.target == self.target
            self.tried.append(_Tried(one, record if is_own or one is opened[0] else None))
        self.visits: dict[int, Visits | None] = {}
        self.queries: dict[int, LabelledQueries] = {}
        self.labels: Objects = np.empty(0, dtype=object)
        self.spaces: dict[tuple[int, str], SearchSpace] = {}
        # Scores of the items; those of pipelines that differ in the form of the group score alone are one.
        self.scored: tuple[tuple[int, str], Measurement] | None = None

    def make(self) -> Comparison:
        self._find_queries()
        for number, one in enumerate(self.tried):
            self._try(one, number)
        failed = self.tried[0].error
        if not self.request.versions and failed and all(one.record is None for one in self.tried):
            raise failed
        compared = self._compare()
        recommended, reason = recommend([one.described() for one in self.tried], asked_error(self.target))
        reason = "; ".join([reason, *self._flattered(recommended)])
        # An attempt that was overtaken, or cancelled, is told so here and keeps nothing.
        self.plan.on_stage("keep", 0, 1)
        self._keep(recommended)
        return Comparison(
            id=self.name,
            created_at=datetime.now(UTC),
            gallery=self.plan.gallery.name,
            request=self.request,
            target=self.target,
            n_queries=len(self.labels),
            n_with_mate=0 if compared is None else int(compared.mates.sum()),
            n_labels=len(set(self.labels)),
            variants=tuple(one.described() for one in self.tried),
            recommended=recommended,
            reason=reason,
            warnings=(*self.warnings, *self._of_items(), *self._further_warnings()),
        )

    def _target(self, opened: Sequence[OpenedVariant]) -> Target | None:
        """Target that was asked for, else that of the threshold in force, else that of a version's own."""
        if self.request.target is not None:
            return Target.parse(self.request.target)
        own = (one.record_in_force() for one in opened if one.version in self.request.versions)
        known = (one.target for one in (self.in_force, *own) if one is not None)
        target = next((one for one in known if one is not None), None)
        if target is None and not self.request.versions:
            raise RequestError(self._no_target())
        return target

    def _no_target(self) -> str:
        by_hand = "the threshold in force was set by hand, for no target"
        none = "there is no threshold in force to take the target from"
        return f"{by_hand if self.in_force else none}: name a target, such as fpir=5%"

    def _find_queries(self) -> None:
        """Find queries that all versions can be searched with, and the visits of their items."""
        evidence = None if self.in_force is None else self.in_force.evidence
        visits = None if evidence is None else evidence.visits
        by = self.request.visits_by or ("auto" if visits is None else visits.by)
        pictures = [GalleryPictures(one.gallery, one.snapshot, by) for one in self.versions.values()]
        if self.plan.queries is not None:
            by = visit_column(by) or "none"
        options = self.request
        try:
            for number, one in self.versions.items():
                self.visits[number] = find_visits(by, one.gallery, one.snapshot)
            if self.plan.queries is None:
                found = common_items(list(self.versions.values()), list(self.visits.values()))
            else:
                found = read_common(
                    self.plan.queries,
                    list(self.versions.values()),
                    visit_column=visit_column(by),
                    refuse=self.plan.refuse,
                    on_stage=self.plan.on_stage,
                    options=self.plan.options,
                    warnings=self.warnings,
                )
            if not len(found[0].labels):
                raise UnlabelledGalleryError("no labelled item has the same picture in all versions")
            sampled = [one.sample(options.max_queries, options.seed) for one in found]
            if self.plan.queries is not None:
                sampled = searched_apart(sampled, pictures)
        except (CalibrationError, SourceError) as error:
            if not self.request.versions:
                raise
            self.tried[0].left_out["queries"] = str(error)
            return
        self.warnings += sampled[0].warnings
        self.queries = dict(zip(self.versions, sampled, strict=True))
        self.labels = sampled[0].labels

    def _try(self, one: _Tried, number: int) -> None:
        """Score the queries with a variant, and calibrate it where it has no threshold that will do."""
        opened = one.opened
        if not opened.is_searchable:
            one.left_out["queries"] = opened.problem or "it cannot be searched"
            return
        queries = self.queries.get(opened.version)
        if queries is None and one.record is not None:
            return
        if queries is None:
            # Nothing can be paired; another version can still be calibrated, by all of its own items.
            every = LabelledQueries.leave_one_out(opened.snapshot, self.visits.get(opened.version))
            queries = every.sample(self.request.max_queries, self.request.seed)
        if not len(queries.labels):
            one.left_out["calibration"] = f"the items of version {opened.version} have no labels"
            return

        calibrator, report = self._calibrator(opened), pass_of(self.plan.on_stage, number, len(self.tried))
        key = opened.version, opened.pipeline.slot
        if self.scored is None or self.scored[0] != key:
            self.scored = key, calibrator.score_items(queries, report)
        measured = calibrator.decide(self.scored[1])
        found = None
        if one.record is None:
            found = self._calibrated(one, lambda target: calibrator.calibration(queries, measured, target))
        if found is not None:
            changes = {"id": f"{self.name}-{number}", "gallery": opened.gallery.name}
            one.record = found.record.model_copy(update=changes)
            one.made = found.scores, found.curves, found.points
        if self.queries:
            opis = measure_opis(measured) if found is None else found.opis
            threshold = None if one.record is None else one.record.threshold
            one.outcomes = Outcomes.of(
                opened.snapshot, measured, opis.get("final"), threshold=threshold, target=self.target
            )

    def _calibrator(self, opened: OpenedVariant) -> Calibrator:
        calibrator = Calibrator(
            opened.snapshot,
            opened.pipeline,
            seed=self.request.seed,
            refinement=opened.refinement,
            visits=self.visits.get(opened.version),
            starting=None
            if opened.served is None
            else starting_threshold(opened.served.bundle, opened.pipeline),
            device="cpu" if opened.served is None else opened.served.index_device,
        )
        # Items are the same for all that refine the same sides, and so are the graphs between them.
        key = opened.version, opened.pipeline.refine.model_dump_json()
        calibrator.scorer.space = self.spaces.setdefault(key, calibrator.scorer.space)
        return calibrator

    def _calibrated(self, one: _Tried, calibrate: Callable[[Target], Calibration]) -> Calibration | None:
        """A calibration of its own; None, and the reason noted, without one."""
        try:
            if self.target is None:
                raise CalibrationError(self._no_target())
            if one.opened.problem is not None:
                raise CalibrationError(one.opened.problem)
            return calibrate(self.target)
        except CalibrationError as error:
            one.error, one.left_out["calibration"] = error, str(error)
            return None

    def _compare(self) -> ComparedSearches | None:
        """Compare what was found for the common queries; None where there is nothing to compare."""
        searched = [one for one in self.tried if one.outcomes is not None]
        if not searched or searched[0] is not self.tried[0]:
            return None
        outcomes = [one.outcomes for one in searched if one.outcomes is not None]
        try:
            compared = ComparedSearches(outcomes, self.labels, self.target, self.request.seed)
        except CalibrationError as error:
            self.tried[0].left_out["queries"] = str(error)
            return None
        for one, figures in zip(searched, compared.figures(), strict=False):
            one.figures = figures
        if not compared.mates.any():
            self.tried[0].left_out["queries"] = "no query has a mate in every variant"
        answers = [None if one.outcomes is None else one.outcomes.answers for one in self.tried]
        self._count_flips(answers)
        return compared

    def _count_flips(self, answers: Sequence[Answers | None]) -> None:
        """Count the queries that each variant decides otherwise, where both it and the present one decide."""
        before, decided_by = answers[0], self.tried[0].record
        for one, after in zip(self.tried[1:], answers[1:], strict=True):
            if before is not None and after is not None and decided_by is not None and one.record is not None:
                thresholds = decided_by.threshold, one.record.threshold
                one.flips["queries"] = count_flips(before, after, self.labels, thresholds)

    def _keep(self, recommended: int) -> None:
        """Keep the calibrations of the recommended variant, and of other versions, which get them ready."""
        store = CalibrationStore(self.plan.gallery.path)
        for number, one in enumerate(self.tried):
            opened = one.opened
            is_own = opened.version in self.request.versions and opened is self.versions[opened.version]
            if one.made is None or one.record is None or not (is_own or number == recommended):
                continue
            one.record = keep_calibration(store, one.record, one.made)
            if opened.version in self.request.versions:
                store.activate(one.record, opened.version)

    def _flattered(self, recommended: int) -> list[str]:
        """Sentence on re-ranking that is recommended by items that were left out."""
        if self.plan.queries is not None or (self.in_force and self.in_force.source == "queries"):
            return []
        chosen, present = self.tried[recommended].opened, self.tried[0].opened
        visits = self.visits.get(chosen.version)
        is_untold = visits is not None and not visits.are_told
        if is_untold and chosen.pipeline.rerank.method != "off" and present.pipeline.rerank.method == "off":
            said = "leaving items out flatters re-ranking where nothing tells visits"
            return [f"{said}: compare with photos of another day"]
        return []

    def _of_items(self) -> Iterator[str]:
        present, *others = self.versions.values()
        for one in others:
            holds_others, has_changes = of_other_items(present, one)
            if has_changes:
                yield f"version {present.version} has live changes, which the figures leave out"
            if holds_others:
                yield f"version {one.version} holds other items, so that its pairs differ too"

    def _further_warnings(self) -> Iterator[str]:
        for one in self.versions.values():
            if one.problem is not None and one.is_searchable:
                yield f"{one.problem}; its items are searched as stored, nothing is refined"
        n_labels, n_compared = len(set(self.labels)), sum("error" in one.figures for one in self.tried)
        if 0 < n_labels < _FEW_LABELS:
            labels = number_of(n_labels, "label stands", "labels stand")
            yield f"only {labels} behind the intervals, which are too short then"
        if n_compared > 2:
            yield f"the best of {n_compared} variants on the same queries looks better than it is"
        if self.target is not None and self.target.rate not in ("fpir", "fnir"):
            yield "intervals take the thresholds as given, because they were not chosen on these searches"
        if (
            self.in_force is not None
            and self.in_force.source in ("queries", "searches")
            and self.plan.queries is None
        ):
            yield "the threshold in force was found with labelled queries, those of others by leave-one-out"
