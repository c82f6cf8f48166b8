"""Labelling session: a person's answers about pairs, and the threshold that follows from them.

What is asked for, and of which version and pipeline, is a document, with the pairs that questions are drawn
from beside it; the answers are verdicts. The document without an id names the session under way. A session
ends as a calibration of its id, whose proof stays here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Self

from pydantic import BaseModel, Field, ValidationError
from sqlalchemy import Row

from vicinal.calibration import CalibrationError, Target, TopScoreCounts, UnreachableTargetError
from vicinal.calibration.rates.answered_pairs import AnsweredPairs
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.state import DamagedRowError, Rows, state_of
from vicinal.indexer.state.schema import attachments, documents, verdicts
from vicinal.indexer.views.view import GalleryView
from vicinal.models.errors import ReadyEmbeddingsError
from vicinal.service.errors import CalibrationRecordError, RequestError
from vicinal.service.labelling.questions import (
    BLOCK,
    FEWEST,
    Question,
    ScoredPairs,
    next_block,
    posterior,
    progress,
)
from vicinal.service.measuring.evidence import AnswerEvidence, Evidence, StatedRate
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.records.record import CalibrationRecord, Rates, new_calibration_id
from vicinal.service.records import remedy_of_row
from vicinal.service.search.pipeline import Pipeline
from vicinal.service.search.scorer import Scorer

# From so many answers on, further ones say little.
_MANY = 300
_KIND, _PAIRS = "labelling", "pairs"
_SAID = {True: "same", False: "different", None: "unsure"}
_MEANT = {said: same for same, said in _SAID.items()}


class _Head(BaseModel, frozen=True, extra="forbid"):
    """Request of a session: never changed."""

    id: str
    created_at: datetime
    target: Target
    pipeline: Pipeline
    bundle: str
    version: int
    n_items: int
    seed: int = 0


class LabelEstimate(BaseModel, frozen=True, extra="forbid"):
    """Estimate from the answers so far.

    Attributes:
        threshold: Lowest accepted score; the lowest at which the target holds in the mean.
        precision: Share of the accepted pairs that show the same thing.
        far: Share of the different pairs that are accepted.
        errors: How often the person errs.
    """

    threshold: float
    precision: StatedRate
    far: StatedRate
    errors: StatedRate
    is_enough: bool = Field(description="Whether the interval of the target's rate is short enough to stop.")


class LabelQuestion(BaseModel, frozen=True, extra="forbid"):
    """Two photos: do they show the same thing?"""

    number: int = Field(description="From 0; an answer names it.")
    items: tuple[str, str] = Field(description="Ids of the two items.")


class LabelState(BaseModel, frozen=True, extra="forbid"):
    """State of a session."""

    id: str = Field(description="Id of the session, and of the calibration that it ends as.")
    target: str
    n_answers: int = Field(description="Answers so far, those that could not tell included.")
    n_gone: int = Field(description="Answers about photos that are gone: kept, and counted in nothing.")
    questions: list[LabelQuestion] = Field(
        description="What is asked next; the first is to be answered now. Empty when all pairs were."
    )
    progress: float = Field(description="How near to an end, in [0, 1]; at 1 the answers are enough.")
    estimate: LabelEstimate | None = Field(
        description="The threshold so far; null with too few answers, or where none holds the target."
    )
    sentence: str = Field(description="What the answers so far say.")


class LabelSession:
    """Session of a gallery; see `start` and `current`."""

    def __init__(self, gallery: Gallery, session_id: str, view: GalleryView) -> None:
        self.gallery = gallery
        self._view, self._state = view, state_of(gallery.path)
        with self._state.reading() as rows, _told(gallery):
            self.head = _Head.model_validate_json(_document(rows, session_id) or "")
            c = attachments.c
            found = rows.first(attachments, c.kind == _KIND, c.id == session_id, c.name == _PAIRS)
        drawn = ScoredPairs.from_bytes(b"" if found is None else found.content)
        # Those of items that are there, and their places among all, by which answers are kept.
        self.pairs, self._places = drawn.among(view.live)
        self._read()

    def _read(self) -> None:
        """Read the answers so far; those about photos that are there count."""
        said, place_of = self.answers(), {pair: place for place, pair in enumerate(self._places.tolist())}
        there = [one for one in said if one.pair in place_of]
        self._n_answers = len(said)
        self._asked = [place_of[one.pair] for one in there]
        self._replies = [_MEANT[one.said] for one in there]
        self._n_told = len(there) - self._replies.count(None)
        self._known: dict[int, AnsweredPairs] = {}

    @classmethod
    def start(cls, matcher: Matcher, target: Target) -> Self:
        """Draw the pairs of a new session, which becomes the one under way."""
        snapshot, pipeline = matcher.snapshot, matcher.pipeline
        if pipeline.group is not None:
            raise CalibrationError(
                f"searches of gallery '{matcher.gallery.name}' are decided by {pipeline.group.by}, and "
                "answers about pairs speak of single photos: set group_by to off"
            )
        if target.rate not in ("precision", "far"):
            raise CalibrationError(
                f"answers about pairs say nothing of {target}: name precision=95% or far=0.1%"
            )
        head = _Head(
            id=new_calibration_id(),
            created_at=datetime.now(UTC),
            target=target,
            pipeline=pipeline,
            bundle=snapshot.manifest.bundle,
            version=snapshot.manifest.version,
            n_items=snapshot.manifest.n_items,
        )
        view = matcher.view
        scorer = Scorer(view, pipeline, matcher.refinement(pipeline))
        pairs = ScoredPairs.of(scorer, seed=head.seed)
        if not len(pairs.scores):
            raise CalibrationError(
                f"gallery '{matcher.gallery.name}' has {len(view)} images: pairs take two of them"
            )
        at = head.created_at.timestamp()
        session = {"kind": _KIND, "id": head.id, "at": at, "content": head.model_dump_json()}
        with state_of(matcher.gallery.path).changing() as rows:
            rows.add(documents, session)
            rows.add(attachments, {**session, "name": _PAIRS, "content": pairs.to_bytes()})
            rows.put(documents, {**session, "id": "", "content": head.id})
        return cls(matcher.gallery, head.id, view)

    @classmethod
    def current(cls, matcher: Matcher) -> Self | None:
        """The session under way; None where there is none, or searches have changed since it began."""
        with state_of(matcher.gallery.path).reading() as rows, _told(matcher.gallery):
            session_id = _document(rows, "")
        if session_id is None:
            return None
        found = cls(matcher.gallery, session_id, matcher.view)
        manifest = matcher.snapshot.manifest
        is_same = (found.head.version, found.head.bundle) == (manifest.version, manifest.bundle)
        return found if is_same and found.head.pipeline == matcher.pipeline else None

    @classmethod
    def resume(cls, matcher: Matcher, target: Target, *, restart: bool = False) -> Self:
        """Go on with the session under way, or start one where there is none for this target."""
        space = matcher.embedder.bundle.manifest.space
        if space:
            raise ReadyEmbeddingsError(
                matcher.gallery.name, space, "there are no photos to look at; calibrate it with labels"
            )
        found = None if restart else cls.current(matcher)
        if found is not None and found.head.target == target:
            return found
        return cls.start(matcher, target)

    def answers(self) -> list[Row[Any]]:
        """Rows of the answers so far."""
        with self._state.reading() as rows, _told(self.gallery):
            return rows.all(verdicts, verdicts.c.session == self.head.id, order_by=[verdicts.c.number])

    def answer(self, number: int, same: bool | None, *, by: str = "") -> None:
        """Keep the answer of a person to a question, numbered from 0; None where it cannot be told."""
        _require_next(number, self._n_answers)
        questions = self.questions()
        if not questions:
            raise RequestError("all pairs were asked about: finish the session")
        first, other = (one["id"] for one in self._view.items(questions[0].items))
        said = {"session": self.head.id, "said": _SAID[same], "first": first, "other": other, "by": by}
        said |= {"pair": int(self._places[questions[0].pair]), "at": datetime.now(UTC).timestamp()}
        with self._state.changing() as rows:
            _require_next(number, rows.count(verdicts, verdicts.c.session == self.head.id))
            rows.add(verdicts, {"number": rows.next_number("verdict"), "place": 0, **said})
        self._read()

    def undo(self) -> None:
        """Forget the last answer; its question comes again."""
        there = [one.number for one in self.answers() if one.pair in self._places]
        if not there:
            raise RequestError("there is no answer to take back")
        with self._state.changing() as rows:
            rows.remove(verdicts, verdicts.c.number == there[-1])
        self._read()

    def questions(self) -> list[Question]:
        """Questions that are asked next, as far as that is settled: the first is to be answered now."""
        n = len(self._asked) // BLOCK * BLOCK
        options: dict[str, Any] = {"target": self.head.target, "seed": self.head.seed}
        found = self._posterior(n)
        block = next_block(self.pairs, self._asked[:n], self._replies[:n], found=found, **options)
        return block[len(self._asked) - n :]

    def estimate(self) -> LabelEstimate | None:
        """The threshold that the answers so far give; None with too few, or where none holds the target."""
        if self._n_told < FEWEST:
            return None
        found, target = self._posterior(), self.head.target
        border = found.border(target)
        if border is None:
            return None
        rates = [found.interval(Target(rate=one, value=0.5), border) for one in ("precision", "far")]
        return LabelEstimate(
            threshold=float(self.pairs.strata.lowest[border]),
            precision=StatedRate.of(rates[0]),
            far=StatedRate.of(rates[1]),
            errors=StatedRate.of(found.error_interval()),
            is_enough=progress(found, self._n_told, target) >= 1.0,
        )

    def state(self) -> LabelState:
        """State for a page."""
        head, estimate = self.head, self.estimate()
        return LabelState(
            id=head.id,
            target=str(head.target),
            n_answers=self._n_answers,
            n_gone=self._n_answers - len(self._asked),
            questions=[
                LabelQuestion(
                    number=number, items=tuple(one["id"] for one in self._view.items(question.items))
                )
                for number, question in enumerate(self.questions(), start=self._n_answers)
            ],
            progress=progress(self._posterior(), self._n_told, head.target),
            estimate=estimate,
            sentence=_sentence(self._n_told, estimate),
        )

    def finish(self, matcher: Matcher) -> CalibrationRecord:
        """Make a calibration of the answers, and put it in force."""
        if self._n_told < FEWEST:
            raise CalibrationError(f"{self._n_told} answers say too little: go on to {FEWEST} at least")
        found = self.estimate()
        if found is None:
            raise self._unreachable()
        told = {pair for pair, same in zip(self._asked, self._replies, strict=True) if same is not None}
        evidence = AnswerEvidence(
            n_pairs=len(self.pairs.scores),
            n_asked=len(told),
            n_again=self._n_told - len(told),
            n_skipped=self._replies.count(None),
            precision=found.precision,
            far=found.far,
            errors=found.errors,
        )
        asked_for = {name: value for name, value in self.head if name != "created_at"}
        top_scores = TopScoreCounts.of_calibration(self.pairs.top_scores, found.threshold)
        record = CalibrationRecord(
            **asked_for,
            format_version=2,
            created_at=datetime.now(UTC),
            source="answers",
            threshold=found.threshold,
            rates=Rates(far=found.far.rate, frr=None, fpir=None, fnir=None, hit_rate_1=None),
            evidence=Evidence(rates={}, answers=evidence, top_scores=top_scores),
        )
        kept = matcher.calibrations.add(record)
        with self._state.changing() as rows:
            rows.remove(documents, documents.c.kind == _KIND, documents.c.id == "")
        return kept

    def _posterior(self, n: int | None = None) -> AnsweredPairs:
        """Posterior of the first n answers, or of all; a call asks for the same several times."""
        n = len(self._asked) if n is None else n
        if n not in self._known:
            self._known[n] = posterior(self.pairs, self._asked[:n], self._replies[:n], self.head.seed)
        return self._known[n]

    def _unreachable(self) -> UnreachableTargetError:
        rates = self._posterior().rate(self.head.target).mean(axis=0)
        is_precision = self.head.target.rate == "precision"
        return UnreachableTargetError(
            str(self.head.target),
            float(rates.max() if is_precision else rates.min()),
            "highest" if is_precision else "lowest",
            "even of the most alike photos too many are different",
        )


def _require_next(number: int, n_answers: int) -> None:
    if number != n_answers:
        raise RequestError(
            f"question {number + 1} is not to be answered now, {n_answers + 1} is: somebody else "
            "answers too, or the page is old"
        )


def _sentence(n_told: int, found: LabelEstimate | None) -> str:
    if n_told < FEWEST:
        n = FEWEST - n_told
        return f"{n} more answer{'' if n == 1 else 's'}, and there is a first estimate."
    if found is None:
        return (
            "So far no threshold holds what was asked for: too many of the most alike photos are different."
        )
    if found.is_enough:
        return "This is enough. You can finish, or go on to know it better."
    if n_told >= _MANY:
        return (
            "More answers will hardly change this: finish with what is known, or ask for a lower precision."
        )
    return "Go on: this is not known well enough yet."


def _document(rows: Rows, session_id: str) -> str | None:
    found = rows.first(documents, documents.c.kind == _KIND, documents.c.id == session_id)
    return None if found is None else str(found.content)


@contextmanager
def _told(gallery: Gallery) -> Iterator[None]:
    """Say what would help where a row is damaged, or is not what it was in an earlier release."""
    try:
        yield
    except (DamagedRowError, ValidationError) as error:
        raise CalibrationRecordError(
            f"the labelling of gallery '{gallery.name}' is damaged: ",
            remedy_of_row(gallery.path, _KIND),
        ) from error
