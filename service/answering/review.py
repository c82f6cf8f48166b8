"""Review of kept searches: which of them a person is asked about, what was said, and what is known by it.

Searches are drawn by chance within strata of their best score under the pipeline in force
(`calibration.rates.answered_searches`), one of a visit; `answering.asking` says which come again.
"""

from __future__ import annotations

import difflib
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Literal

import numpy as np
from cachetools import LRUCache
from pydantic import Field

from vicinal.calibration import CalibrationError
from vicinal.calibration.arrays import Floats
from vicinal.calibration.rates.answered_searches import SEARCH_RATES, SearchRate, next_draws
from vicinal.indexer.errors import ItemNotFoundError
from vicinal.indexer.jobs.changes import digests_of
from vicinal.service.answering.asking import Asking, differ, in_words, settle
from vicinal.service.answering.different import called_different
from vicinal.service.answering.drawn import SearchedItems, drawn_searches
from vicinal.service.answering.kept import AnswerKind, KeptCandidate, KeptSearch, SearchAnswer, standing
from vicinal.service.answering.store import SearchStore
from vicinal.service.errors import AnswerNotFoundError, RequestError, UnknownLabelError
from vicinal.service.measuring.evidence import StatedRate
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.request_fields import Body
from vicinal.service.search.answers import Answer, Threshold, Verdict
from vicinal.service.search.scorer import N_DECIDED_CANDIDATES
from vicinal.service.words import counted, number_of

Shown = Literal["no_match", "unsure", "wrong"]
# Candidates of a question, each of another label.
N_SHOWN = 9
MOST_QUESTIONS = 20
# Searches that draws are made from, a random sample of all.
_MOST_DRAWN_FROM = 2000
_N_NEAREST = 5
_PAGE = 500

# Best scores by the id of a search, for a state of a gallery and a pipeline.
_scores: LRUCache[tuple[str, str, int, str], dict[str, float | None]] = LRUCache(16)
_scores_lock = threading.Lock()
# Rates that answers show, by all that they follow from.
_rates: LRUCache[tuple[Any, ...], dict[SearchRate, StatedRate]] = LRUCache(16)


class SearchAnswerBody(Body):
    """Answer of a person to a kept search."""

    number: int = Field(description="By which it can be taken back.")
    search_id: str = Field(validation_alias="search")
    kind: AnswerKind = Field(
        description="`item` or `label`: this is it; `absent`: the gallery lacks it; `unsure`: it cannot be "
        "told; `wrong`: the match `item_id` is not it, which says nothing of the others."
    )
    item_id: str | None
    label: str | None = Field(description="With `item` the label that the item had when this was said.")
    by: str = Field(description="Name of the key that said it, or of who used the command.")
    at: datetime
    is_hint: bool = Field(
        description="Whether it counts for nobody but its key, which may only search; `number` is below zero."
    )


class GivenAnswerBody(SearchAnswerBody):
    """An answer that is kept, and what it comes to."""

    sentence: str = Field(description="What is known by now.")
    disagrees: str | None = Field(description="What another person said of it that cannot hold too; or null.")
    note: str | None = Field(description="What to know of the search: that it is of an older version, say.")


class SearchQuestionBody(Body):
    """Kept search that a person is asked about: what is it?"""

    search_id: str
    at: datetime
    has_picture: bool = Field(description="False for a ready embedding.")
    verdict: Verdict | None = Field(description="What is answered to it today.")
    threshold: float | None
    candidates: list[KeptCandidate] = Field(
        description="Best item of each label that is found today, best first; an item without a label alone."
    )
    is_again: bool = Field(description="Whether somebody has said what it is: some are asked about twice.")
    hints: list[SearchAnswerBody] = Field(
        description="What keys that may only search say; nothing of it counts."
    )
    note: str | None = Field(description="What to know of the search: that it is of an older version, say.")


class SearchQuestionsBody(Body):
    """Searches to ask about next."""

    questions: list[SearchQuestionBody]
    sentence: str = Field(description="What is known by now.")


class DisagreementBody(Body):
    """Search of which two persons say what cannot both hold."""

    search_id: str
    answers: list[SearchAnswerBody]


class AnswererBody(Body):
    """Person, or key, by whom answers are kept."""

    by: str = Field(description="Name, by which all are taken back at once.")
    n: int = Field(description="Answers that count for everybody.")
    n_hints: int = Field(description="Answers that count for nobody else.")


class KnownAnswersBody(Body):
    """Sum of what answers to the kept searches of a gallery say so far, of drawn ones alone."""

    gallery: str
    n_kept: int = Field(description="Kept searches.")
    n_drawn: int = Field(description="Of these, drawn to be asked about.")
    n_answered: int = Field(description="Of these, answered.")
    n_known: int = Field(description="Answered ones that show what the gallery has.")
    n_absent: int = Field(description="Answered ones that show what the gallery lacks.")
    n_unsure: int = Field(description="Answered ones of which it cannot be told.")
    n_disagreed: int = Field(description="Answered ones of which two persons say different things.")
    n_labels: int = Field(description="Labels of those that show what the gallery has.")
    n_wrong: int = Field(description="Single matches that were called wrong, of any search.")
    by: list[AnswererBody] = Field(description="Who answered, those who did most first.")
    disagreements: list[DisagreementBody]
    notes: list[str] = Field(description="Answers that count in no rate, and why.")
    fnir: StatedRate | None = Field(
        description="Share of the searches for what the gallery has that miss it at the threshold in force, "
        "with a 95 % interval; null without such answers, or without a threshold."
    )
    fpir: StatedRate | None = Field(
        description="Share of the searches for what it lacks that get a match, with a 95 % interval; or null."
    )
    sentence: str = Field(description="All of it in words.")


class KeptSearchBody(Body):
    """A kept search, and what was said of it."""

    id: str
    at: datetime
    verdict: Verdict | None = Field(description="What was answered to it.")
    threshold: float | None
    calibration: str | None = Field(description="Id of the calibration that decided it.")
    pipeline: str
    bundle: str
    version: int
    revision: int
    candidates: list[KeptCandidate] = Field(description="As they were found, best first.")
    has_picture: bool = Field(description="False for a ready embedding.")
    drawn_at: datetime | None = Field(description="When it was drawn to be asked about; null where not.")
    item_id: str | None = Field(description="Item that it became; null where it became none.")
    answers: list[SearchAnswerBody]
    note: str | None = Field(description="Why its answer does not count, or counts with other scores.")


class KeptSearchPageBody(Body):
    """Page of kept searches."""

    searches: list[KeptSearchBody]
    next: str | None = Field(description="Cursor of the next page; null at the end.")


class LabelCountBody(Body):
    """A label of a gallery."""

    label: str
    n_items: int


class SearchReview:
    """Review of the kept searches of a gallery in its present state; what is said in it may be a hint."""

    def __init__(self, matcher: Matcher, *, is_hint: bool = False) -> None:
        self.matcher, self.is_hint = matcher, is_hint
        self.store = SearchStore(matcher.gallery.path)
        self.threshold: Threshold = matcher.thresholds.in_force(matcher.pipeline)
        self.pipeline = matcher.thresholds.with_form(matcher.pipeline, self.threshold).key

    def answer(
        self,
        search_id: str,
        kind: AnswerKind,
        *,
        by: str,
        item_id: str | None = None,
        label: str | None = None,
        is_alone: bool = True,
    ) -> GivenAnswerBody:
        """Keep what a person said of a search. Every answer comes through here, whatever it was given by.

        One of many (not `is_alone`) does not tell what is known by then.

        Raises:
            SearchNotFoundError: It was not kept, or has gone.
            ItemNotFoundError: There is no such item.
            UnknownLabelError: No item has that label.
        """
        search = self.store.get(search_id)
        if item_id is not None:
            label = self._label_of(item_id)
        elif label is not None and label not in self.labels():
            nearest = [one.label for one in self.labels_like(label, _N_NEAREST)]
            raise UnknownLabelError(self.matcher.gallery.name, label, nearest)
        different = self._called_different(search, kind, item_id, label)
        what: dict[str, Any] = {"item_id": item_id, "label": label, "different": different}
        given = self.store.answer(search_id, kind, by=by, is_hint=self.is_hint, **what)
        others = (one for one in standing(self.store.answers(search_id)).get(search_id, []) if one.by != by)
        against = [] if kind == "wrong" else [one for one in others if differ(given, one)]
        return GivenAnswerBody(
            **vars(given),
            is_hint=given.is_hint,
            sentence=self._counted().sentence if is_alone else "",
            disagrees=f"another person said that {in_words(against[-1])}" if against else None,
            note=_HINT if self.is_hint else self._note(search) or (None if search.drawn_at else _NOT_DRAWN),
        )

    def take_back(self, number: int, *, by: str | None) -> str:
        """Take an answer back, of a person or, None, of anybody; tell what is known then."""
        told = {one.number: one.by for one in self.store.answers(hints=True)}
        # What was called different outlives its search.
        told |= {one.answer: one.by for one in self.store.different()}
        if number not in told or by not in (None, told[number]):
            raise AnswerNotFoundError(number)
        self.store.take_back(number)
        return self._counted().sentence

    def take_back_all(self, by: str) -> str:
        """Take all that a person said back; tell what is known then."""
        self.store.take_back(by)
        return self._counted().sentence

    def next(self, n: int, *, by: str) -> SearchQuestionsBody:
        """At most `n` searches that a person is to be asked about next; that they were drawn is noted."""
        kept = self.store.searches(most=_MOST_DRAWN_FROM)
        searches = {one.id: one for one in kept if self._is_comparable(one)}
        said = standing(self.store.answers())
        # Its own item would tell what a search shows.
        asked = {key: one for key, one in searches.items() if one.item_id is None}
        asking = Asking(said, self.store.asked(), by)
        found = asking.unanswered(asked.values())[:n]
        found += asking.due_again(asked.values(), self._surprising(asked, said))[: n - len(found)]
        self.store.draw([], asked=[one for one in found if not asking.is_open(one)], by=by)
        found += self._drawn(searches, said, n - len(found), by)
        return SearchQuestionsBody(
            questions=self._questions([searches[one] for one in found], said),
            sentence=self._counted().sentence,
        )

    def known(self) -> KnownAnswersBody:
        """Sum of what the answers say so far, with the rates that they show of the version in force."""
        known, rates = self._counted(), self._rates()
        said = " ".join([known.sentence, *_rates_in_words(rates)])
        shown = {"fnir": rates.get("fnir"), "fpir": rates.get("fpir"), "sentence": said}
        return known.model_copy(update=shown)

    def sentence(self) -> str:
        """Sum of what the answers say so far, without the rates that they show."""
        return self._counted().sentence

    def search(self, search_id: str) -> KeptSearchBody:
        """A kept search with its answers."""
        return self._body(self.store.get(search_id), self.store.answers(search_id, hints=True))

    def page(self, after: str | None, size: int, shown: Shown | None = None) -> KeptSearchPageBody:
        """Kept searches of a kind, newest first; `after` is `next` of the page before."""
        place, found = _place_of(after), list[KeptSearchBody]()
        answers: dict[str, list[SearchAnswer]] = {}
        for one in self.store.answers(hints=True):
            answers.setdefault(one.search, []).append(one)
        # One more than asked for tells whether there is another page.
        while len(found) <= size and (part := self.store.page(place, _PAGE)):
            place = part[-1].at.timestamp(), part[-1].id
            kinds = ((one, answers.get(one.id, [])) for one in part)
            found += [self._body(one, own) for one, own in kinds if shown in (None, *_kinds(one, own))]
        last = found[size - 1] if len(found) > size else None
        return KeptSearchPageBody(searches=found[:size], next=last and f"{last.at.timestamp()!r}/{last.id}")

    def labels(self) -> dict[str, int]:
        """Labels of the gallery and how many items have each."""
        if not self.matcher.view.n_labels:
            return {}
        groups = self.matcher.groups("label")
        return {name: n for name, n in zip(groups.names, groups.sizes.tolist(), strict=True) if n}

    def labels_like(self, text: str, n: int) -> list[LabelCountBody]:
        """Labels that hold a text, the shortest first, and then those that are spelled alike, at most `n`."""
        labels, wanted = self.labels(), text.casefold()
        folded = {label.casefold(): label for label in labels}
        holding = sorted((one for one in folded if wanted in one), key=lambda one: (len(one), one))[:n]
        alike = difflib.get_close_matches(wanted, folded, n) if len(holding) < n else []
        found = dict.fromkeys([*holding, *alike])
        return [LabelCountBody(label=folded[one], n_items=labels[folded[one]]) for one in [*found][:n]]

    def _label_of(self, item_id: str) -> str | None:
        try:
            (item,) = self.matcher.view.items([self.matcher.view.position(item_id)])
        except KeyError as error:
            raise ItemNotFoundError(self.matcher.gallery.name, item_id) from error
        label: str | None = item["label"]
        return label

    def _is_comparable(self, search: KeptSearch) -> bool:
        return search.bundle == self.matcher.snapshot.manifest.bundle

    def _called_different(
        self, search: KeptSearch, kind: AnswerKind, item_id: str | None, label: str | None
    ) -> dict[str, bytes | None]:
        """Items that an answer calls different from the picture, with all of the group that each is of."""
        view, group = self.matcher.view, self.matcher.pipeline.group
        found = view.positions(called_different(search, kind, item_id=item_id, label=label))
        found = found[found >= 0]
        if group is not None and len(found):
            codes = self.matcher.groups(group.by).codes
            found = np.flatnonzero(np.isin(codes, codes[found]))
            found = found[~view.is_dead(found)]
        ids = [one["id"] for one in view.items(found)]
        return dict(digests_of(self.matcher.gallery, view, ids)) if ids else {}

    def _note(self, search: KeptSearch) -> str | None:
        manifest = self.matcher.snapshot.manifest
        if search.bundle != manifest.bundle:
            return _OTHER_MODEL
        if search.item_id is not None:
            return f"this search became item '{search.item_id}': its answer counts as if that were not there"
        if (search.version, search.pipeline) == (manifest.version, self.pipeline):
            return None
        made = f"in version {search.version}" if search.version != manifest.version else ""
        if search.pipeline != self.pipeline:
            made = f"{made} with the pipeline '{search.pipeline}'".strip()
        return f"this search was made {made}: its answer counts, with the scores of today"

    def _drawn(
        self, searches: dict[str, KeptSearch], said: dict[str, list[SearchAnswer]], n: int, by: str
    ) -> list[str]:
        """Draw searches that nobody has said anything of; those of which somebody has count from now on."""
        some = [*searches.values()]
        tops = self._scores_of(some)
        drawn = np.array([one.drawn_at is not None for one in some], bool)
        found: list[str] = []
        while len(found) < n and some:
            new = next_draws(
                tops,
                float(np.median(tops)) if self.threshold.value is None else self.threshold.value,
                np.array([one.key for one in some]),
                drawn,
                n=n - len(found),
                in_sample=np.array([one.in_sample for one in some]),
                visits=np.array([one.visit for one in some], object),
            )
            if not len(new):
                break
            drawn[new] = True
            ids = [some[place].id for place in new]
            self.store.draw(ids, asked=[one for one in ids if one not in said], by=by)
            found += [one for one in ids if one not in said]
        return found

    def _surprising(self, searches: dict[str, KeptSearch], said: dict[str, list[SearchAnswer]]) -> set[str]:
        """Searches that get a match and were called ones for things that the gallery lacks."""
        absent = [searches[one] for one, own in said.items() if one in searches and own[0].kind == "absent"]
        threshold = self.threshold.value
        if threshold is None or not absent:
            return set()
        tops = self._scores_of(absent)
        return {one.id for one, top in zip(absent, tops, strict=True) if top >= threshold}

    def _scores_of(self, searches: Sequence[KeptSearch]) -> Floats:
        """(n,) best score of each under the pipeline in force, as calibrations know it."""
        manifest = self.matcher.snapshot.manifest
        state = str(self.store.gallery), manifest.bundle, manifest.version, self.pipeline
        with _scores_lock:
            known = _scores.setdefault(state, {})
        lacking = [one for one in searches if one.id not in known]
        if lacking:
            items = SearchedItems(self.store.searches(most=_MOST_DRAWN_FROM), self.matcher.pictures)
            pipeline = self.matcher.thresholds.with_form(self.matcher.pipeline, self.threshold)
            scorer = self.matcher.calibrator(pipeline).scorer
            rows = items.rows(lacking, self.pipeline)
            found = rows.top_scores(self.matcher.snapshot, scorer, pipeline.group)
            known.update(zip((one.id for one in lacking), found.tolist(), strict=True))
        return np.array([known[one.id] for one in searches])

    def _questions(
        self, searches: Sequence[KeptSearch], said: dict[str, list[SearchAnswer]]
    ) -> list[SearchQuestionBody]:
        if not searches:
            return []
        embeddings = np.stack([one.embedding for one in searches])
        # Also what a person called different: what is asked a second time shows the same.
        answers = self.matcher.search(
            embeddings=embeddings, without=(), limit=N_DECIDED_CANDIDATES, include_candidates=True
        )
        return [
            SearchQuestionBody(
                search_id=search.id,
                at=search.at,
                has_picture=search.signature is not None,
                verdict=answer.verdict,
                threshold=answer.threshold.value,
                candidates=_one_a_label(answer),
                is_again=search.id in said,
                hints=[one for one in self.store.answers(search.id, hints=True) if one.is_hint],
                note=self._note(search),
            )
            for search, answer in zip(searches, answers, strict=True)
        ]

    def _body(self, search: KeptSearch, answers: Sequence[SearchAnswer]) -> KeptSearchBody:
        own = {**vars(search), "has_picture": search.signature is not None}
        return KeptSearchBody.model_validate({**own, "answers": answers, "note": self._note(search)})

    def _counted(self) -> KnownAnswersBody:
        said = standing(self.store.answers())
        drawn = self.store.searches(most=0)
        counting = [one for one in drawn if self._is_comparable(one) and one.id in said]
        settled = [settle(said[one.id]) for one in counting]
        n_by = {kind: sum(one is not None and one.kind == kind for one in settled) for kind in _KINDS}
        labels = {one.label for one in settled if one is not None and one.label is not None}
        everyone = self.store.answers(hints=True)
        n_all = Counter(one.by for one in everyone)
        n_hints = Counter(one.by for one in everyone if one.is_hint)
        known = KnownAnswersBody(
            gallery=self.matcher.gallery.name,
            n_kept=self.store.n_kept,
            n_drawn=len(drawn),
            n_answered=len(counting),
            n_known=n_by["item"] + n_by["label"],
            n_absent=n_by["absent"],
            n_unsure=n_by["unsure"],
            n_disagreed=settled.count(None),
            n_labels=len(labels),
            n_wrong=sum(one.kind == "wrong" for one in self.store.answers()),
            by=[AnswererBody(by=by, n=n - n_hints[by], n_hints=n_hints[by]) for by, n in n_all.most_common()],
            disagreements=[
                DisagreementBody(
                    search_id=one, answers=[SearchAnswerBody.model_validate(each) for each in own]
                )
                for one, own in said.items()
                if settle(own) is None
            ],
            notes=self._notes(drawn, said, labels, n_hints.total()),
            fnir=None,
            fpir=None,
            sentence="",
        )
        return known.model_copy(update={"sentence": _sentence(known, len(said))})

    def _rates(self) -> dict[SearchRate, StatedRate]:
        """Rates at the threshold in force that the answers show, each that any is a trial of."""
        manifest, threshold = self.matcher.snapshot.manifest, self.threshold.value
        drawn = [(one.id, one.item_id) for one in self.store.searches(most=0)]
        numbers = tuple(one.number for one in self.store.answers())
        if threshold is None or not numbers:
            return {}
        version = manifest.bundle, manifest.version
        state = str(self.store.gallery), *version, self.pipeline, threshold, numbers, *drawn
        with _scores_lock:
            known = _rates.get(state)
        if known is not None:
            return known
        found: dict[SearchRate, StatedRate] = {}
        pipeline = self.matcher.thresholds.with_form(self.matcher.pipeline, self.threshold)
        calibrator = self.matcher.calibrator(pipeline)
        # Where nothing that was drawn could be told.
        with suppress(CalibrationError):
            told = drawn_searches(self.store, self.matcher.pictures, self.pipeline)
            searches = calibrator.score_searches(told, threshold).searches
            for rate in SEARCH_RATES:
                one = None if searches is None else searches.interval(rate, threshold)
                if one is not None:
                    found[rate] = StatedRate.of(one)
        with _scores_lock:
            _rates[state] = found
        return found

    def _notes(
        self, drawn: Sequence[KeptSearch], said: dict[str, list[SearchAnswer]], labels: set[str], n_hints: int
    ) -> list[str]:
        answered = [one for one in drawn if one.id in said]
        n_other = sum(one.bundle != self.matcher.snapshot.manifest.bundle for one in answered)
        n_free = len(said) - len(answered)
        gone = sorted(labels - self.labels().keys())
        told = [
            (n_other, f"{number_of(n_other, 'answered search', 'answered searches')}: {_OTHER_MODEL}"),
            (n_free, f"{number_of(n_free, 'answered search', 'answered searches')}: {_NOT_DRAWN}"),
            (n_hints, f"{number_of(n_hints, 'answer')}: {_HINT}"),
            (len(gone), f"no item has these labels any more: {', '.join(gone[:_N_NEAREST])}"),
        ]
        return [text for n, text in told if n]


_KINDS: tuple[AnswerKind, ...] = ("item", "label", "absent", "unsure")
_HINT = "said by a key that may only search: it counts for that key alone"
_NOT_DRAWN = "not drawn yet: what was said counts in no rate until then"
_OTHER_MODEL = (
    "made with another model, whose embeddings cannot be compared with today's: it counts in no rate"
)


def _sentence(known: KnownAnswersBody, n_said: int) -> str:
    if not known.n_kept:
        return "No search is kept: set keep_searches, and search."
    if n_said and not known.n_answered:
        return (
            f"{n_said:,} of {number_of(known.n_kept, 'kept search', 'kept searches')} got an answer, which "
            "counts in no rate yet: it was not drawn by chance, or is of another model. Answer what Review "
            "asks about: that is drawn, from these too."
        )
    if not known.n_answered:
        return f"None of {number_of(known.n_kept, 'kept search', 'kept searches')} is answered yet."
    parts = [
        f"{known.n_known:,} {'shows' if known.n_known == 1 else 'show'} what the gallery has "
        f"({number_of(known.n_labels, 'label')})",
        f"{known.n_absent:,} what it lacks",
        *([f"{known.n_unsure:,} cannot be told"] if known.n_unsure else []),
        *([f"of {known.n_disagreed:,} two persons say different things"] if known.n_disagreed else []),
    ]
    answered = number_of(known.n_answered, "answered search", "answered searches")
    return f"Of {answered} {', '.join(parts[:-1])} and {parts[-1]}."


def _rates_in_words(rates: Mapping[SearchRate, StatedRate]) -> list[str]:
    told = []
    if "fnir" in rates:
        low, high = 1.0 - rates["fnir"].high, 1.0 - rates["fnir"].low
        told.append(f"Of 100 things that it has, between {counted(low)} and {counted(high)} are found.")
    if "fpir" in rates:
        low, high = rates["fpir"].low, rates["fpir"].high
        told.append(f"Of 100 that it lacks, between {counted(low)} and {counted(high)} get a match.")
    return told


def _kinds(search: KeptSearch, answers: Sequence[SearchAnswer]) -> tuple[str | None, ...]:
    """Kinds that a kept search is of: its verdict, and `wrong` where a person said that of what was shown."""
    best = search.candidates[0].label if search.candidates else None
    is_wrong = any(
        one.kind == "wrong"
        or (search.verdict == "match" and (one.kind == "absent" or one.label not in (None, best)))
        for one in answers
    )
    return (search.verdict, "wrong") if is_wrong else (search.verdict,)


def _one_a_label(answer: Answer) -> list[KeptCandidate]:
    """The best candidates, one of each label; a group is shown by its best item, and scored as a whole."""
    found: dict[tuple[bool, str], KeptCandidate] = {}
    for _, item, score in answer.entries:
        key = (True, item.id) if item.label is None else (False, item.label)
        found.setdefault(key, KeptCandidate(item.id, item.label, score))
    return [*found.values()][:N_SHOWN]


def _place_of(cursor: str | None) -> tuple[float, str] | None:
    if cursor is None:
        return None
    at, _, search = cursor.partition("/")
    try:
        return float(at), search
    except ValueError as error:
        raise RequestError(f"'{cursor}' is no `next` of a page") from error
