"""Check: new labelled queries at the threshold of a calibration; nothing is calibrated or changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, StrictBool, model_validator

from vicinal.service.errors import RequestError
from vicinal.service.operations import Operation, Progress
from vicinal.service.operations.calibrate import answered_searches
from vicinal.service.request_fields import CommandOption, PipelineChoice, QuerySource

if TYPE_CHECKING:
    from vicinal.service.measuring.matcher import Matcher
    from vicinal.service.measuring.records.promise import PromiseCheck
    from vicinal.service.measuring.records.record import CalibrationRecord
    from vicinal.service.operations.place import Place

_OWN_LABELS = "regex:(.+)"
STAGES = {"embed": "Embedding queries", "score": "Scoring"}


class NewQueries(QuerySource):
    """New labelled queries to try a calibration's promise with."""

    queries: Annotated[
        str | None,
        CommandOption(
            "New labelled queries, of any source that `vicinal index` takes; also of things that the gallery "
            "does not have.",
        ),
    ] = Field(
        None,
        description="New labelled queries, of any source that a re-index takes, or embeddings with labels.",
    )
    answers: Annotated[
        StrictBool,
        CommandOption("Use the answers to kept searches (`vicinal review`) in place of queries."),
    ] = Field(False, description="Use what persons said of kept searches, in place of queries.")
    absent: Annotated[str | None, CommandOption()] = Field(
        None, description="Photos of what the gallery lacks, in place of queries: each of a thing of its own."
    )

    @model_validator(mode="before")
    @classmethod
    def _each_its_own(cls, given: Any) -> Any:
        """Read photos of what the gallery lacks as queries whose labels are their paths."""
        if not isinstance(given, dict) or given.get("absent") is None:
            return given
        if given.get("queries") is not None:
            raise ValueError("photos of what the gallery lacks stand in place of queries: name one of them")
        return {**given, "absent": None, "queries": given["absent"], "label_from": _OWN_LABELS}


class CheckRequest(PipelineChoice, NewQueries):
    """A calibration by its id, or the one in force for a pipeline, and what it is tried with."""

    command_order = ("queries", "answers", "absent", "calibration")

    calibration: Annotated[
        str | None, CommandOption("Id of the calibration; by default the one in force.")
    ] = None

    @model_validator(mode="after")
    def _one_source(self) -> CheckRequest:
        if self.answers and self.queries is not None:
            raise ValueError("a promise is tried with queries or with answers to searches: name one of them")
        return self


def require(place: Place, request: CheckRequest) -> None:
    """Refuse a record that promised nothing, or that no search of the gallery could be decided by."""
    from vicinal.calibration.errors import CalibrationError

    record = _record(place.matcher, request)
    _require_checkable(place.matcher, record)
    if request.answers:
        answered_searches(place.matcher, record.pipeline)
        return
    if request.queries is None and place.sent is None and place.sent_labels is None:
        raise CalibrationError(
            "a promise is tried with new photos: send queries (a source), embeddings with labels, or a "
            "form with the fields image and label; or name answers"
        )
    place.require_queries(request)


def run(place: Place, request: CheckRequest, progress: Progress) -> PromiseCheck:
    """Try what a calibration promised on the built version, and keep what was found beside it."""
    from vicinal.calibration.errors import CalibrationError
    from vicinal.service.measuring.records.promise import check_calibration

    place.settle()
    matcher = place.matcher
    record = _record(matcher, request)
    # Before photos are embedded, which takes a while.
    _require_checkable(matcher, record)
    queries = None if request.answers else place.read_queries(request, progress)
    if queries is None and not request.answers:
        raise CalibrationError(
            "a promise is tried with new photos: name queries, or answers to kept searches; where queries "
            "were sent they are gone: start the check again"
        )
    labels = {one.label for one in queries.items} if queries else set()
    if request.label_from == _OWN_LABELS and labels & {*matcher.snapshot.labels}:
        raise RequestError("the gallery has labels that are names of these photos: lay each in a folder")
    found = check_calibration(
        matcher.calibrator(record.pipeline),
        record,
        queries.labelled() if queries else answered_searches(matcher, record.pipeline),
        warnings=tuple(_warnings(matcher, record)),
        noun=matcher.embedder.bundle.manifest.noun,
        on_progress=progress,
    )
    # An attempt that was overtaken, or cancelled, is told so here and keeps nothing.
    progress("keep", 0, 1)
    matcher.calibrations.keep_check(found)
    return found


OPERATION = Operation("check", CheckRequest, run, require=require)


def _record(matcher: Matcher, request: CheckRequest) -> CalibrationRecord:
    """The calibration that is named, or that decides searches with the pipeline."""
    from vicinal.service.measuring.matcher import measuring_command

    store = matcher.calibrations
    if request.calibration is not None:
        return store.find(request.calibration)
    pipeline = matcher.chosen(request)
    record = store.active(pipeline)
    if record is not None:
        return record
    others = sorted(store.get(one).pipeline.key for one in store.in_force())
    known = f"; there is one for {' and '.join(repr(one) for one in others)}" if others else ""
    raise RequestError(
        f"gallery '{matcher.gallery.name}' has no calibration in force for '{pipeline.key}', so that nothing "
        f"is promised{known}: make one by `{measuring_command(matcher.gallery)}`"
    )


def _require_checkable(matcher: Matcher, record: CalibrationRecord) -> None:
    from vicinal.service.measuring.records.promise import require_promise

    require_promise(record)
    matcher.thresholds.require_usable(record)
    matcher.refinement(record.pipeline)


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
