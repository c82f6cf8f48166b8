"""Activations: which calibration is in force for which pipeline, since when, and which were before it.

active.json        {pipeline key: {"calibration": id, "at": when}}; replaced in one step
activations.json   every activation and every roll back, oldest first
activations.lock   held while these two are changed
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from vicinal.indexer.storage.files import file_lock, write_atomically
from vicinal.service.errors import CalibrationRecordError, RequestError

__all__ = ["ACTIVATION_FILES", "Activation", "ActivationEvent", "Activations"]

ACTIVATION_FILES = frozenset({"active.json", "activations.json", "pipeline.json"})
# Each holds the lock for a moment only.
_PATIENCE_SECONDS = 10.0


class Activation(BaseModel):
    """What is in force for one pipeline.

    Attributes:
        calibration: Id of the record.
        at: Since when; None where an older release, which did not note it, put it in force.
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


_ACTIVE = TypeAdapter(dict[str, Activation | str])
_EVENTS = TypeAdapter(list[ActivationEvent])


class Activations:
    """Activations of one gallery.

    Args:
        path: The gallery's folder of calibrations.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: tuple[bytes, dict[str, Activation]] | None = None

    def all(self) -> dict[str, Activation]:
        """What is in force, by pipeline.

        Raises:
            CalibrationRecordError: The file is damaged.
        """
        file = self.path / "active.json"
        try:
            stored = file.read_bytes()
        except FileNotFoundError:
            return {}
        # Searches ask for this one by one; reading the few bytes is cheap, understanding them is not.
        if self._read is not None and self._read[0] == stored:
            return self._read[1]
        try:
            found = _ACTIVE.validate_json(stored)
        except ValidationError as error:
            raise CalibrationRecordError(f"'{file}' is damaged") from error
        active = {
            key: Activation(calibration=one) if isinstance(one, str) else one for key, one in found.items()
        }
        self._read = stored, active
        return active

    def active(self, pipeline: str) -> Activation | None:
        """What is in force for the pipeline of this key."""
        return self.all().get(pipeline)

    def events(self) -> list[ActivationEvent]:
        """Every change, oldest first.

        Raises:
            CalibrationRecordError: The file is damaged.
        """
        file = self.path / "activations.json"
        try:
            return _EVENTS.validate_json(file.read_bytes())
        except FileNotFoundError:
            return []
        except ValidationError as error:
            raise CalibrationRecordError(f"'{file}' is damaged") from error

    def activate(self, pipeline: str, calibration: str) -> None:
        """Put a record in force; one that is in force already stays so without a new event."""
        with self._changing():
            before = self.active(pipeline)
            if before is None or before.calibration != calibration:
                self._change("activate", pipeline, calibration)

    def roll_back(self, pipeline: str) -> str:
        """Put in force again what was before the present one.

        Returns:
            Id of the record that is in force now.

        Raises:
            RequestError: There was none before.
            CalibrationRecordError: A file is damaged.
        """
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
        # The events lack what an older release put in force, and what a crash left without its event.
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
        _write(self.path / "active.json", {key: one.model_dump(mode="json") for key, one in active.items()})
        _write(self.path / "activations.json", [event.model_dump(mode="json") for event in events])

    @contextmanager
    def _changing(self) -> Iterator[None]:
        self.path.mkdir(parents=True, exist_ok=True)
        busy = f"calibrations in '{self.path}' are being changed by another process: try again"
        with file_lock(self.path / "activations.lock", busy, patience=_PATIENCE_SECONDS):
            yield


def _write(path: Path, value: object) -> None:
    write_atomically(path, json.dumps(value, indent=2) + "\n")
