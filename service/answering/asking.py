"""Asking: which drawn searches are put to a person again, and what several answers to one come to.

What was put to a person who did not answer comes again first, and to others after a while. One search in ten
is asked about twice: another person, or, where there is none, the same one later. So is every search that got
a match and was called one for a thing that the gallery lacks: there a slip changes FPIR most, with few
strangers among the answers.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from vicinal.service.answering.kept import AskedSearch, KeptSearch, SearchAnswer

# Of so many drawn searches one is asked about twice; by the same person after so many other answers.
_AGAIN, _LATER = 10, 20
# What was put to a person and not answered is put to others after so long.
_PATIENCE = timedelta(minutes=15)


def settle(answers: Sequence[SearchAnswer]) -> SearchAnswer | None:
    """Sum of what persons said of a search, at least one; None where that cannot all hold."""
    telling = [one for one in answers if one.kind != "unsure"]
    if any(differ(telling[0], one) for one in telling[1:]):
        return None
    return telling[-1] if telling else answers[-1]


def differ(one: SearchAnswer, other: SearchAnswer) -> bool:
    """Tell whether two answers cannot both hold; one that cannot tell holds with any."""
    if "unsure" in (one.kind, other.kind) or "wrong" in (one.kind, other.kind):
        return False
    return _claim(one) != _claim(other)


def _claim(answer: SearchAnswer) -> tuple[str, str | None]:
    if answer.kind == "absent":
        return "absent", None
    return ("label", answer.label) if answer.label is not None else ("item", answer.item_id)


def in_words(answer: SearchAnswer) -> str:
    """An answer in words, after `that`."""
    kind, name = _claim(answer)
    return "the gallery lacks it" if kind == "absent" else f"it is '{name}'"


class Asking:
    """Drawn searches that may be put to a person, `by`."""

    def __init__(
        self, said: Mapping[str, Sequence[SearchAnswer]], asked: Sequence[AskedSearch], by: str
    ) -> None:
        self._said = said
        self._by = by
        mine = [one for one in asked if one.by == by]
        self._n_asked = Counter(one.search for one in mine)
        self._last = {one.search: one.at for one in mine}
        self._order = {one.search: place for place, one in enumerate(mine)}
        self._others = {one.search: one.at for one in asked if one.by != by}
        self._own = {one.search: one.at for own in said.values() for one in own if one.by == by}

    def is_open(self, search: str) -> bool:
        """Tell whether a search was put to the person, who has not answered since."""
        at, answered = self._last.get(search), self._own.get(search)
        return at is not None and (answered is None or answered < at)

    def unanswered(self, searches: Iterable[KeptSearch]) -> list[str]:
        """Unanswered searches: those put to the person, then those that others leave lying."""
        long_ago = datetime.now(UTC) - _PATIENCE
        mine, lying = list[str](), dict[str, datetime]()
        for one in searches:
            if one.drawn_at is None:
                continue
            if self.is_open(one.id) and (one.id not in self._said or one.id in self._own):
                mine.append(one.id)
            elif one.id not in self._said and self._others.get(one.id, one.drawn_at) < long_ago:
                lying[one.id] = one.drawn_at
        return [*sorted(mine, key=self._order.__getitem__), *sorted(lying, key=lying.__getitem__)]

    def due_again(
        self, searches: Iterable[KeptSearch], surprising: Collection[str] = frozenset()
    ) -> list[str]:
        """Searches that one person has answered, and a second answer is wanted to: the `surprising` ones
        first, and some by chance, which tell how often a person errs.
        """
        is_alone = all(one.by == self._by for own in self._said.values() for one in own)
        due = []
        for search in searches:
            own = self._said.get(search.id, ())
            if search.drawn_at is None or len(own) != 1:
                continue
            if search.id not in surprising and zlib.crc32(search.id.encode()) % _AGAIN:
                continue
            if own[0].by != self._by:
                due.append(search.id)
            elif is_alone and self._n_asked[search.id] < 2:
                n_since = sum(at > own[0].at for at in self._own.values())
                if n_since >= _LATER:
                    due.append(search.id)
        return sorted(due, key=lambda one: one not in surprising)


def said_twice(
    said: Mapping[str, Sequence[SearchAnswer]], answers: Sequence[SearchAnswer], asked: Sequence[AskedSearch]
) -> list[tuple[SearchAnswer, SearchAnswer]]:
    """Two answers that tell, of two persons or of one who was asked twice, of each search that has some."""
    found = {}
    last = {(one.search, one.by): one.at for one in asked}
    earlier: dict[str, SearchAnswer] = {}
    for one in answers:
        at = last.get((one.search, one.by))
        if one.kind not in ("unsure", "wrong") and at is not None and one.at < at:
            earlier[one.search] = one
    for search, own in said.items():
        telling = [one for one in own if one.kind != "unsure"]
        if len(telling) > 1:
            found[search] = telling[0], telling[-1]
        elif telling and search in earlier and earlier[search].number != telling[0].number:
            found[search] = earlier[search], telling[0]
    return [*found.values()]
