"""Version comparison: a candidate version beside the active one, before it is activated.

Each version is searched as it was built, with its own bundle, pipeline and threshold. The queries are items
that both hold with the same picture, each searched for as if it were not there, and pictures from a folder.
The candidate gets a calibration of its own, which comes into force with it and not before: no threshold of
another bundle or version is ever tried on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.calibration import CalibrationError, Target
from vicinal.indexer.errors import SourceError
from vicinal.indexer.gallery import Gallery
from vicinal.service.calibrator.calibrator import Calibrator, picture_comparison
from vicinal.service.calibrator.evidence import SpaceOpis, measure_opis
from vicinal.service.calibrator.item_groups import PhotoGroups
from vicinal.service.calibrator.queries import LabelledQueries, QueryReading, Refuse, read_queries
from vicinal.service.calibrator.record import CalibrationRecord
from vicinal.service.calibrator.trials import TrialScoring
from vicinal.service.comparisons.activation_conditions import decide
from vicinal.service.comparisons.compared_version import ComparedVersion, QueryOutcomes, open_version
from vicinal.service.comparisons.paired_figures import (
    count_flips,
    fnir_figure,
    opis_figure,
    retrieval_figures,
)
from vicinal.service.comparisons.version_record import (
    ActivationConditions,
    CandidateCalibration,
    ComparedSide,
    ComparisonOptions,
    Decision,
    FlippedDecisions,
    OpisFigure,
    VersionComparison,
)
from vicinal.service.comparisons.version_sample import ComparisonSample, count_items, draw_sample
from vicinal.service.comparisons.version_store import comparison_summary, read_comparison, save_comparison
from vicinal.service.errors import RequestError
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.thresholds.store import CalibrationStore

__all__ = ["ComparisonPlan", "OnStage", "compare_versions"]

OnStage = Callable[[str, int, int], None]
Positions = npt.NDArray[np.int64]

# Below this many labels a percentile interval is too short.
_FEW_LABELS = 30
_BY_SEARCH = ("hit_rate", "map_at_r", "fnir", "opis", "gallery_flips")


def _silent(_stage: str, _done: int, _total: int) -> None:
    pass


@dataclass(frozen=True)
class ComparisonPlan:
    """What to compare, and with what.

    Attributes:
        gallery: The gallery.
        bundles: Bundles that are here.
        options: How the versions are compared.
        conditions: What must hold for an activation; None when a person decides.
        queries: Pictures to search for in both versions; None without any.
        refuse: Says why a file must not be read, or None.
        on_stage: Called with the name of a stage, finished units and all.
    """

    gallery: Gallery
    bundles: ServedBundles
    options: ComparisonOptions = field(default_factory=ComparisonOptions)
    conditions: ActivationConditions | None = None
    queries: Path | None = None
    refuse: Refuse | None = None
    on_stage: OnStage = _silent


def compare_versions(plan: ComparisonPlan, version: int, name: str) -> VersionComparison:
    """Compare a version with the active one, keep the comparison, and make its calibration ready.

    Args:
        plan: What to compare, and with what.
        version: The candidate.
        name: Name of the comparison and of the calibration; one that is there already is given back.

    Raises:
        RequestError: The version is the active one.
        VersionNotFoundError: There is no such version.
        GalleryError: One of the two is damaged.
        RefineError: The settings ask for a refinement that a bundle does not have.
    """
    finished = read_comparison(plan.gallery, version, name)
    if finished is not None:
        return finished
    active = plan.gallery.active_version
    if active is None or active == version:
        raise RequestError(
            f"version {version} of gallery '{plan.gallery.name}' is the active one: name another to compare"
        )
    made = _Comparison(
        plan,
        open_version(plan.gallery, active, plan.bundles),
        open_version(plan.gallery, version, plan.bundles),
    ).make(name)
    save_comparison(plan.gallery, made)
    return made


class _Comparison:
    """A comparison under way: what is missing and what to warn of comes together on the way."""

    def __init__(self, plan: ComparisonPlan, old: ComparedVersion, new: ComparedVersion) -> None:
        self.plan = plan
        self.old = old
        self.new = new
        self.left_out: dict[str, str] = {}
        self.warnings: list[str] = []
        self.record: CalibrationRecord | None = None

    def make(self, name: str) -> VersionComparison:
        self._note_problems()
        self.record = self._calibration(name)
        options = self.plan.options
        sample = draw_sample(self.old, self.new, options.max_queries, options.seed)
        figures = self._figures(sample)
        figures["query_flips"] = self._query_flips()
        items, has_changes = count_items(self.old, self.new, self.plan.gallery.activation)
        if has_changes:
            self.warnings.append(
                f"version {self.old.version} has live changes since it was built, which the figures leave out"
            )
        if items.only_old or items.only_new:
            self.warnings.append("the versions hold different items, so that their pairs differ too")
        calibration = self._candidate_calibration()
        made = VersionComparison(
            id=name,
            created_at=datetime.now(UTC),
            gallery=self.plan.gallery.name,
            old=_side(self.old, self.old.record),
            new=_side(self.new, self.record),
            options=options,
            conditions=self.plan.conditions,
            n_sampled=len(sample.ids),
            items=items,
            calibration=calibration,
            left_out=self.left_out,
            warnings=tuple(self.warnings),
            decision=self._decision(figures, calibration),
            summary="",
            **figures,
        )
        return made.model_copy(update={"summary": comparison_summary(made)})

    def _note_problems(self) -> None:
        for side in (self.old, self.new):
            if side.problem is None:
                continue
            if self.plan.queries is not None:
                self.left_out["query_flips"] = side.problem
            if side.is_searchable:
                self.warnings.append(f"{side.problem}; its items are searched as stored, nothing is refined")
            else:
                self.left_out |= dict.fromkeys(_BY_SEARCH, side.problem)

    def _calibration(self, name: str) -> CalibrationRecord | None:
        """The candidate's own calibration, kept and ready; None, and the reason noted, without one."""
        try:
            target = self._target()
            own = self._known_own()
            if own is not None and own.target == target:
                # A roll back, or another comparison, has to find it again.
                return own
            if self.new.problem is not None:
                raise CalibrationError(self.new.problem)
            return self._calibrate(target, name)
        except CalibrationError as error:
            self.left_out["calibration"] = str(error)
            return None

    def _known_own(self) -> CalibrationRecord | None:
        """The candidate's calibration, where it has one that was made on it."""
        known = self.new.record
        return known if known is not None and known.version == self.new.version else None

    def _target(self) -> Target:
        active, own, given = self.old.record, self._known_own(), self.plan.options.target
        if given is not None:
            return Target.parse(given)
        if own is not None and own.target is not None and (active is None or active.target is None):
            return own.target
        if active is None:
            raise CalibrationError(
                "the active version has no threshold to take the target from: name a target"
            )
        if active.target is None:
            raise CalibrationError("the active threshold was set by hand, for no target: name a target")
        return active.target

    def _calibrate(self, target: Target, name: str) -> CalibrationRecord:
        store = CalibrationStore(self.plan.gallery.calibrations_path)
        kept = next((one for one in store.history() if one.id == name), None)
        if kept is None:
            groups = self._groups(self.new)
            if self.old.record is not None and self.old.record.source == "queries":
                self.warnings.append(
                    "the active threshold was found with labelled queries, the candidate's by leave-one-out"
                )
            found = Calibrator(
                self.new.snapshot,
                self.new.pipeline,
                seed=self.plan.options.seed,
                refinement=self.new.refinement,
                groups=groups,
                same_pictures=picture_comparison(self.plan.gallery, self.new.snapshot),
            ).measure(
                LabelledQueries.leave_one_out(self.new.snapshot, groups),
                target,
                on_progress=lambda _stage, done, total: self.plan.on_stage("calibrate", done, total),
            )
            record = found.record.model_copy(update={"id": name})
            kept = store.add(record, found.scores, found.curves, activate=False)
        store.prepare(kept, self.new.version)
        return kept

    def _groups(self, side: ComparedVersion) -> PhotoGroups | None:
        """Groups of a version's items, where the active threshold was calibrated with groups."""
        column = self.old.group_by
        return None if column is None else PhotoGroups.of(side.snapshot, column)

    def _candidate_calibration(self) -> CandidateCalibration:
        record = self.record
        if record is None:
            return CandidateCalibration(problem=self.left_out.get("calibration"))
        return CandidateCalibration(
            calibration=record.id,
            target=str(record.target) if record.target else None,
            threshold=record.threshold,
            rates={} if record.evidence is None else record.evidence.rates,
            warnings=record.warnings,
        )

    def _figures(self, sample: ComparisonSample) -> dict[str, Any]:
        figures: dict[str, Any] = dict.fromkeys(_BY_SEARCH)
        if not len(sample.ids):
            self._leave_out(_BY_SEARCH, "no item has the same picture in both versions")
        if any(name in self.left_out for name in _BY_SEARCH):
            return figures
        seed = self.plan.options.seed
        found = self._searched(sample)
        hit_rate, map_at_r = retrieval_figures(*found, sample, seed)
        figures |= {"hit_rate": hit_rate, "map_at_r": map_at_r, "opis": self._opis(sample)}
        if hit_rate is None:
            self._leave_out(
                ("hit_rate", "map_at_r", "fnir"), "no sampled item has a label and a mate in both"
            )
        elif hit_rate.n_labels < _FEW_LABELS:
            self.warnings.append(
                f"only {hit_rate.n_labels} labels stand behind the intervals, which are too short then"
            )
        thresholds = self._thresholds(("fnir", "gallery_flips"))
        if thresholds is not None:
            figures["fnir"] = fnir_figure(*found, sample, thresholds, seed)
            figures["gallery_flips"] = count_flips(*found, sample.label_codes, thresholds)
        return figures

    def _searched(self, sample: ComparisonSample) -> tuple[QueryOutcomes, QueryOutcomes]:
        old = self.old.leave_one_out(
            sample.old, self._groups(self.old), partial(self.plan.on_stage, "search old")
        )
        new = self.new.leave_one_out(
            sample.new, self._groups(self.new), partial(self.plan.on_stage, "search new")
        )
        return old, new

    def _opis(self, sample: ComparisonSample) -> OpisFigure | None:
        rows = sample.is_labelled
        old = self._measured_opis(self.old, sample.old[rows])
        new = self._measured_opis(self.new, sample.new[rows])
        found = None if old is None or new is None else opis_figure(old, new, self.plan.options.seed)
        if found is None:
            self._leave_out(("opis",), "fewer than two labels have positive and negative pairs in both")
        return found

    def _measured_opis(self, side: ComparedVersion, positions: Positions) -> SpaceOpis | None:
        if not len(positions):
            return None
        groups = self._groups(side)
        labels = side.snapshot.labels
        queries = LabelledQueries(
            np.asarray(side.snapshot.embeddings[positions]),
            labels[positions],
            positions,
            groups=None if groups is None else groups.names[positions],
        )
        names = sorted({label for label in labels if label is not None})
        scoring = TrialScoring(side.snapshot, side.scorer(), names, groups=groups)
        stage = "pairs old" if side is self.old else "pairs new"
        measured = scoring.measure(queries, lambda _, done, total: self.plan.on_stage(stage, done, total))
        return measure_opis(measured).get("final")

    def _query_flips(self) -> FlippedDecisions | None:
        thresholds = None if self.plan.queries is None else self._thresholds(("query_flips",))
        if thresholds is None or self.plan.queries is None or "query_flips" in self.left_out:
            return None
        try:
            readings = [self._read(side, self.plan.queries) for side in (self.old, self.new)]
        except SourceError as error:
            self._leave_out(("query_flips",), str(error))
            return None
        both = sorted(set.intersection(*({item.id for item in one.items} for one in readings)))
        n_refused = readings[0].total - len(both)
        if n_refused:
            self.warnings.append(f"{n_refused} of {readings[0].total} pictures in queries cannot be used")
        if not both:
            self._leave_out(("query_flips",), "none of the pictures in queries can be used")
            return None
        found = [
            _search_pictures(side, one, both)
            for side, one in zip((self.old, self.new), readings, strict=True)
        ]
        labels = {item.id: item.label for item in readings[0].items}
        names = [f"label {labels[one]}" if labels[one] else f"picture {one}" for one in both]
        codes = np.unique(np.array(names, dtype=np.str_), return_inverse=True)[1]
        return count_flips(found[0], found[1], codes.astype(np.uint32), thresholds)

    def _read(self, side: ComparedVersion, source: Path) -> QueryReading:
        if side.served is None:
            raise SourceError(side.problem or "its bundle is not here")
        stage = "embed old" if side is self.old else "embed new"

        def report(_stage: str, done: int, total: int) -> None:
            self.plan.on_stage(stage, done, total)

        return read_queries(
            source, side.served.embedder, refuse=self.plan.refuse, on_progress=report, needs_labels=False
        )

    def _thresholds(self, figures: tuple[str, ...]) -> tuple[float, float] | None:
        if self.old.record is None:
            self._leave_out(figures, "the active version has no threshold")
        if self.record is None:
            reason = self.left_out.get("calibration", "it was not calibrated")
            self._leave_out(figures, f"the candidate has no threshold of its own: {reason}")
        if self.old.record is None or self.record is None:
            return None
        return self.old.record.threshold, self.record.threshold

    def _leave_out(self, figures: tuple[str, ...], reason: str) -> None:
        """Note why figures are missing; the first reason stays."""
        for figure in figures:
            self.left_out.setdefault(figure, reason)

    def _decision(self, figures: dict[str, Any], calibration: CandidateCalibration) -> Decision | None:
        if self.plan.conditions is None:
            return None
        flips = {"gallery": figures["gallery_flips"]}
        if self.plan.queries is not None:
            flips["queries"] = figures["query_flips"]
        return decide(
            self.plan.conditions,
            hit_rate=figures["hit_rate"],
            fnir=figures["fnir"],
            flips=flips,
            calibration=calibration,
            is_served=self.new.served is not None,
            left_out=self.left_out,
        )


def _search_pictures(side: ComparedVersion, reading: QueryReading, ids: list[str]) -> QueryOutcomes:
    """What a version finds for some of the pictures, in the order of their ids."""
    rows = {item.id: row for item, row in zip(reading.items, np.concatenate(reading.rows), strict=True)}
    labels = np.full(len(ids), None, dtype=object)
    return side.search(np.stack([rows[one] for one in ids]), labels, lambda _done, _total: None)


def _side(side: ComparedVersion, record: CalibrationRecord | None) -> ComparedSide:
    manifest = side.snapshot.manifest
    return ComparedSide(
        version=manifest.version,
        bundle=manifest.bundle,
        bundle_name=manifest.bundle_name,
        is_served=side.served is not None,
        pipeline=side.pipeline.key,
        calibration=None if record is None else record.id,
        threshold=None if record is None else record.threshold,
    )
