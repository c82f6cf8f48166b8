"""Calibration records of a gallery: immutable files, and which is in force for which pipeline, since when.

<gallery>/calibrations/<id>.json         one record each, never changed
<gallery>/calibrations/<id>.scores.npz   the scores that it was made from (`.record`)
<gallery>/calibrations/<id>.evidence.json.gz   curves and examples (`.curves`)
<gallery>/calibrations/<id>.points.npz         each query with its best mate and stranger (`.points`)
<gallery>/calibrations/checks/<id>.json  the newest try of what it promised (`.promise`)
<gallery>/calibrations/active.json       {pipeline key: {"calibration": id, "at": when}}; replaced in one step
<gallery>/calibrations/activations.json  {"events": every activation and every roll back, oldest first}
<gallery>/calibrations/activations.lock  held while these two are changed
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from vicinal.calibration.advice import advise
from vicinal.calibration.frozen import Frozen
from vicinal.indexer.storage.files import (
    SealedFile,
    file_lock,
    identity_of,
    read_bound,
    read_sealed,
    write_bound,
    write_sealed,
)
from vicinal.models.configs.sealed_json import BrokenSealError
from vicinal.service.errors import CalibrationNotFoundError, CalibrationRecordError, RequestError
from vicinal.service.measuring.records.curves import CalibrationCurves
from vicinal.service.measuring.records.points import CalibrationPoints
from vicinal.service.measuring.records.promise import PromiseCheck
from vicinal.service.measuring.records.record import CalibrationRecord, StoredScores
from vicinal.service.records import RecordFolder, remedy_of
from vicinal.service.search.label_scores import keep_metric
from vicinal.service.search.pipeline import Pipeline

logger = logging.getLogger(__name__)
ACTIVATION_FILES = frozenset({"active.json", "activations.json", "pipeline.json"})
# Each holds the lock for a moment only.
_PATIENCE_SECONDS = 10.0
# No key of a pipeline holds it.
_SLOT_MARK = ": "


class Activation(Frozen):
    """Calibration in force for one pipeline; `at` is None where that is not known."""

    calibration: str
    at: datetime | None = None


class ActivationEvent(Frozen):
    """Change of what is in force: `activate`, or `roll_back` to what was in force before."""

    kind: Literal["activate", "roll_back"]
    pipeline: str
    calibration: str
    at: datetime | None


class _Events(Frozen):
    events: tuple[ActivationEvent, ...] = ()


_ACTIVE = TypeAdapter(dict[str, Activation])


class Activations:
    """Activations of one gallery, in its folder of calibrations."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._active = SealedFile(path / "active.json", _ACTIVE.validate_json)
        self._events_path = path / "activations.json"

    def all(self) -> dict[str, Activation]:
        """Activations in force, by pipeline."""
        try:
            active = self._active.read()
        except FileNotFoundError:
            # It is written before the other one.
            if not self._events_path.exists():
                return {}
            raise self._damaged(self._active.path, "missing") from None
        except (OSError, BrokenSealError) as error:
            raise self._damaged(self._active.path, "damaged") from error
        # Nothing is searched by pipelines of that method, whose records cannot be read.
        return {key: one for key, one in active.items() if "rerank=k_reciprocal" not in key}

    def active(self, pipeline: str) -> Activation | None:
        """Activation in force for the pipeline of this key."""
        return self.all().get(pipeline)

    def events(self) -> list[ActivationEvent]:
        """Every change, oldest first."""
        try:
            return list(_Events.model_validate_json(read_sealed(self._events_path)).events)
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise self._damaged(self._events_path, "damaged") from error

    def activate(self, pipeline: str, calibration: str) -> None:
        """Put a record in force, without a new event where it is already; damaged files are mended."""
        with self._changing():
            self._mend()
            before = self.active(pipeline)
            if before is None or before.calibration != calibration:
                self._change("activate", pipeline, calibration)

    def roll_back(self, pipeline: str) -> str:
        """Put in force again what was before the present one."""
        with self._changing():
            before = self._stack(pipeline)[:-1]
            if not before:
                raise RequestError(f"no calibration was in force for '{pipeline}' before the present one")
            self._change("roll_back", pipeline, before[-1])
            return before[-1]

    def _stack(self, pipeline: str) -> list[str]:
        """Activations not rolled back, the present one last."""
        stack: list[str] = []
        for event in self.events():
            if event.pipeline != pipeline:
                continue
            if event.kind == "roll_back":
                del stack[-1:]
            if not stack or stack[-1] != event.calibration:
                stack.append(event.calibration)
        active = self.active(pipeline)
        # The events lack what a crash left without its event.
        if active is not None and active.calibration not in stack[-1:]:
            stack.append(active.calibration)
        return stack

    def _change(self, kind: Literal["activate", "roll_back"], pipeline: str, calibration: str) -> None:
        now = datetime.now(UTC)
        events, before = self.events(), self.active(pipeline)
        last = next((one for one in reversed(events) if one.pipeline == pipeline), None)
        if before is not None and (last is None or last.calibration != before.calibration):
            events.append(
                ActivationEvent(
                    kind="activate", pipeline=pipeline, calibration=before.calibration, at=before.at
                )
            )
        events.append(ActivationEvent(kind=kind, pipeline=pipeline, calibration=calibration, at=now))
        active = {**self.all(), pipeline: Activation(calibration=calibration, at=now)}
        # In this order: what a crash between the two leaves out of the events is found again above.
        self._write(active, events)

    def _write(self, active: dict[str, Activation], events: list[ActivationEvent]) -> None:
        fields = {key: one.model_dump(mode="json") for key, one in active.items()}
        write_sealed(self._active.path, json.dumps(fields, indent=2))
        write_sealed(self._events_path, _Events(events=tuple(events)).model_dump_json(indent=2))

    def _mend(self) -> None:
        """Make what is in force again of its history, or begin the history anew, where one is damaged."""
        try:
            events = self.events()
        except CalibrationRecordError as damage:
            logger.warning("%s; it begins anew", damage)
            events = []
        try:
            active = self.all()
        except CalibrationRecordError as damage:
            logger.warning("%s; it is made again of what was activated before", damage)
            active = {one.pipeline: Activation(calibration=one.calibration, at=one.at) for one in events}
        else:
            if events or not active:
                return
        self._write(active, events)

    def _damaged(self, path: Path, how: str) -> CalibrationRecordError:
        name = self.path.parent.name
        return CalibrationRecordError(
            f"'{path}' is {how}, so that nobody knows which calibration is in force: ",
            advise("put one in force by {activate()}; {list_calibrations()} shows them", gallery=name),
        )

    @contextmanager
    def _changing(self) -> Iterator[None]:
        self.path.mkdir(parents=True, exist_ok=True)
        busy = f"calibrations in '{self.path}' are being changed by another process: try again"
        with file_lock(self.path / "activations.lock", busy, patience=_PATIENCE_SECONDS):
            yield


class CalibrationStore(RecordFolder[CalibrationRecord]):
    """Records of one gallery, in its folder of calibrations. Those of the version `calibrated_as` (0 for
    none) go first, and get what is put in force, so that a roll back to another version brings back its own.
    """

    model, kind = CalibrationRecord, "calibration"
    not_found, error = CalibrationNotFoundError, CalibrationRecordError
    other_files = ACTIVATION_FILES

    def __init__(self, path: Path, *, calibrated_as: int = 0) -> None:
        super().__init__(path)
        self.calibrated_as = calibrated_as
        self.activations = Activations(path)
        self._checks: dict[str, SealedFile[PromiseCheck]] = {}

    def add(
        self,
        record: CalibrationRecord,
        scores: StoredScores | None = None,
        curves: CalibrationCurves | None = None,
        points: CalibrationPoints | None = None,
        *,
        activate: bool = True,
    ) -> CalibrationRecord:
        """Keep a record, and let searches with its pipeline use it."""
        self.begin(record.id)
        folder = self.path.parent
        bound = {"gallery": record.gallery or folder.name, "gallery_id": identity_of(folder)}
        if scores is not None:
            bound["scores_sha256"] = write_bound(self.file(record.id, ".scores.npz"), scores.to_bytes())
        if curves is not None:
            bound["curves_sha256"] = write_bound(self.file(record.id, ".evidence.json.gz"), curves.to_bytes())
        if points is not None:
            bound["points_sha256"] = write_bound(self.file(record.id, ".points.npz"), points.to_bytes())
        group = record.pipeline.group
        if group is not None and group.metric:
            keep_metric(folder, group.metric)
        kept = record.model_copy(update=bound)
        # Last, so that a record that is there is complete.
        self.keep(kept, indent=2)
        if activate:
            self.activate(kept)
        return kept

    def activate(self, record: CalibrationRecord, version: int | None = None) -> None:
        """Let searches with the record's pipeline use it from their next request on; as a version's own it is
        in force from the moment in which that is searched.
        """
        version = self.calibrated_as if version is None else version
        self.activations.activate(_slot(record.pipeline.slot, version), record.id)

    def has_own(self, version: int) -> bool:
        """Tell whether a version has calibrations of its own."""
        return any(slot.startswith(_slot("", version)) for slot in self.activations.all())

    def activation(self, pipeline: Pipeline) -> Activation | None:
        """Activation for a pipeline, in any form of group score: the version's own, else the gallery's."""
        return self._activation(pipeline.slot)

    def _activation(self, slot: str) -> Activation | None:
        active = self.activations.all()
        return active.get(_slot(slot, self.calibrated_as)) or active.get(slot)

    def in_use(self, versions: set[int]) -> list[CalibrationRecord]:
        """Records that are in force for the gallery, or would be with one of some versions."""
        slots, known = self.activations.all(), {0, *versions}
        return [
            self.get(one.calibration)
            for slot, one in slots.items()
            if any(slot == _slot(slot.rpartition(_SLOT_MARK)[2], version) for version in known)
        ]

    def in_force(self) -> set[str]:
        """Ids of the records that searches use now."""
        pipelines = {slot.rpartition(_SLOT_MARK)[2] for slot in self.activations.all()}
        return {one.calibration for one in map(self._activation, pipelines) if one is not None}

    def roll_back(self, pipeline: Pipeline) -> CalibrationRecord:
        """Let searches with a pipeline use the record again that was in force before the present one."""
        own = _slot(pipeline.slot, self.calibrated_as)
        return self.get(self.activations.roll_back(own if own in self.activations.all() else pipeline.slot))

    def active(self, pipeline: Pipeline) -> CalibrationRecord | None:
        """The record in use for a pipeline, whatever the form of its group score, or None."""
        activation = self.activation(pipeline)
        return self.get(activation.calibration) if activation else None

    def active_with_other_refiner(self, pipeline: Pipeline) -> CalibrationRecord | None:
        """A record in use for a pipeline that differs in nothing but its refiner, or None."""
        if pipeline.refine.sides == "off":
            return None
        others = (self.get(one) for one in sorted(self.in_force()))
        return next((one for one in others if one.pipeline.is_of_other_refiner(pipeline)), None)

    def active_with_other_rerank(self, pipeline: Pipeline) -> CalibrationRecord | None:
        """A record in use for a pipeline that differs in nothing but how it re-ranks, or None."""
        alike, found = {"rerank": pipeline.rerank}, (self.get(one) for one in sorted(self.in_force()))
        with suppress(CalibrationRecordError):
            return next(
                (one for one in found if one.pipeline.model_copy(update=alike).slot == pipeline.slot), None
            )
        return None

    def scores(self, record: CalibrationRecord) -> StoredScores | None:
        """The scores that a record was made from; None where there are none."""
        stored = self._bound(record.id, ".scores.npz", record.scores_sha256, "scores")
        return None if stored is None else StoredScores.from_bytes(stored)

    def curves(self, record: CalibrationRecord) -> CalibrationCurves | None:
        """The curves and examples of a record; None where there are none."""
        stored = self._bound(record.id, ".evidence.json.gz", record.curves_sha256, "curves")
        return None if stored is None else CalibrationCurves.from_bytes(stored)

    def points(self, record: CalibrationRecord) -> CalibrationPoints | None:
        """The points of a record; None where there are none."""
        stored = self._bound(record.id, ".points.npz", record.points_sha256, "points")
        return None if stored is None else CalibrationPoints.from_bytes(stored)

    def _bound(self, record_id: str, suffix: str, sha256: str | None, what: str) -> bytes | None:
        """Content of a file that a record names; None where it names none."""
        if sha256 is None:
            return None
        try:
            return read_bound(self.file(record_id, suffix), sha256)
        except (OSError, BrokenSealError) as error:
            state = "missing" if isinstance(error, OSError) else "damaged"
            raise CalibrationRecordError(
                f"the {what} of calibration '{record_id}' are {state}: calibrate again"
            ) from error

    def keep_check(self, check: PromiseCheck) -> None:
        """Keep the newest check of a record. A broken promise stays so until a check shows that it holds, or
        until the answers to searches that showed it do not any more: they are tried again as they grow.
        """
        file = self._check_file(check.calibration)
        if check.verdict == "unclear":
            with suppress(CalibrationRecordError):
                before = self.last_check(self.get(check.calibration))
                is_same_kind = before is not None and before.source == check.source == "searches"
                if before is not None and before.verdict == "broken" and not is_same_kind:
                    return
        file.parent.mkdir(exist_ok=True)
        write_sealed(file, check.model_dump_json(indent=2))

    def last_check(self, record: CalibrationRecord) -> PromiseCheck | None:
        """The newest try of what a record promised; None where there is none."""
        file = self._checks.get(record.id)
        if file is None:
            file = SealedFile(self._check_file(record.id), PromiseCheck.model_validate_json)
        try:
            found = file.read()
        except FileNotFoundError:
            return None
        except (OSError, BrokenSealError) as error:
            raise CalibrationRecordError(
                f"the check of calibration {record.id} is damaged, so that nobody knows whether its promise "
                "was found broken: ",
                remedy_of(self.path.parent, file.path),
            ) from error
        # Every search asks for that of the one in force.
        self._checks[record.id] = file
        return found

    def _check_file(self, record_id: str) -> Path:
        return self.path / "checks" / f"{Path(record_id).name}.json"


def _slot(pipeline: str, version: int) -> str:
    """Place of a pipeline's activation: for the gallery, or for one version alone."""
    return f"version {version}{_SLOT_MARK}{pipeline}" if version else pipeline
