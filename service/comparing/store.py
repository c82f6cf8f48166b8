"""Comparisons of a gallery, and putting a variant in force."""

from __future__ import annotations

from datetime import UTC, datetime

from vicinal.indexer.gallery import Gallery
from vicinal.service.comparing.record import Comparison
from vicinal.service.errors import (
    CalibrationNotFoundError,
    ComparisonNotFoundError,
    ComparisonRecordError,
    RequestError,
)
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.galleries.versions import activate_version
from vicinal.service.measuring.records.record import CalibrationRecord
from vicinal.service.measuring.records.store import Attached, CalibrationStore
from vicinal.service.records import Records
from vicinal.service.search.pipeline import ChosenPipeline


class ComparisonStore(Records[Comparison]):
    """Comparisons of the gallery in a folder."""

    model, kind = Comparison, "comparison"
    not_found, error = ComparisonNotFoundError, ComparisonRecordError

    def summaries(self) -> dict[int, str]:
        """The newest comparison of each version with another, in one line."""
        lines: dict[int, str] = {}
        for comparison in self.history(passes_over_damaged=True):
            lines = {**comparison.summaries, **lines}
        return lines


def keep_calibration(
    store: CalibrationStore, record: CalibrationRecord, made: Attached | None = None
) -> CalibrationRecord:
    """Keep a calibration of a comparison, which decides nothing yet; what is kept already is given back."""
    try:
        return store.find(record.id)
    except CalibrationNotFoundError:
        return store.add(record, *(made or ()), activate=False)


def put_in_force(
    gallery: Gallery, bundles: ServedBundles, comparison: Comparison, number: int | None = None
) -> None:
    """Let searches use a variant, the recommended one when None; one of another version activates that."""
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
        store = CalibrationStore(gallery.path)
        store.activate(keep_calibration(store, record), variant.version)
        activate_version(gallery, variant.version, bundles=bundles)
    matcher = bundles.matcher(gallery)
    matcher.thresholds.require_usable(record)
    matcher.refinement(variant.pipeline)
    # In this order: the threshold of a pipeline that no search uses yet decides nothing.
    matcher.calibrations.activate(keep_calibration(matcher.calibrations, record))
    if matcher.pipeline.key != variant.pipeline.key:
        matcher.pipeline_store.put_in_force(
            ChosenPipeline(
                pipeline=variant.pipeline,
                bundle=variant.bundle,
                comparison=comparison.id,
                calibration=record.id,
                at=datetime.now(UTC),
            )
        )
