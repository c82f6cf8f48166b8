"""Drawn searches of a gallery: what persons said of kept searches, as a calibration takes it.

A search counts where it was drawn and answered, whatever was said first. Two persons who name different
labels leave it untold, and so does one who cannot tell where nobody else can. A label that the gallery lacks
by now makes a search one for a thing that it lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from vicinal.calibration import CalibrationError
from vicinal.calibration.advice import advise
from vicinal.calibration.arrays import FloatArray, Objects
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.service.answering.asking import differ, said_twice, settle
from vicinal.service.answering.store import KeptSearch, SearchAnswer, SearchStore, standing
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.measuring.searches import DrawnSearches, SearchRows
from vicinal.service.measuring.visits import Visits

# Searches that stand for all, beside those that were drawn.
_MOST_DRAWN_FROM = 2000
_ABSENT, _UNSURE, _UNLABELLED = object(), object(), object()
_NOT_DRAWN = "answers to searches that were not drawn, which are left out"
_OTHER_BUNDLE = "answered searches of another bundle, which are left out"
_ITEMS = (
    "answered searches that have become items, and are no queries any more (those that were missed go first, "
    "so that a little fewer may be found than is said: answer newer ones)"
)
_NO_LABEL = "answers that name an item without a label, which are left out"
_SEARCHED_AGAIN = "answered searches of another version or pipeline, which were searched for again"
_LACKING = "answers with a label that the gallery lacks now, which count as of things that it lacks"


@dataclass(frozen=True)
class _Told:
    """A search that was drawn and answered: its label, or one of the marks above."""

    search: KeptSearch
    said: object

    @property
    def is_item(self) -> bool:
        """Tell whether it has become an item."""
        return self.search.item_id is not None

    @property
    def is_query(self) -> bool:
        """Tell whether it is a query with a right answer."""
        return not self.is_item and (isinstance(self.said, str) or self.said is _ABSENT)


def drawn_searches(store: SearchStore, snapshot: Snapshot, pipeline: str) -> DrawnSearches:
    """Answered searches of a gallery, for a version and a pipeline's key; CalibrationError without any."""
    searches = {one.id: one for one in store.searches(most=_MOST_DRAWN_FROM)}
    answers = {one: found for one, found in standing(store.answers()).items() if one in searches}
    bundle = snapshot.manifest.bundle
    labels = dict(zip(snapshot.item_table["id"].to_pylist(), snapshot.labels, strict=True))
    drawn = [one for one in searches.values() if one.drawn_at is not None and one.id in answers]
    usable = [one for one in drawn if one.bundle == bundle]
    told = [_Told(one, _said(settle(answers[one.id]), labels)) for one in usable]
    of_usable = {one.id: answers[one.id] for one in usable}
    twice = said_twice(of_usable, store.answers(replaced=True), store.asked())
    # How often a person errs is told by what was asked again at random, which surprising answers were not.
    twice = [pair for pair in twice if pair[0].kind != "absent"]
    queries, others = [one for one in told if one.is_query], [one for one in told if not one.is_query]
    if not queries:
        raise CalibrationError(
            f"no answer to a search of gallery '{store.gallery.name}' can be used: ",
            advise("give some by {review()}"),
        )
    known, now = set(labels.values()), (snapshot.manifest.version, pipeline)
    sample = [one for one in searches.values() if one.in_sample and one.bundle == bundle] or usable
    items = {one.item_id: one.visit for one in searches.values() if one.item_id is not None}
    names = [items.get(item_id) for item_id in labels]
    counts = {
        _NOT_DRAWN: len(answers) - len(drawn),
        _OTHER_BUNDLE: len(drawn) - len(usable),
        _ITEMS: sum(one.is_item for one in told),
        _NO_LABEL: sum(one.said is _UNLABELLED for one in told),
        _SEARCHED_AGAIN: sum(now != (one.search.version, one.search.pipeline) for one in queries),
        _LACKING: sum(isinstance(one.said, str) and one.said not in known for one in queries),
    }
    return DrawnSearches(
        labelled=LabelledQueries(
            _embeddings(one.search for one in queries),
            np.array([_label(one) for one in queries], dtype=object),
            ids=np.array([one.search.id for one in queries], dtype=object),
            visits=_visits(one.search for one in queries),
        ),
        others=_rows([one.search for one in others], snapshot.manifest.dim, now),
        is_unsure=np.array([not one.is_item and one.said is _UNSURE for one in others], dtype=bool),
        sample=_rows(sample, snapshot.manifest.dim, now),
        visits=Visits("searches", np.array(names, dtype=object)),
        n_again=len(twice),
        n_disagreed=sum(differ(*pair) for pair in twice),
        warnings=tuple(f"{what}: {n:,}" for what, n in counts.items() if n),
    )


def _said(answer: SearchAnswer | None, labels: dict[str, str | None]) -> object:
    if answer is None or answer.kind == "unsure":
        return _UNSURE
    if answer.kind == "absent":
        return _ABSENT
    # An item may have got another label since.
    label = answer.label if answer.kind == "label" else labels.get(answer.item_id or "", answer.label)
    return _UNLABELLED if label is None else label


def _label(told: _Told) -> str:
    """The label that a query stands under; a stranger has one of its own."""
    return told.said if isinstance(told.said, str) else f"search {told.search.id}"


def _rows(searches: Sequence[KeptSearch], dim: int, now: tuple[int, str]) -> SearchRows:
    found = _embeddings(searches) if searches else np.empty((0, dim), np.float32)
    scores = [
        one.top_score or 0.0 if now == (one.version, one.pipeline) and one.item_id is None else np.nan
        for one in searches
    ]
    return SearchRows(found, _visits(searches), np.array(scores, dtype=np.float64))


def _embeddings(searches: Iterable[KeptSearch]) -> FloatArray:
    return np.stack([one.embedding for one in searches])


def _visits(searches: Iterable[KeptSearch]) -> Objects:
    return np.array([one.visit or one.id for one in searches], dtype=object)
