"""Pipeline comparisons of a gallery: immutable files, and putting a pipeline in force with its threshold.

<gallery>/calibrations/pipelines/<id>.json    one comparison each, never changed, with a record a pipeline
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from vicinal.indexer.storage.files import write_atomically
from vicinal.service.calibrator.record import CalibrationRecord
from vicinal.service.comparisons.pipeline_comparison import ComparedPipelines
from vicinal.service.comparisons.pipeline_record import PipelineComparison
from vicinal.service.errors import (
    CalibrationNotFoundError,
    CalibrationRecordError,
    RequestError,
)
from vicinal.service.matcher.matcher import Matcher
from vicinal.service.scoring.pipeline import ActivePipeline, ChosenPipeline
from vicinal.service.thresholds.store import CalibrationStore

__all__ = ["PipelineComparisonStore", "activate_pipeline"]

_ID = re.compile(r"[\w-][\w.-]{0,63}")


class PipelineComparisonStore:
    """Comparisons of one gallery.

    Args:
        calibrations: Records of the gallery.
    """

    def __init__(self, calibrations: CalibrationStore) -> None:
        self.calibrations = calibrations
        self.path = calibrations.path / "pipelines"

    def add(self, found: ComparedPipelines) -> PipelineComparison:
        """Keep a comparison, and the whole calibration of the pipeline that it recommends.

        Raises:
            CalibrationRecordError: There is one of this id: comparisons are never changed.
        """
        comparison = found.comparison
        file = self._file(comparison.id)
        if file.exists():
            raise CalibrationRecordError(
                f"comparison '{comparison.id}' exists: comparisons are never changed"
            )
        kept = found.recommended
        self.calibrations.add(kept.record, kept.scores, kept.curves, activate=False)
        file.parent.mkdir(parents=True, exist_ok=True)
        # Last, so that a comparison that is there is complete.
        write_atomically(file, comparison.model_dump_json(indent=1) + "\n")
        return comparison

    def find(self, comparison_id: str) -> PipelineComparison:
        """One comparison.

        Raises:
            CalibrationNotFoundError: There is none of this id.
            CalibrationRecordError: It is damaged.
        """
        file = self._file(comparison_id)
        if not _ID.fullmatch(comparison_id) or not file.is_file():
            raise CalibrationNotFoundError(f"there is no comparison of pipelines '{comparison_id}'")
        try:
            return PipelineComparison.model_validate_json(file.read_bytes())
        except (OSError, ValidationError) as error:
            raise CalibrationRecordError(f"comparison '{comparison_id}' is damaged: compare again") from error

    def history(self) -> list[PipelineComparison]:
        """All comparisons, newest first.

        Raises:
            CalibrationRecordError: One is damaged.
        """
        found = [self.find(file.stem) for file in self.path.glob("*.json")]
        return sorted(found, key=lambda one: (one.created_at, one.id), reverse=True)

    def _file(self, comparison_id: str) -> Path:
        return self.path / f"{Path(comparison_id).name}.json"


def activate_pipeline(
    matcher: Matcher, comparison: PipelineComparison, key: str | None = None
) -> ActivePipeline:
    """Let searches use a compared pipeline and its threshold, both from one moment on.

    Args:
        matcher: The gallery as it is.
        comparison: One of its comparisons.
        key: Key of the pipeline; the recommended one when None.

    Raises:
        RequestError: It was not compared, or has no threshold.
        CalibrationMismatchError: It was compared with another bundle or gallery.
        GalleryNotRefinedError: The version's items were never refined so.
    """
    variant = comparison.variant(key or comparison.recommended)
    if variant is None:
        raise RequestError(f"comparison '{comparison.id}' has no pipeline '{key}': name one of its keys")
    if variant.record is None:
        raise RequestError(f"pipeline '{variant.key}' has no threshold: {variant.problem}")
    matcher.thresholds.require_usable(variant.record)
    matcher.refinement(variant.pipeline)
    record = _kept(matcher.calibrations, variant.record)
    # In this order: the threshold of a pipeline that no search uses yet decides nothing.
    matcher.calibrations.activate(record)
    matcher.pipeline_file.put_in_force(
        ChosenPipeline(
            pipeline=variant.pipeline,
            bundle=comparison.bundle,
            comparison=comparison.id,
            calibration=record.id,
            at=datetime.now(UTC),
        )
    )
    return matcher.active_pipeline


def _kept(store: CalibrationStore, record: CalibrationRecord) -> CalibrationRecord:
    try:
        return store.find(record.id)
    except CalibrationNotFoundError:
        return store.add(record, activate=False)
