"""Comparisons of a gallery: immutable files, and putting one of the variants in force with its threshold.

<gallery>/comparisons/<id>.json    one comparison each, with the calibration of every variant
"""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime

from vicinal.indexer.gallery import Gallery
from vicinal.indexer.storage.files import read_sealed, write_sealed
from vicinal.service.comparing.record import Comparison
from vicinal.service.errors import (
    CalibrationNotFoundError,
    ComparisonNotFoundError,
    ComparisonRecordError,
    RequestError,
)
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.galleries.versions import activate_version
from vicinal.service.measuring.records.curves import CalibrationCurves
from vicinal.service.measuring.records.record import CalibrationRecord, StoredScores
from vicinal.service.measuring.records.store import CalibrationStore
from vicinal.service.search.pipeline import ChosenPipeline

logger = logging.getLogger(__name__)
_ID = re.compile(r"[\w-][\w.-]{0,63}")


class ComparisonStore:
    """Comparisons of one gallery.

    Args:
        gallery: The gallery.
    """

    def __init__(self, gallery: Gallery) -> None:
        self.gallery = gallery
        self.path = gallery.path / "comparisons"

    def add(self, comparison: Comparison) -> None:
        """Keep a comparison."""
        file = self.path / f"{comparison.id}.json"
        if file.exists():
            raise ComparisonRecordError(f"comparison '{comparison.id}' exists: comparisons are never changed")
        self.path.mkdir(parents=True, exist_ok=True)
        write_sealed(file, comparison.model_dump_json(indent=1))

    def find(self, comparison_id: str) -> Comparison:
        """One comparison."""
        file = self.path / f"{comparison_id}.json"
        if not _ID.fullmatch(comparison_id) or not file.is_file():
            raise ComparisonNotFoundError(self.gallery.name, comparison_id)
        try:
            return Comparison.model_validate_json(read_sealed(file))
        except (OSError, ValueError) as error:
            raise ComparisonRecordError(
                f"comparison '{comparison_id}' of gallery '{self.gallery.name}' is damaged: compare again"
            ) from error

    def history(self) -> list[Comparison]:
        """All comparisons, newest first; damaged ones are passed over and logged."""
        found = []
        for file in self.path.glob("*.json"):
            try:
                found.append(self.find(file.stem))
            except ComparisonRecordError as error:
                logger.warning("%s", error)
        return sorted(found, key=lambda one: (one.created_at, one.id), reverse=True)

    def summaries(self) -> dict[int, str]:
        """The newest comparison of each version with another, in one line."""
        lines: dict[int, str] = {}
        for comparison in self.history():
            lines = {**comparison.summaries, **lines}
        return lines


def keep_calibration(
    store: CalibrationStore,
    record: CalibrationRecord,
    scores: StoredScores | None = None,
    curves: CalibrationCurves | None = None,
) -> CalibrationRecord:
    """Keep a calibration of a comparison, which decides nothing yet; what is kept already is given back."""
    try:
        return store.find(record.id)
    except CalibrationNotFoundError:
        return store.add(record, scores, curves, activate=False)


def put_in_force(
    gallery: Gallery, bundles: ServedBundles, comparison: Comparison, number: int | None = None
) -> None:
    """Let searches use a compared variant and its threshold from their next request on.

    A variant of the version that was active changes what is searched now, whatever was made of that version
    since; one of another version activates that version, with what was calibrated for it.

    Args:
        number: Number of the variant; the recommended one when None.
    """
    number = comparison.recommended if number is None else number
    if not 0 <= number < len(comparison.variants):
        raise RequestError(f"comparison '{comparison.id}' has no variant {number}")
    variant = comparison.variants[number]
    record, problem = variant.calibration, variant.problem
    if record is None or problem is not None:
        raise RequestError(
            f"variant {number} cannot be used: {problem or variant.left_out.get('calibration')}"
        )
    if variant.version != comparison.variants[0].version:
        store = CalibrationStore(gallery.calibrations_path)
        store.prepare(keep_calibration(store, record), variant.version)
        activate_version(gallery, variant.version, bundles=bundles)
    matcher = bundles.matcher(gallery)
    matcher.thresholds.require_usable(record)
    matcher.refinement(variant.pipeline)
    # In this order: the threshold of a pipeline that no search uses yet decides nothing.
    matcher.calibrations.activate(keep_calibration(matcher.calibrations, record))
    if matcher.pipeline.key != variant.pipeline.key:
        matcher.pipeline_file.put_in_force(
            ChosenPipeline(
                pipeline=variant.pipeline,
                bundle=variant.bundle,
                comparison=comparison.id,
                calibration=record.id,
                at=datetime.now(UTC),
            )
        )
