"""Labelling session: a person's answers about pairs, on the disk, and the threshold that follows from them.

<gallery>/labelling/<id>/session.json    what is asked for, and of which version and pipeline
<gallery>/labelling/<id>/pairs.npz       the pairs that questions are drawn from
<gallery>/labelling/<id>/answers.json    every question and its answer, in order; replaced in one step
<gallery>/labelling/current              id of the session under way

A session ends as a calibration of its id, whose proof stays here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Self, TypeVar

import numpy as np
from pydantic import BaseModel, Field

from vicinal.calibration import CalibrationError, RateInterval, Target, TopScoreCounts, UnreachableTargetError
from vicinal.calibration.arrays import Ints
from vicinal.calibration.rates.answered_pairs import AnsweredPairs
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.storage.files import (
    file_lock,
    make_folder,
    read_bound,
    read_sealed,
    remove_file,
    write_bound,
    write_sealed,
)
from vicinal.indexer.views.view import GalleryView
from vicinal.models.configs.sealed_json import BrokenSealError
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
from vicinal.service.records import remedy_of
from vicinal.service.search.pipeline import Pipeline
from vicinal.service.search.scorer import Scorer

Model = TypeVar("Model", bound=BaseModel)
_PATIENCE_SECONDS = 10.0
# From so many answers on, further ones say little.
_MANY = 300
_FOLDER, _CURRENT = "labelling", "current.json"


class _Head(BaseModel, frozen=True, extra="forbid"):
    """The session's first file: never changed."""

    id: str
    created_at: datetime
    target: Target
    pipeline: Pipeline
    bundle: str
    version: int
    n_items: int
    seed: int = 0
    pairs_sha256: str = ""


class _Answered(BaseModel, frozen=True, extra="forbid"):
    """Question and its answer."""

    pair: int
    same: bool | None


class _Answers(BaseModel, frozen=True, extra="forbid"):
    answers: list[_Answered] = []


class _Current(BaseModel, frozen=True, extra="forbid"):
    session: str


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
    gallery: str
    target: str
    pipeline: str
    n_answers: int = Field(description="Answers so far, those that could not tell included.")
    n_skipped: int = Field(description="Answers that could not tell.")
    n_gone: int = Field(description="Answers about photos that are gone: kept, and counted in nothing.")
    fewest: int = Field(description="Answers before which nothing is estimated.")
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
        self._view = view
        self.path = gallery.path / _FOLDER / session_id
        self.head = _read(self.path / "session.json", _Head)
        self._known: tuple[list[_Answered], AnsweredPairs] | None = None

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
        folder = matcher.gallery.path / _FOLDER
        make_folder(folder / head.id)
        bound = write_bound(folder / head.id / "pairs.npz", pairs.to_bytes())
        head = head.model_copy(update={"pairs_sha256": bound})
        write_sealed(folder / head.id / "answers.json", _Answers().model_dump_json())
        write_sealed(folder / head.id / "session.json", head.model_dump_json(indent=2))
        # Last, so that a session that is there is complete.
        write_sealed(folder / _CURRENT, _Current(session=head.id).model_dump_json())
        return cls(matcher.gallery, head.id, view)

    @classmethod
    def current(cls, matcher: Matcher) -> Self | None:
        """The session under way; None where there is none, or searches have changed since it began."""
        path = matcher.gallery.path / _FOLDER / _CURRENT
        if not path.exists():
            return None
        found = cls(matcher.gallery, _read(path, _Current).session, matcher.view)
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

    def answers(self) -> list[_Answered]:
        """Questions and answers so far."""
        return _read(self.path / "answers.json", _Answers).answers

    def answer(self, number: int, same: bool | None) -> None:
        """Keep the answer to a question, numbered from 0; None where it cannot be told."""
        with self._changing() as answers:
            if number != len(answers):
                raise RequestError(
                    f"question {number + 1} is not to be answered now, {len(answers) + 1} is: somebody else "
                    "answers too, or the page is old"
                )
            questions = self.questions(answers)
            if not questions:
                raise RequestError("all pairs were asked about: finish the session")
            answers.append(_Answered(pair=int(self._held[1][questions[0].pair]), same=same))

    def undo(self) -> None:
        """Forget the last answer; its question comes again."""
        with self._changing() as answers:
            there = np.flatnonzero(np.isin([one.pair for one in answers], self._held[1]))
            if not len(there):
                raise RequestError("there is no answer to take back")
            del answers[there[-1]]

    def questions(self, answers: list[_Answered] | None = None) -> list[Question]:
        """Questions that are asked next, as far as that is settled: the first is to be answered now."""
        so_far = self._counted(answers)
        n_before = len(so_far) // BLOCK * BLOCK
        asked, replies = _columns(so_far[:n_before])
        head = self.head
        found = self._posterior(so_far[:n_before])
        block = next_block(self.pairs, asked, replies, found=found, target=head.target, seed=head.seed)
        return block[len(so_far) - n_before :]

    def estimate(self, answers: list[_Answered] | None = None) -> LabelEstimate | None:
        """The threshold that the answers so far give; None with too few, or where none holds the target."""
        so_far, target = self._counted(answers), self.head.target
        n_told = _n_told(so_far)
        if n_told < FEWEST:
            return None
        found = self._posterior(so_far)
        border = found.border(target)
        if border is None:
            return None
        rates = [found.interval(Target(rate=one, value=0.5), border) for one in ("precision", "far")]
        return LabelEstimate(
            threshold=float(self.pairs.strata.lowest[border]),
            precision=_stated(rates[0]),
            far=_stated(rates[1]),
            errors=_stated(found.error_interval()),
            is_enough=progress(found, n_told, target) >= 1.0,
        )

    def state(self) -> LabelState:
        """State for a page."""
        answers, head = self.answers(), self.head
        counted, estimate = self._counted(answers), self.estimate(answers)
        n_told = _n_told(counted)
        questions = [
            LabelQuestion(number=number, items=tuple(one["id"] for one in self._view.items(question.items)))
            for number, question in enumerate(self.questions(answers), start=len(answers))
        ]
        return LabelState(
            id=head.id,
            gallery=self.gallery.name,
            target=str(head.target),
            pipeline=head.pipeline.key,
            n_answers=len(answers),
            n_skipped=len(counted) - n_told,
            n_gone=len(answers) - len(counted),
            fewest=FEWEST,
            questions=questions,
            progress=progress(self._posterior(counted), n_told, head.target),
            estimate=estimate,
            sentence=_sentence(n_told, estimate),
        )

    def finish(self, matcher: Matcher) -> CalibrationRecord:
        """Make a calibration of the answers, and put it in force."""
        answers = self._counted()
        n_told = _n_told(answers)
        if n_told < FEWEST:
            raise CalibrationError(f"{n_told} answers say too little: go on to {FEWEST} at least")
        found, head = self.estimate(), self.head
        if found is None:
            raise self._unreachable(answers)
        distinct = {one.pair for one in answers if one.same is not None}
        evidence = AnswerEvidence(
            n_pairs=len(self.pairs.scores),
            n_asked=len(distinct),
            n_again=n_told - len(distinct),
            n_skipped=len(answers) - n_told,
            precision=found.precision,
            far=found.far,
            errors=found.errors,
        )
        asked_for = {name: value for name, value in head if name not in ("created_at", "pairs_sha256")}
        record = CalibrationRecord(
            **asked_for,
            format_version=2,
            created_at=datetime.now(UTC),
            source="answers",
            threshold=found.threshold,
            rates=Rates(far=found.far.rate, frr=None, fpir=None, fnir=None, hit_rate_1=None),
            evidence=Evidence(
                rates={},
                answers=evidence,
                top_scores=TopScoreCounts.of_calibration(self.pairs.top_scores, found.threshold),
            ),
        )
        kept = matcher.calibrations.add(record)
        self.discard()
        return kept

    def _posterior(self, answers: list[_Answered]) -> AnsweredPairs:
        """Posterior of the answers; a call asks for the same several times."""
        if self._known is None or self._known[0] != answers:
            self._known = list(answers), posterior(self.pairs, *_columns(answers), self.head.seed)
        return self._known[1]

    def _unreachable(self, answers: list[_Answered]) -> UnreachableTargetError:
        rates = self._posterior(answers).rate(self.head.target).mean(axis=0)
        is_precision = self.head.target.rate == "precision"
        return UnreachableTargetError(
            str(self.head.target),
            float(rates.max() if is_precision else rates.min()),
            "highest" if is_precision else "lowest",
            "even of the most alike photos too many are different",
        )

    def discard(self) -> None:
        """End the session; its answers stay on the disk."""
        remove_file(self.path.parent / _CURRENT)

    def _counted(self, answers: list[_Answered] | None = None) -> list[_Answered]:
        """Answers, all when None, about photos that are there, each with the place of its pair in `pairs`."""
        so_far = self.answers() if answers is None else answers
        place_of = {int(pair): place for place, pair in enumerate(self._held[1])}
        return [_Answered(pair=place_of[one.pair], same=one.same) for one in so_far if one.pair in place_of]

    @property
    def pairs(self) -> ScoredPairs:
        """The pairs that questions are drawn from: of items that are there."""
        return self._held[0]

    @cached_property
    def _held(self) -> tuple[ScoredPairs, Ints]:
        """The `pairs`, and their places among all that were drawn, by which answers are kept."""
        path = self.path / "pairs.npz"
        try:
            drawn = ScoredPairs.from_bytes(read_bound(path, self.head.pairs_sha256))
        except (OSError, BrokenSealError) as error:
            raise _damaged(path) from error
        return drawn.among(self._view.live)

    @contextmanager
    def _changing(self) -> Iterator[list[_Answered]]:
        """The answers, which are kept as they are left."""
        busy = f"another answer about gallery '{self.gallery.name}' is being kept"
        with file_lock(self.path / "answers.lock", busy, patience=_PATIENCE_SECONDS):
            answers = self.answers()
            yield answers
            write_sealed(self.path / "answers.json", _Answers(answers=answers).model_dump_json())


def _columns(answers: list[_Answered]) -> tuple[list[int], list[bool | None]]:
    return [one.pair for one in answers], [one.same for one in answers]


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


def _n_told(answers: list[_Answered]) -> int:
    return sum(one.same is not None for one in answers)


def _stated(found: RateInterval) -> StatedRate:
    return StatedRate(rate=found.rate, low=found.low, high=found.high)


def _read(path: Path, model: type[Model]) -> Model:
    try:
        return model.model_validate_json(read_sealed(path))
    except (OSError, ValueError) as error:
        raise _damaged(path) from error


def _damaged(path: Path) -> CalibrationRecordError:
    gallery = next(one.parent for one in path.parents if one.name == _FOLDER)
    return CalibrationRecordError(f"'{path}' is missing or damaged: ", remedy_of(gallery, path))
