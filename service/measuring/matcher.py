"""Matcher: the search of a gallery, which threshold decides it, and what is to be known of its rate."""

from __future__ import annotations

import shlex
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property

from vicinal.calibration.rates.guarantees import StrangerScores
from vicinal.calibration.targets import LEAST_LABELS
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.storage.files import identity_of
from vicinal.indexer.views.selection import Selection
from vicinal.indexer.views.view import GalleryView
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.refine.context_refiner import ContextRefiner
from vicinal.service.errors import CalibrationMismatchError, CalibrationRecordError, RequestError
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.records.record import CalibrationRecord, new_calibration_id
from vicinal.service.measuring.records.store import CalibrationStore
from vicinal.service.measuring.twins import GalleryPictures
from vicinal.service.request_fields import PipelineChoice
from vicinal.service.search.answers import CalibrationState, Threshold, require_score
from vicinal.service.search.gallery_search import GallerySearch
from vicinal.service.search.pipeline import ChosenPipeline, Group, Pipeline, starting_threshold

# A calibration is stale when more than this share of the items has changed since; a filter that leaves out
# more is told with what that means for the rate.
_STALE_SHARE = 0.2


class GalleryThresholds:
    """Thresholds of one state of a gallery; the bundle may bring one to start with."""

    def __init__(self, gallery: Gallery, view: GalleryView, bundle: ModelBundle) -> None:
        self.gallery = gallery
        self.view = view
        self.bundle = bundle
        self.records = CalibrationStore(gallery.path, calibrated_as=view.calibrated_as)
        self._n_common: dict[int, tuple[int, int] | None] = {}
        self._strangers: dict[str, StrangerScores | None] = {}
        # What a record means for this state stays the same until it is tried.
        self._decided: tuple[tuple[object, ...], Threshold] | None = None

    def at(self, view: GalleryView) -> GalleryThresholds:
        """Thresholds of another state, which keep what the built version is known for."""
        found = GalleryThresholds(self.gallery, view, self.bundle)
        found._strangers = self._strangers
        if view.snapshot is self.view.snapshot:
            found._n_common = self._n_common
        return found

    def in_force(self, pipeline: Pipeline, selection: Selection | None = None) -> Threshold:
        """Threshold of a search that names none, among the items (all when None) that its filter leaves."""
        activation = self.records.activation(pipeline)
        if activation is None:
            return self._no_calibration(pipeline)
        record = self.records.get(activation.calibration)
        known, decided = (record, self._tried(record), activation.at), self._decided
        if decided is None or decided[0] != known:
            decided = known, replace(self.of_record(record), since=activation.at)
            self._decided = decided
        if selection is None or decided[1].source != "calibration":
            return decided[1]
        return replace(decided[1], note=self._filter_note(record, selection))

    def with_form(self, pipeline: Pipeline, decided_by: Threshold | None = None) -> Pipeline:
        """Pipeline with the form of its group score, which comes with its calibration."""
        if pipeline.group is None:
            return pipeline
        found = self.in_force(pipeline) if decided_by is None else decided_by
        if found.value is None or found.calibration is None:
            return pipeline
        group = self.records.get(found.calibration).pipeline.group
        return pipeline.model_copy(update={"group": group})

    def strangers(self, decided_by: Threshold) -> StrangerScores | None:
        """Scores of queries without a mate that a threshold was measured on; None where none are kept."""
        name = decided_by.calibration
        if name is None or decided_by.value is None:
            return None
        if name not in self._strangers:
            self._strangers[name] = None
            # What is damaged is told by the state of the threshold.
            with suppress(CalibrationRecordError):
                scores = self.records.scores(self.records.get(name))
                kept = None if scores is None else scores.trials["fpir"]
                if kept is not None and kept.n:
                    self._strangers[name] = StrangerScores.of(kept.scores, kept.codes[0], kept.totals)
        return self._strangers[name]

    def of_record(self, record: CalibrationRecord) -> Threshold:
        """Threshold of a search when a record is in force; no value when it must not be used."""
        bundle = self.view.snapshot.manifest.bundle
        if record.gallery_id is not None and record.gallery_id != self._gallery_id:
            return Threshold(
                reason=f"calibration {record.id} was made for another gallery, '{record.gallery}': "
                f"{self._again('calibrate this one')}"
            )
        if record.bundle != bundle:
            return Threshold(
                reason=f"calibration {record.id} was made with bundle {record.bundle}, the gallery with "
                f"{bundle}: {self._again()}"
            )
        if record.pipeline.group is not None and record.pipeline.group.score == "gone":
            return Threshold(
                reason=f"calibration {record.id} scored groups in a way that is no more: {self._again()}"
            )
        state, reason = self._standing(record)
        band = record.evidence and record.evidence.unsure
        return Threshold(
            value=record.threshold,
            unsure_from=band.lowest if band else None,
            source="by_hand" if record.source == "by_hand" else "calibration",
            target=str(record.target) if record.target else None,
            calibration=record.id,
            state=state,
            reason=reason,
        )

    def require_usable(self, record: CalibrationRecord) -> None:
        """Refuse a record that no search of the gallery could be decided by."""
        found = self.of_record(record)
        if found.value is None:
            raise CalibrationMismatchError(found.reason or "it cannot be used")

    def set_by_hand(self, pipeline: Pipeline, threshold: float) -> CalibrationRecord:
        """Put a threshold in force that somebody chose; no rate is claimed for it."""
        require_score(threshold)
        manifest = self.view.snapshot.manifest
        record = CalibrationRecord(
            format_version=2,
            id=new_calibration_id(),
            created_at=datetime.now(UTC),
            source="by_hand",
            target=None,
            threshold=threshold,
            rates=None,
            pipeline=pipeline,
            bundle=manifest.bundle,
            version=manifest.version,
            n_items=manifest.n_items,
            warnings=("set by hand: no rate was measured",),
        )
        return self.records.add(record)

    def _no_calibration(self, pipeline: Pipeline) -> Threshold:
        other, name = self.records.active_with_other_refiner(pipeline), self.gallery.name
        if other is None:
            start = starting_threshold(self.bundle, pipeline)
            if start is None:
                others = self.records.active_with_other_rerank(pipeline)
                also = f", but one for '{others.pipeline.slot}': calibrate again" if others else ""
                return Threshold(reason=f"gallery '{name}' has no calibration for '{pipeline.slot}'{also}")
            return Threshold(
                value=start,
                source="bundle",
                state="default",
                reason=f"this threshold was not measured here, but where bundle '{self.bundle.name}' was "
                f"validated: measure one by `{measuring_command(self.gallery)}`",
            )
        return Threshold(
            calibration=other.id,
            state="stale",
            reason=f"calibration {other.id} was made with refiner {other.pipeline.refine.refiner}, "
            f"this is refiner {pipeline.refine.refiner}: {self._again()}",
        )

    @cached_property
    def _gallery_id(self) -> str:
        return identity_of(self.gallery.path)

    def _standing(self, record: CalibrationRecord) -> tuple[CalibrationState, str | None]:
        """Tell whether a record holds on this state, and all that speaks against it."""
        stale, found = self._staleness(record), self._tried(record)
        if record.source == "by_hand":
            found = "by_hand", "the threshold was set by hand"
        if found is None:
            return "stale" if stale else "current", stale
        return found[0], f"{found[1]}; {stale}" if stale else found[1]

    def _tried(self, record: CalibrationRecord) -> tuple[CalibrationState, str] | None:
        """Rest of a promise after the last check; None where that speaks against nothing."""
        try:
            check = self.records.last_check(record)
        except CalibrationRecordError as error:
            return "stale", str(error)
        if check is None or check.verdict != "broken":
            return None
        name, noun = shlex.quote(self.gallery.name), self.bundle.manifest.noun
        how = f"with {noun}s like those by `vicinal calibrate -g {name} --queries FOLDER`"
        if check.source == "searches":
            how = f"with the answers to searches by `vicinal calibrate -g {name} --answers`"
        return "broken", (
            f"{check.sentence} Calibration {record.id} was tried on {check.checked_at:%Y-%m-%d}: calibrate "
            f"{how}"
        )

    def _staleness(self, record: CalibrationRecord) -> str | None:
        """Tell of items that came, went or changed since a record's version, where those are many."""
        known, share = self._n_common_with(record.version), 1.0
        if known is not None:
            n_common, n_before = known
            # Items that were added and removed since the view's own version are counted exactly only there;
            # for an older one, as if all that is gone had been in both.
            n_kept = max(0, n_common - (len(self.view.snapshot) - self.view.n_kept))
            share = 1.0 - n_kept / max(n_before, len(self.view), 1)
        if share <= _STALE_SHARE:
            return None
        return f"{share:.0%} of the items have changed since calibration {record.id}: {self._again()}"

    def _again(self, said: str = "calibrate again") -> str:
        """Advice to make another threshold; that is no calibration where there are too few labels for one."""
        if _can_be_calibrated(self.gallery):
            return said
        return f"make a new threshold by `{measuring_command(self.gallery)}`"

    def _filter_note(self, record: CalibrationRecord, selection: Selection) -> str | None:
        """Note of a filter's meaning for the rate; the threshold itself stays right."""
        if len(selection) >= (1.0 - _STALE_SHARE) * len(self.view):
            return None
        # Scores do not depend on the filter, so that no query gets a match that it would not get without.
        meaning = "a query without a mate gets a match at most as often as without the filter"
        if record.pipeline.group is not None:
            is_by_label = record.pipeline.group.score == "lda"
            how = "all of its items" if is_by_label else "its items that fulfil the filter"
            meaning = f"a group is scored by {how}"
        return (
            f"the filter leaves {len(selection):,} of {len(self.view):,} items, calibration {record.id} "
            f"was made for all: {meaning}"
        )

    def _n_common_with(self, version: int) -> tuple[int, int] | None:
        """Items that a version shares with the one under the view, and its size; None when it is gone."""
        snapshot = self.view.snapshot
        if version == snapshot.manifest.version:
            return len(snapshot), len(snapshot)
        if version not in self._n_common:
            self._n_common[version] = self.gallery.n_common(version, snapshot.manifest.version)
        return self._n_common[version]


def chose_labels(record: CalibrationRecord) -> bool:
    """Tell whether a calibration chose what searches decide that ask for nothing else: labels, or items."""
    trial = None if record.evidence is None else record.evidence.metric
    return trial is not None and trial.chose_labels


def measuring_command(gallery: Gallery, options: str = "") -> str:
    """The command that makes a threshold for a gallery: of labels where it has some, else of answers."""
    name = shlex.quote(gallery.name)
    if _can_be_calibrated(gallery):
        return f"vicinal calibrate -g {name}{options}"
    # There is nothing to look at in ready embeddings.
    return (
        f"vicinal index SOURCE -g {name} --label-column NAME" if gallery.space else f"vicinal label -g {name}"
    )


def _can_be_calibrated(gallery: Gallery) -> bool:
    return gallery.snapshot().manifest.n_labels >= LEAST_LABELS


class Matcher(GallerySearch):
    """Searches one state of a gallery, and decides by its calibrations.

    Args:
        gallery: The gallery.
        embedder: Embedder of the service's bundle.
        pipeline: What `auto` stands for where no other was put in force for the gallery; by default what the
            bundle's validation decided.
        view: The state to search; the present one when None.
        refiner: Refiner of the bundle, where it is open already.

    Raises:
        BundleMismatchError: The gallery was embedded with another bundle.
    """

    def __init__(
        self,
        gallery: Gallery,
        embedder: Embedder,
        pipeline: Pipeline | None = None,
        *,
        view: GalleryView | None = None,
        refiner: ContextRefiner | None = None,
        thresholds: GalleryThresholds | None = None,
    ) -> None:
        view = GalleryReader(gallery).view() if view is None else view
        self.thresholds = thresholds or GalleryThresholds(gallery, view, embedder.bundle)
        self.calibrations = self.thresholds.records
        super().__init__(gallery, embedder, view, self.thresholds, pipeline, refiner=refiner)

    def at(self, view: GalleryView) -> Matcher:
        """A matcher for another state of the gallery, which keeps what the built version is known for."""
        matcher = Matcher(
            self.gallery,
            self.embedder,
            self._default,
            view=view,
            refiner=self._refiner,
            thresholds=self.thresholds.at(view),
        )
        matcher.keep_of(self)
        return matcher

    @cached_property
    def pictures(self) -> GalleryPictures:
        """Pictures of the items of the built version."""
        return GalleryPictures(self.gallery, self.snapshot)

    def calibrator(self, pipeline: Pipeline) -> Calibrator:
        """Calibrator of a pipeline on the built version."""
        refinement, device = self.refinement(pipeline), self.gallery.index_device
        return Calibrator(
            self.snapshot, pipeline, refinement=refinement, pictures=self.pictures, device=device
        )

    def activate(self, record_id: str) -> CalibrationRecord:
        """Put a record in force that was kept."""
        record = self.calibrations.find(record_id)
        self.thresholds.require_usable(record)
        self.put_in_force(record)
        return record

    def put_in_force(self, record: CalibrationRecord) -> None:
        """Let searches use a calibration from their next request on, and decide labels, or items, where it
        chose which of them for searches that ask for nothing else.
        """
        # In this order: the threshold of a pipeline that no search uses yet decides nothing.
        self.calibrations.activate(record)
        present = self.pipeline
        # The metric comes with the threshold.
        by_label = None if record.pipeline.group is None else Group(by=record.pipeline.group.by)
        chosen = present.model_copy(update={"group": by_label})
        if not chose_labels(record) or record.pipeline.slot != chosen.slot or chosen.slot == present.slot:
            return
        if chosen.slot == self._default.slot:
            self.pipeline_store.clear()
            return
        self.pipeline_store.put_in_force(
            ChosenPipeline(pipeline=chosen, bundle=record.bundle, calibration=record.id, at=datetime.now(UTC))
        )

    def roll_back(self, choice: PipelineChoice) -> CalibrationRecord:
        """Put the calibration in force again that was before the present one; where that chose its pipeline
        and none was before, the one of the settings' pipeline.
        """
        pipeline, active = self.chosen(choice), self.active_pipeline
        try:
            return self.calibrations.roll_back(pipeline)
        except RequestError:
            before = self.calibrations.active(self._default)
            if active.source != "calibration" or pipeline.slot != active.pipeline.slot or before is None:
                raise
            self.pipeline_store.clear()
            return before
