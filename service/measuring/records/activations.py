"""Activations: which calibration is in force for which pipeline, since when, and which were before it.

active.json        {pipeline key: {"calibration": id, "at": when}}; replaced in one step
activations.json   {"events": every activation and every roll back, oldest first}
activations.lock   held while these two are changed
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

from vicinal.indexer.storage.files import SealedFile, file_lock, read_sealed, write_sealed
from vicinal.models.configs.sealed_json import BrokenSealError
from vicinal.service.errors import CalibrationRecordError, RequestError

logger = logging.getLogger(__name__)
ACTIVATION_FILES = frozenset({"active.json", "activations.json", "pipeline.json"})
# Each holds the lock for a moment only.
_PATIENCE_SECONDS = 10.0


class Activation(BaseModel):
    """What is in force for one pipeline.

    Attributes:
        calibration: Id of the record.
        at: Since when; None where that is not known.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    calibration: str
    at: datetime | None = None


class ActivationEvent(BaseModel):
    """One change of what is in force.

    Attributes:
        kind: `activate`, or `roll_back` to what was in force before.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["activate", "roll_back"]
    pipeline: str
    calibration: str
    at: datetime | None


class _Events(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    events: list[ActivationEvent] = []


_ACTIVE = TypeAdapter(dict[str, Activation])


class Activations:
    """Activations of one gallery.

    Args:
        path: The gallery's folder of calibrations.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._active = SealedFile(path / "active.json", _ACTIVE.validate_json)
        self._events_path = path / "activations.json"

    def all(self) -> dict[str, Activation]:
        """What is in force, by pipeline."""
        try:
            return self._active.read()
        except FileNotFoundError:
            # It is written before the other one.
            if not self._events_path.exists():
                return {}
            raise self._damaged(self._active.path, "missing") from None
        except (OSError, BrokenSealError) as error:
            raise self._damaged(self._active.path, "damaged") from error

    def active(self, pipeline: str) -> Activation | None:
        """What is in force for the pipeline of this key."""
        return self.all().get(pipeline)

    def events(self) -> list[ActivationEvent]:
        """Every change, oldest first."""
        try:
            return _Events.model_validate_json(read_sealed(self._events_path)).events
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise self._damaged(self._events_path, "damaged") from error

    def activate(self, pipeline: str, calibration: str) -> None:
        """Put a record in force; one that is in force already stays so without a new event.

        A file that is damaged is made again of the other one; of two, what they said is lost.
        """
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
        """What was put in force and not rolled back, the present one last."""
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
        write_sealed(self._events_path, _Events(events=events).model_dump_json(indent=2))

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
            f"'{path}' is {how}, so that nobody knows which calibration is in force: put one in force by "
            f"`vicinal calibration activate ID -g {name}`; `vicinal calibration list -g {name}` shows them"
        )

    @contextmanager
    def _changing(self) -> Iterator[None]:
        self.path.mkdir(parents=True, exist_ok=True)
        busy = f"calibrations in '{self.path}' are being changed by another process: try again"
        with file_lock(self.path / "activations.lock", busy, patience=_PATIENCE_SECONDS):
            yield
