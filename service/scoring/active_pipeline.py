"""Active pipeline: what `auto` stands for in the searches of one gallery.

That is the service's pipeline, from its settings, until a comparison is put in force for the gallery:

    <gallery>/calibrations/pipeline.json     the chosen pipeline and its comparison; replaced in one step

Its threshold is put in force before it, so that there is no moment in which searches use the one without the
other. A choice holds for the bundle and the refiner that it was made with.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from vicinal.indexer.storage.files import write_atomically
from vicinal.models.bundle import ModelBundle
from vicinal.service.errors import CalibrationRecordError
from vicinal.service.scoring.pipeline import Pipeline

__all__ = ["ChosenPipeline", "ActivePipeline", "ActivePipelineFile"]

logger = logging.getLogger(__name__)


class ChosenPipeline(BaseModel):
    """A pipeline that was put in force for a gallery.

    Attributes:
        bundle: Fingerprint of the bundle that it was compared with.
        comparison: Id of the comparison.
        calibration: Id of the calibration that was put in force with it.
        at: When.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    pipeline: Pipeline
    bundle: str
    comparison: str
    calibration: str
    at: datetime


@dataclass(frozen=True)
class ActivePipeline:
    """What `auto` stands for.

    Attributes:
        pipeline: The pipeline.
        source: The `settings` of the service, or a `comparison`.
        chosen: The choice that is in force; None where there is none.
        reason: Why a choice that was made does not hold; None otherwise.
    """

    pipeline: Pipeline
    source: Literal["settings", "comparison"] = "settings"
    chosen: ChosenPipeline | None = None
    reason: str | None = None


class ActivePipelineFile:
    """The chosen pipeline of one gallery, on the disk.

    Args:
        path: The gallery's folder of calibrations.
    """

    def __init__(self, path: Path) -> None:
        self.path = path / "pipeline.json"
        self._read: tuple[bytes, ChosenPipeline] | None = None
        self._told: str | None = None

    def chosen(self) -> ChosenPipeline | None:
        """What was put in force; None where the settings decide.

        Raises:
            CalibrationRecordError: The file is damaged.
        """
        try:
            stored = self.path.read_bytes()
        except FileNotFoundError:
            return None
        # Every search asks; reading the few bytes is cheap, understanding them is not.
        if self._read is None or self._read[0] != stored:
            try:
                self._read = stored, ChosenPipeline.model_validate_json(stored)
            except ValidationError as error:
                raise CalibrationRecordError(f"'{self.path}' is damaged") from error
        return self._read[1]

    def resolve(self, default: Pipeline, bundle: ModelBundle) -> ActivePipeline:
        """What `auto` stands for.

        Args:
            default: The service's pipeline.
            bundle: The bundle that the gallery is searched with.

        Raises:
            CalibrationRecordError: The file is damaged.
        """
        chosen = self.chosen()
        if chosen is None:
            return ActivePipeline(default)
        reason = _mismatch(chosen, bundle)
        if reason is None:
            return ActivePipeline(chosen.pipeline, "comparison", chosen)
        if reason != self._told:
            self._told = reason
            logger.warning("%s", reason)
        return ActivePipeline(default, reason=reason)

    def put_in_force(self, chosen: ChosenPipeline) -> None:
        """Let searches that ask for nothing else use a pipeline from their next request on."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, chosen.model_dump_json(indent=2) + "\n")

    def clear(self) -> None:
        """Let the settings decide again."""
        self.path.unlink(missing_ok=True)


def _mismatch(chosen: ChosenPipeline, bundle: ModelBundle) -> str | None:
    """Why a choice does not hold for a bundle."""
    begin = f"the pipeline of comparison {chosen.comparison} is not used: it was chosen with"
    if chosen.bundle != bundle.fingerprint:
        return f"{begin} bundle {chosen.bundle}, this is {bundle.fingerprint}: compare again"
    manifest = bundle.manifest.refiner
    refiner = "none" if manifest is None else manifest.fingerprint
    if chosen.pipeline.refine.sides != "off" and chosen.pipeline.refine.refiner != refiner:
        return f"{begin} refiner {chosen.pipeline.refine.refiner}, this is {refiner}: compare again"
    return None
