"""Drawn searches of a gallery: what persons said of kept searches, as a calibration takes it.

A search counts where it was drawn and answered, whatever was said first, and also where it became an item
since: it is searched for as if that and the others of its visit were not there. Where its label has no other
item it counts in no rate. Two persons who name different labels leave it untold, and so does one who cannot
tell where nobody else can. A label that the gallery lacks makes a search one for a thing that it lacks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from vicinal.calibration import CalibrationError
from vicinal.calibration.advice import advise
from vicinal.calibration.arrays import Bytes, FloatArray, Ints
from vicinal.indexer.jobs.set_aside import stand_ins
from vicinal.service.answering.asking import differ, said_twice, settle
from vicinal.service.answering.kept import KeptSearch, SearchAnswer, standing
from vicinal.service.answering.store import SearchStore
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.measuring.searches import DrawnSearches, SearchRows
from vicinal.service.measuring.twins import GalleryPictures, twins_told
from vicinal.service.measuring.visits import Visits, search_visits

# Searches that stand for all, beside those that were drawn.
_MOST_DRAWN_FROM = 2000
_UNSURE, _UNLABELLED, _ALONE = object(), object(), object()
_NOT_DRAWN = "answers to searches that were not drawn, which are left out"
_OTHER_BUNDLE = "answered searches of another bundle, which are left out"
_ONE_VISIT = "answers with a label that only items of their own visit have, which count in no rate"
_NO_LABEL = "answers that name an item without a label, which are left out"
_SEARCHED_AGAIN = "answered searches of another version or pipeline, which were searched for again"
_LACKING = "answers with a label that the gallery lacks now, which count as of things that it lacks"


class SearchedItems:
    """Items of a version that kept searches are not to find: those that came of searches of the same visit,
    and those whose very picture was searched for, with their visits.
    """

    def __init__(self, searches: Iterable[KeptSearch], pictures: GalleryPictures) -> None:
        snapshot = pictures.snapshot
        noted = {one.item_id: _visit(one) for one in searches if one.item_id is not None}
        told = search_visits(snapshot)
        names = np.array([noted.get(one) for one in snapshot.item_table["id"].to_pylist()], dtype=object)
        for name, places in told.items():
            names[places] = name
        self._visits = Visits("searches", names)
        # Also of items that are in no version yet.
        self._named = {*noted.values(), *told}
        self._pictures, self._twins = pictures, dict[str, Ints]()

    def excluded(self, searches: Sequence[KeptSearch]) -> list[Ints]:
        """Positions that each of some searches of the version's bundle is not to find, ascending."""
        new = [one for one in searches if one.id not in self._twins]
        if new:
            found = self._pictures.twins(_embeddings(new), _signatures(new))
            self._twins.update(zip((one.id for one in new), found, strict=True))
        left_out = (self._pictures.left_out(self._twins[one.id]) for one in searches)
        return list(map(np.union1d, left_out, map(self._own, searches)))

    def named(self, searches: Iterable[KeptSearch]) -> list[tuple[str, str]]:
        """Ids of searches for pictures of items that no search of their visit became, and an item of each."""
        ids = self._pictures.snapshot.item_table["id"]
        found = ((one.id, np.setdiff1d(self._twins[one.id], self._own(one))) for one in searches)
        return [(name, ids[int(twins[0])].as_py()) for name, twins in found if len(twins)]

    def _own(self, search: KeptSearch) -> Ints:
        return self._visits.members(_visit(search))

    def rows(self, searches: Sequence[KeptSearch], pipeline: str) -> SearchRows:
        """Kept searches as they are scored by a pipeline's key."""
        manifest, excluded = self._pictures.snapshot.manifest, self.excluded(searches)
        scores = [
            (one.top_score or 0.0) if (one.version, one.pipeline) == (manifest.version, pipeline) else np.nan
            for one in searches
        ]
        is_changed = [_visit(one) in self._named or len(self._twins[one.id]) > 0 for one in searches]
        found = _embeddings(searches) if searches else np.empty((0, manifest.dim), np.float32)
        return SearchRows(found, excluded, np.where(is_changed, np.nan, np.array(scores, np.float64)))

    def are_all(self, search: KeptSearch, label: object, n: int) -> bool:
        """Tell whether the n items of a label are all among those that a search is not to find."""
        labels = self._pictures.snapshot.labels[self.excluded([search])[0]]
        return 0 < n == int((labels == label).sum())


def drawn_searches(store: SearchStore, pictures: GalleryPictures, pipeline: str) -> DrawnSearches:
    """Answered searches of a gallery, for a version and a pipeline's key; CalibrationError without any."""
    searches = {one.id: one for one in store.searches(most=_MOST_DRAWN_FROM)}
    answers = {one: found for one, found in standing(store.answers()).items() if one in searches}
    all_answers = store.answers(replaced=True)
    snapshot, items = pictures.snapshot, SearchedItems(searches.values(), pictures)
    bundle = snapshot.manifest.bundle
    labels = dict(zip(snapshot.item_table["id"].to_pylist(), snapshot.labels, strict=True))
    n_of, named = Counter(labels.values()), {(one.search, one.label) for one in all_answers}
    # What was said of a copy that is set aside holds for the item that stays for it.
    labels |= {one: labels.get(stays) for one, stays in stand_ins(store.gallery).items() if one not in labels}
    drawn = [one for one in searches.values() if one.drawn_at is not None and one.id in answers]
    usable = [one for one in drawn if one.bundle == bundle]
    told = list[tuple[KeptSearch, object]]()
    items.excluded(usable)
    for one in usable:
        said, own = _said(one, settle(answers[one.id]), labels), labels.get(one.item_id or "")
        if isinstance(said, str) and own is not None and (one.id, own) not in named:
            # Somebody gave the item a label that no answer has.
            said = own
        told.append((one, _ALONE if items.are_all(one, said, n_of[said]) else said))
    of_usable = {one.id: answers[one.id] for one in usable}
    twice = said_twice(of_usable, all_answers, store.asked())
    # How often a person errs is told by what was asked again at random, which surprising answers were not.
    twice = [pair for pair in twice if pair[0].kind != "absent"]
    named_by = [(one, said) for one, said in told if isinstance(said, str)]
    queries = [one for one, _ in named_by]
    others = [(one, said) for one, said in told if not isinstance(said, str)]
    if not queries:
        raise CalibrationError(
            f"no answer to a search of gallery '{store.gallery.name}' can be used: ",
            advise("give some by {review()}"),
        )
    now = snapshot.manifest.version, pipeline
    sample = [one for one in searches.values() if one.in_sample and one.bundle == bundle] or usable
    counts = {
        _NOT_DRAWN: len(answers) - len(drawn),
        _OTHER_BUNDLE: len(drawn) - len(usable),
        _ONE_VISIT: sum(said is _ALONE for _, said in others),
        _NO_LABEL: sum(said is _UNLABELLED for _, said in others),
        _SEARCHED_AGAIN: sum(now != (one.version, one.pipeline) for one in queries),
        _LACKING: sum(said not in n_of and said != _stranger(one) for one, said in named_by),
    }
    return DrawnSearches(
        labelled=LabelledQueries(
            _embeddings(queries),
            np.array([said for _, said in named_by], dtype=object),
            ids=np.array([one.id for one in queries], dtype=object),
            visits=np.array([_visit(one) for one in queries], dtype=object),
            left_out=np.fromiter(items.excluded(queries), dtype=object),
        ),
        others=items.rows([one for one, _ in others], pipeline),
        is_unsure=np.array([said is _UNSURE for _, said in others], dtype=bool),
        sample=items.rows(sample, pipeline),
        n_again=len(twice),
        n_disagreed=sum(differ(*pair) for pair in twice),
        warnings=(
            *(f"{what}: {n:,}" for what, n in counts.items() if n),
            *twins_told(items.named(usable), len(usable)),
        ),
    )


def _said(search: KeptSearch, answer: SearchAnswer | None, labels: dict[str, str | None]) -> object:
    """Label of a search, for a stranger one of its own; or a mark where none is told."""
    if answer is None or answer.kind == "unsure":
        return _UNSURE
    if answer.kind == "absent":
        return _stranger(search)
    # An item may have got another label since.
    label = answer.label if answer.kind == "label" else labels.get(answer.item_id or "", answer.label)
    return _UNLABELLED if label is None else label


def _stranger(search: KeptSearch) -> str:
    return f"search {search.id}"


def _embeddings(searches: Iterable[KeptSearch]) -> FloatArray:
    return np.stack([one.embedding for one in searches])


def _signatures(searches: Iterable[KeptSearch]) -> Bytes:
    """(n, 768), zero where there is no picture."""
    return np.stack([np.frombuffer(one.signature or bytes(768), np.uint8) for one in searches])


def _visit(search: KeptSearch) -> str:
    return search.visit or search.id
