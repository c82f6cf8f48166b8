"""Calibration records of a gallery, and which is in force for which pipeline, since when."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

from sqlalchemy import Row, select

from vicinal.calibration.advice import advise
from vicinal.calibration.frozen import Frozen
from vicinal.indexer.state import DamagedRowError, Rows, state_of
from vicinal.indexer.state.schema import activations, documents
from vicinal.indexer.state.state import Cached
from vicinal.indexer.storage.files import identity_of
from vicinal.service.errors import CalibrationNotFoundError, CalibrationRecordError, RequestError
from vicinal.service.measuring.records.curves import CalibrationCurves
from vicinal.service.measuring.records.points import CalibrationPoints
from vicinal.service.measuring.records.promise import PromiseCheck
from vicinal.service.measuring.records.record import CalibrationRecord, StoredScores
from vicinal.service.records import Records, remedy_of_row
from vicinal.service.search.label_scores import keep_metric
from vicinal.service.search.pipeline import Pipeline

logger = logging.getLogger(__name__)
# No key of a pipeline holds it.
_SLOT_MARK = ": "
_CHECK = "check"
# What is kept beside a record.
Attached: TypeAlias = tuple[StoredScores, CalibrationCurves, CalibrationPoints]


class ActivationEvent(Frozen):
    """Change of what is in force: `activate`, or `roll_back` to what was in force before; `at` is None where
    that is not known.
    """

    kind: Literal["activate", "roll_back"]
    pipeline: str
    calibration: str
    at: datetime | None


class Activations:
    """Activations of the gallery in a folder."""

    def __init__(self, gallery: Path) -> None:
        self._gallery = gallery
        self._state = state_of(gallery)
        self._newest = Cached(self._state, lambda rows: _newest(self._events(rows)))

    def all(self) -> dict[str, ActivationEvent]:
        """The newest change of each pipeline, which says what is in force."""
        return self._newest.get()

    def events(self) -> list[ActivationEvent]:
        """Every change, oldest first."""
        with self._state.reading() as rows:
            return self._events(rows)

    @staticmethod
    def activate(rows: Rows, pipeline: str, calibration: str) -> None:
        """Put a record in force, without a new event where it is already; damaged events go."""
        for one in rows.remove_damaged(activations.c.number):
            logger.warning("%s; what is in force is that of the other events", one)
        events = _events_of(rows.all(activations, order_by=[activations.c.number]))
        before = _newest(events).get(pipeline)
        if before is None or before.calibration != calibration:
            _add(rows, "activate", pipeline, calibration)

    def roll_back(self, pipeline: str) -> str:
        """Put in force again what was before the present one."""
        with self._state.changing() as rows:
            before = _stack(self._events(rows), pipeline)[:-1]
            if not before:
                raise RequestError(f"no calibration was in force for '{pipeline}' before the present one")
            _add(rows, "roll_back", pipeline, before[-1])
            return before[-1]

    def _events(self, rows: Rows) -> list[ActivationEvent]:
        try:
            return _events_of(rows.all(activations, order_by=[activations.c.number]))
        except DamagedRowError as error:
            raise CalibrationRecordError(
                f"{error}, so that nobody knows which calibration is in force: ",
                advise(
                    "put one in force by {activate()}; {list_calibrations()} shows them",
                    gallery=self._gallery.name,
                ),
            ) from error


def _events_of(found: Sequence[Row[Any]]) -> list[ActivationEvent]:
    return [
        ActivationEvent(
            kind=one.kind,
            pipeline=one.slot,
            calibration=one.calibration,
            at=None if one.at is None else datetime.fromtimestamp(one.at, UTC),
        )
        for one in found
    ]


def _newest(events: Sequence[ActivationEvent]) -> dict[str, ActivationEvent]:
    return {one.pipeline: one for one in events}


def _stack(events: Sequence[ActivationEvent], pipeline: str) -> list[str]:
    """Activations not rolled back, the present one last."""
    stack: list[str] = []
    for event in events:
        if event.pipeline != pipeline:
            continue
        if event.kind == "roll_back":
            del stack[-1:]
        if not stack or stack[-1] != event.calibration:
            stack.append(event.calibration)
    return stack


def _add(rows: Rows, kind: str, pipeline: str, calibration: str) -> None:
    number = max(rows.values(activations.c.number), default=0) + 1
    event = {"slot": pipeline, "kind": kind, "calibration": calibration, "at": datetime.now(UTC).timestamp()}
    rows.add(activations, {"number": number, **event})


class CalibrationStore(Records[CalibrationRecord]):
    """Records of the gallery in a folder. Those of the version `calibrated_as` (0 for none) go first, and get
    what is put in force, so that a roll back to another version brings back its own.
    """

    model, kind = CalibrationRecord, "calibration"
    not_found, error = CalibrationNotFoundError, CalibrationRecordError

    def __init__(self, gallery: Path, *, calibrated_as: int = 0) -> None:
        super().__init__(gallery)
        self.calibrated_as = calibrated_as
        self.activations = Activations(gallery)
        # Every search asks for the check of the calibration in force.
        self._seals = Cached(self.state, _seals_of_checks)
        self._checks: dict[bytes, PromiseCheck] = {}

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
        named = {"gallery": record.gallery or self.gallery.name, "gallery_id": identity_of(self.gallery)}
        kept = record.model_copy(update=named)
        parts = {"scores": scores, "curves": curves, "points": points}
        attached = {name: one.to_bytes() for name, one in parts.items() if one is not None}
        group = record.pipeline.group
        with self.state.changing() as rows:
            self.keep_in(rows, kept, attached)
            if group is not None and group.metric:
                keep_metric(rows, self.gallery, group.metric)
            if activate:
                self.activations.activate(rows, _slot(kept.pipeline.slot, self.calibrated_as), kept.id)
        return kept

    def activate(self, record: CalibrationRecord, version: int | None = None) -> None:
        """Let searches with the record's pipeline use it from their next request on; as a version's own it is
        in force from the moment in which that is searched.
        """
        version = self.calibrated_as if version is None else version
        with self.state.changing() as rows:
            self.activations.activate(rows, _slot(record.pipeline.slot, version), record.id)

    def has_own(self, version: int) -> bool:
        """Tell whether a version has calibrations of its own."""
        return any(slot.startswith(_slot("", version)) for slot in self.activations.all())

    def activation(self, pipeline: Pipeline) -> ActivationEvent | None:
        """Activation for a pipeline, in any form of group score: the version's own, else the gallery's."""
        return self._activation(pipeline.slot)

    def _activation(self, slot: str) -> ActivationEvent | None:
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
        stored = self.attached(record.id, "scores")
        return None if stored is None else StoredScores.from_bytes(stored)

    def curves(self, record: CalibrationRecord) -> CalibrationCurves | None:
        """The curves and examples of a record; None where there are none."""
        stored = self.attached(record.id, "curves")
        return None if stored is None else CalibrationCurves.from_bytes(stored)

    def points(self, record: CalibrationRecord) -> CalibrationPoints | None:
        """The points of a record; None where there are none."""
        stored = self.attached(record.id, "points")
        return None if stored is None else CalibrationPoints.from_bytes(stored)

    def keep_check(self, check: PromiseCheck) -> None:
        """Keep the newest check of a record. A broken promise stays so until a check shows that it holds, or
        until the answers to searches that showed it do not any more: they are tried again as they grow.
        """
        with self.state.changing() as rows:
            before = None
            # A damaged one is written anew.
            with suppress(CalibrationRecordError):
                before = self._check(rows, check.calibration)
            is_same_kind = before is not None and before.source == check.source == "searches"
            is_broken = before is not None and before.verdict == "broken" and not is_same_kind
            if check.verdict != "unclear" or not is_broken:
                row = {"kind": _CHECK, "id": check.calibration, "at": check.checked_at.timestamp()}
                rows.put(documents, {**row, "content": check.model_dump_json()})

    def last_check(self, record: CalibrationRecord) -> PromiseCheck | None:
        """The newest try of what a record promised; None where there is none."""
        seal = self._seals.get().get(record.id)
        if seal is None or seal in self._checks:
            return None if seal is None else self._checks[seal]
        with self.state.reading() as rows:
            found = self._check(rows, record.id)
        if found is not None:
            self._checks[seal] = found
        return found

    def _check(self, rows: Rows, record_id: str) -> PromiseCheck | None:
        try:
            found = rows.first(documents, documents.c.kind == _CHECK, documents.c.id == record_id)
            return None if found is None else PromiseCheck.model_validate_json(found.content)
        except (DamagedRowError, ValueError) as error:
            raise CalibrationRecordError(
                f"the check of calibration {record_id} is damaged, so that nobody knows whether its promise "
                "was found broken: ",
                remedy_of_row(self.gallery, _CHECK),
            ) from error


def _seals_of_checks(rows: Rows) -> dict[str, bytes]:
    table = documents
    asked = rows.of(select(table.c.id, table.c.seal).where(table.c.kind == _CHECK), table)
    return {record_id: bytes(seal) for record_id, seal in rows.connection.execute(asked)}


def _slot(pipeline: str, version: int) -> str:
    """Place of a pipeline's activation: for the gallery, or for one version alone."""
    return f"version {version}{_SLOT_MARK}{pipeline}" if version else pipeline
