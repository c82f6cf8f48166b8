"""Calibrate: the threshold that holds a stated target on a gallery, and what it lets expect."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, StrictBool, StrictInt, model_validator

from vicinal.service.operations import Operation, Progress
from vicinal.service.request_fields import (
    CommandOption,
    MetricChoice,
    PipelineChoice,
    QuerySource,
    TargetText,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vicinal.calibration.targets import Target
    from vicinal.models.bundle import Noun
    from vicinal.service.measuring.calibrator import Calibration
    from vicinal.service.measuring.matcher import Matcher
    from vicinal.service.measuring.queries import QueryReading
    from vicinal.service.measuring.records.record import CalibrationRecord
    from vicinal.service.measuring.searches import DrawnSearches
    from vicinal.service.operations.place import Place
    from vicinal.service.search.pipeline import Pipeline

STAGES = {"embed": "Embedding queries", "score": "Scoring"}
# Sources that know more than the gallery itself.
_FROM_OUTSIDE = ("queries", "searches")
# What a promise may be worse by before anyone is asked: of photos found, and of wrong matches.
_FEWER_FOUND = 0.02
_MORE_WRONG = 0.005


class CalibrateRequest(PipelineChoice, QuerySource):
    """Request to calibrate for a target, with labelled queries."""

    command_order = ("target", "queries", "answers", "visits_by")
    command_options: ClassVar[Mapping[str, CommandOption]] = {
        "refine": CommandOption("What is refined; auto: as in searches."),
        "rerank": CommandOption("The re-ranking; auto: as in searches."),
        "group_by": CommandOption(
            "Decide by products with all their items: label or a metadata key; auto: as in searches."
        ),
    }

    queries: str | None = Field(
        None,
        description="Labelled queries, of any source that `vicinal index` or a re-index takes, or embeddings "
        "with labels. Without: every labelled item is left out once.",
    )
    answers: StrictBool = Field(
        False,
        description="Use what persons said of kept searches (`vicinal review`) in place of queries: of those "
        "drawn, each with the weight of its draw.",
    )
    target: TargetText = Field(
        "fpir=5%",
        description="`fpir=5%` (absent queries answered), `fnir=20%` (queries that miss all mates), "
        "`far=0.001` (pairs accepted wrongly), `frr=10%` (rejected wrongly), `precision=95%`, "
        "`utility=mean` or `utility=worst`.",
    )
    sure: str | None = Field(
        None,
        description="How surely an FPIR or FNIR holds for labels that nobody has seen: `95%`, or `mean` for "
        "in the mean over them; needs more labels. Without: it is counted on the queries.",
    )
    visits_by: str = Field(
        "auto",
        min_length=1,
        description="What tells which photos were taken together, which are never mates: `auto` looks for "
        "it, `none`, or the metadata column of the visit or session.",
    )
    metric: MetricChoice = Field(
        "auto",
        description="How labels are compared: `lda`, by a metric that is made of the gallery's labels; "
        "`cosine`, by the nearest item; `auto` tries both and takes what finds more.",
    )
    max_queries: Annotated[StrictInt, CommandOption(max=None)] = Field(
        2000, ge=1, le=100_000, description="Sample at most this many queries."
    )
    absent: Annotated[float | None, CommandOption(max=0.99)] = Field(
        None,
        ge=0.0,
        lt=1.0,
        description="Share of real searches for things that the gallery lacks, such as 0.2, that a precision "
        "is for. Without: that of the queries, and half where every query is tried both ways.",
    )
    activate: Annotated[
        StrictBool | None,
        CommandOption(
            "Use it from the next search on.",
            kind=bool,
            default=True,
            read=lambda used: None if used else False,
        ),
    ] = Field(
        None,
        description="Whether searches use the threshold as soon as it is there; when null they do unless it "
        "promises less than the one in force, which `objection` in the job's result then says.",
    )

    @model_validator(mode="after")
    def _can_be_held(self) -> CalibrateRequest:
        self.whole_target()
        return self

    @model_validator(mode="after")
    def _one_source(self) -> CalibrateRequest:
        if not self.answers:
            return self
        if self.queries is not None:
            raise ValueError("a calibration is made of queries or of answers to searches: name one of them")
        if self.visits_by not in ("auto", "none"):
            raise ValueError("answered searches know their own visits: leave visits_by out")
        return self

    def whole_target(self) -> Target:
        """The target, as surely as it is asked for."""
        from vicinal.calibration.targets import Target

        return Target.parse(self.target, self.sure)


@dataclass(frozen=True)
class Calibrated:
    """Calibration that was kept, and why searches do not use it unless they were told to."""

    record: CalibrationRecord
    is_active: bool
    objection: str | None

    def told(self, noun: Noun) -> dict[str, Any]:
        """Summary of a job's result."""
        from vicinal.service.words import metric_words

        evidence, target = self.record.evidence, self.record.target
        return {
            "calibration": self.record.id,
            "threshold": self.record.threshold,
            "target": str(target),
            "pipeline": self.record.pipeline.key,
            "metric": evidence and metric_words(evidence.metric, target, noun),
            "is_active": self.is_active,
            "objection": self.objection,
        }


def require(place: Place, request: CalibrateRequest) -> None:
    """Refuse what cannot work before it waits in the queue."""
    from vicinal.service.measuring.group_trials import require_group_target

    pipeline = _pipeline(place.matcher, request)
    if pipeline.group is not None:
        require_group_target(pipeline.group, request.whole_target())
    place.matcher.refinement(pipeline)
    if request.answers:
        answered_searches(place.matcher, pipeline)
    else:
        place.require_queries(request)


def run(place: Place, request: CalibrateRequest, progress: Progress) -> Calibrated:
    """Calibrate the built version, keep the record by the job's id, and put it in force where it may be."""
    from vicinal.service.measuring.matcher import chose_labels

    place.settle()
    record = _kept(place) or _made(place, request, progress)
    store, objects = place.matcher.calibrations, None
    if request.activate is None:
        # What was chosen takes over from what decides now.
        present = place.matcher.pipeline if chose_labels(record) else record.pipeline
        objects = objection(
            record,
            store.active(present),
            is_broken=place.matcher.threshold(present).state == "broken",
            noun=place.matcher.embedder.bundle.manifest.noun,
        )
    is_active = objects is None if request.activate is None else request.activate
    if is_active:
        place.matcher.put_in_force(record)
    return Calibrated(record, is_active, objects)


def _told(place: Place, made: Calibrated) -> dict[str, Any]:
    return made.told(place.matcher.embedder.bundle.manifest.noun)


OPERATION = Operation("calibrate", CalibrateRequest, run, require=require, told=_told)


def _kept(place: Place) -> CalibrationRecord | None:
    """Record that another attempt has finished."""
    from vicinal.service.errors import CalibrationNotFoundError

    with suppress(CalibrationNotFoundError):
        return place.matcher.calibrations.find(place.id)
    return None


def _made(place: Place, request: CalibrateRequest, progress: Progress) -> CalibrationRecord:
    from vicinal.service.measuring.visits import visit_column

    queries = place.read_queries(request, progress, visit_column=visit_column(request.visits_by))
    found = measure(place.matcher, request, queries, progress)
    # An attempt that was overtaken, or cancelled, is told so here and keeps nothing.
    progress("keep", 0, 1)
    own = found.record.model_copy(update={"id": place.id})
    kept = found.scores, found.curves, found.points
    return _kept(place) or place.matcher.calibrations.add(own, *kept, activate=False)


def answered_searches(matcher: Matcher, pipeline: Pipeline) -> DrawnSearches:
    """Answers to searches of the gallery, as a calibration of a pipeline takes them."""
    from vicinal.service.answering.drawn import drawn_searches
    from vicinal.service.answering.store import SearchStore

    return drawn_searches(SearchStore(matcher.gallery.path), matcher.pictures, pipeline.key)


def measure(
    matcher: Matcher,
    request: CalibrateRequest,
    queries: QueryReading | None = None,
    progress: Progress | None = None,
) -> Calibration:
    """Calibrate the built version, by its labels where nothing else is given; keep nothing."""
    from vicinal.service.measuring.calibrator import Calibrator
    from vicinal.service.measuring.queries import require_labels
    from vicinal.service.measuring.twins import GalleryPictures
    from vicinal.service.measuring.visits import find_visits
    from vicinal.service.search.pipeline import starting_threshold

    gallery, snapshot, pipeline = matcher.gallery, matcher.snapshot, _pipeline(matcher, request)
    if not snapshot.manifest.n_labels:
        require_labels((), None, has_photos=gallery.space is None)
    # Photos from outside were taken apart from those of the gallery, but for those of a named visit.
    is_outside = queries is not None or request.answers
    by = "none" if is_outside and request.visits_by == "auto" else request.visits_by
    calibrator = Calibrator(
        snapshot,
        pipeline,
        most_queries=request.max_queries,
        refinement=matcher.refinement(pipeline),
        visits=find_visits(by, gallery, snapshot),
        pictures=GalleryPictures(gallery, snapshot, request.visits_by),
        # Answers are taken by the threshold that decides now, and so by its metric.
        metric=None if request.answers and request.metric == "auto" else request.metric,
        may_decide_items=_is_open(matcher, request),
        # The bundle knows the best photo's.
        starting=starting_threshold(matcher.embedder.bundle, pipeline.model_copy(update={"group": None})),
        device=gallery.index_device,
    )
    progress = progress or Progress()
    if request.answers:
        return calibrator.measure_searches(
            answered_searches(matcher, pipeline),
            request.whole_target(),
            threshold=matcher.threshold(pipeline).value,
            absent=request.absent,
            on_progress=progress,
        )
    return calibrator.measure(
        queries.labelled() if queries else calibrator.leave_one_out(),
        request.whole_target(),
        absent=request.absent,
        on_progress=progress,
    )


def _is_open(matcher: Matcher, request: CalibrateRequest) -> bool:
    """Tell whether this calibration decides for searches that ask for nothing if labels or items decide."""
    from vicinal.service.measuring.group_trials import speaks_of_pairs

    # Searches that ask for something else go on deciding as they do.
    named, present = (
        one.model_copy(update={"group": None}).slot for one in (matcher.chosen(request), matcher.pipeline)
    )
    is_usual = request.group_by == "auto" and not request.answers and named == present
    return is_usual and matcher.is_group_open and not speaks_of_pairs(request.whole_target())


def _pipeline(matcher: Matcher, request: CalibrateRequest) -> Pipeline:
    """The pipeline that is calibrated, before a metric is chosen."""
    from vicinal.service.measuring.group_trials import speaks_of_pairs
    from vicinal.service.search.pipeline import Group

    pipeline = matcher.chosen(request)
    if not _is_open(matcher, request):
        # Items are what pairs are made of.
        is_auto = request.group_by == "auto" and matcher.is_group_open
        is_of_pairs = is_auto and speaks_of_pairs(request.whole_target())
        return pipeline.model_copy(update={"group": None}) if is_of_pairs else pipeline
    has_labels = request.metric != "cosine" and matcher.snapshot.manifest.n_labels
    return pipeline.model_copy(update={"group": Group(by="label") if has_labels else None})


def objection(
    record: CalibrationRecord,
    present: CalibrationRecord | None,
    *,
    is_broken: bool = False,
    noun: Noun = "photo",
) -> str | None:
    """Objection to replacing the calibration in force without a question; None where it may be."""
    from vicinal.service.measuring.records.record import promised_range

    if present is None or present.evidence is None or record.evidence is None:
        return None
    if is_broken and record.source not in _FROM_OUTSIDE:
        shown = f"{noun.capitalize()}s have shown that the promise in force does not hold"
        return f"{shown}; this one was made without."
    if is_broken:
        return None
    if present.source in _FROM_OUTSIDE and record.source == "leave_one_out":
        return f"The threshold in force was measured with {noun}s from outside; this one was not."
    if present.source == "leave_one_out" and record.source == "searches":
        # A gallery does not know what is searched for; its searches do, whatever was promised.
        return None
    ranges = [(promised_range(one, "fnir"), promised_range(one, "fpir")) for one in (present, record)]
    (missed, answered), (misses, answers) = (
        [0.0 if one is None else one.high for one in pair] for pair in ranges
    )
    fewer, more = misses - missed, answers - answered
    misses_more = fewer > _FEWER_FOUND and more > -_MORE_WRONG
    if not misses_more and not (more > _MORE_WRONG and fewer > -_FEWER_FOUND):
        return None
    then, now = _ends(missed, answered), _ends(misses, answers)
    return f"The threshold in force promises {then}; this one promises {now}."


def _ends(missed: float, answered: float) -> str:
    from vicinal.service.words import counted

    return (
        f"at least {counted(1 - missed)} of 100 found, at most {counted(answered)} of 100 strangers matched"
    )
