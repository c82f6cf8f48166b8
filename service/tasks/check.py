"""Check: new labelled queries at the threshold of a calibration, whoever asks for it."""

from __future__ import annotations

from collections.abc import Iterator

from vicinal.service.errors import RequestError
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.decision import measuring_command
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.options import PipelineChoice
from vicinal.service.measuring.queries import OnProgress, QueryReading
from vicinal.service.measuring.records.promise import PromiseCheck, check_calibration, require_promise
from vicinal.service.measuring.records.record import CalibrationRecord
from vicinal.service.tasks.calibrate import chosen_pipeline


def record_in_force(matcher: Matcher, choice: PipelineChoice) -> CalibrationRecord:
    """The calibration that decides searches with a pipeline."""
    pipeline, store, name = chosen_pipeline(matcher, choice), matcher.calibrations, matcher.gallery.name
    record = store.active(pipeline)
    if record is not None:
        return record
    others = sorted(store.get(one).pipeline.key for one in store.in_force())
    known = f"; there is one for {' and '.join(repr(one) for one in others)}" if others else ""
    raise RequestError(
        f"gallery '{name}' has no calibration in force for '{pipeline.key}', so that nothing is promised"
        f"{known}: make one by `{measuring_command(matcher.gallery)}`"
    )


def require_checkable(matcher: Matcher, record: CalibrationRecord) -> None:
    """Refuse a record that promised nothing, or that no search of the gallery could be decided by."""
    require_promise(record)
    matcher.thresholds.require_usable(record)
    matcher.refinement(record.pipeline)


def run_check(
    matcher: Matcher,
    record: CalibrationRecord,
    queries: QueryReading,
    *,
    on_progress: OnProgress | None = None,
) -> PromiseCheck:
    """Try what a calibration promised on the built version under a matcher; nothing is changed or kept."""
    require_checkable(matcher, record)
    refinement = matcher.refinement(record.pipeline)
    calibrator = Calibrator(
        matcher.snapshot, record.pipeline, refinement=refinement, device=matcher.gallery.index_device
    )
    warnings = (*queries.warnings, *_warnings(matcher, record))
    return check_calibration(
        calibrator,
        record,
        queries.labelled(),
        warnings=warnings,
        noun=matcher.embedder.bundle.manifest.noun,
        on_progress=on_progress,
    )


def _warnings(matcher: Matcher, record: CalibrationRecord) -> Iterator[str]:
    stale = matcher.thresholds.of_record(record).reason
    if stale is not None:
        yield stale
    if record.id not in matcher.calibrations.in_force():
        yield f"calibration {record.id} is not in force: searches are decided by another threshold"
    if matcher.view.n_changes:
        yield (
            f"{matcher.view.n_changes:,} live changes were left out: the built version was searched, as a "
            f"calibration does (`vicinal gallery compact {matcher.gallery.name}` makes a new one)"
        )
