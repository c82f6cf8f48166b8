"""Search calls: what a client asks for; those that ask alike are answered by one call of the matcher."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import numpy as np

from vicinal.calibration.arrays import FloatArray
from vicinal.models.embedder import Embedder, PreparedQueries
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.search.answers import Answer
from vicinal.service.search.gallery_search import EmbeddedImages

Outcome = list[Answer] | BaseException


@dataclass
class Search:
    """Call of a client: queries of one kind, with what all of them are searched with.

    Attributes:
        gallery: Name of the gallery.
        kind: `images`, `embeddings` or `item_ids`.
        queries: Encoded images, embeddings of (d,) numbers, or ids.
        options: Further arguments of `Matcher.search`.
        is_gone: Whether nobody waits for the answer any more.
    """

    gallery: str
    kind: str
    queries: Sequence[Any]
    options: dict[str, Any]
    is_gone: bool = False
    _matcher: Matcher | None = field(default=None, init=False)
    _prepared: PreparedQueries | None = field(default=None, init=False)
    _milliseconds: dict[str, float] = field(default_factory=dict, init=False)

    @property
    def matcher(self) -> Matcher:
        """The state that is searched, once it is prepared."""
        if self._matcher is None:
            raise RuntimeError("a search is prepared before it is finished")
        return self._matcher

    @property
    def question(self) -> Hashable:
        """Equal for searches that one call of the matcher can answer, once they are prepared."""
        return id(self.matcher), self.kind, *self.options.items()

    def prepare(self, matcher_of: Callable[[str], Matcher]) -> tuple[Embedder, list[FloatArray]]:
        """Choose the state of the gallery, and decode images.

        Returns:
            What embeds them, and arrays (3, S, S) that it has to embed; none of other queries.
        """
        self._matcher = matcher_of(self.gallery)
        embedder = self._matcher.embedder
        if self.kind != "images":
            return embedder, []
        self._prepared = embedder.prepare_queries(self.queries, self._milliseconds)
        return embedder, self._prepared.tensors

    def embedded(self, raw: FloatArray) -> EmbeddedImages | None:
        """Its images after the network; None of other queries."""
        if self._prepared is None:
            return None
        rows = self.matcher.embedder.finish_queries(self._prepared, raw)
        return EmbeddedImages(rows, self._milliseconds)


def outcomes_of(
    searches: Sequence[Search],
    raws: Sequence[FloatArray],
    seconds: float,
    record: Callable[[list[Answer], Matcher], list[Answer]],
) -> list[Outcome]:
    """Answer searches that were prepared; one that cannot be answered fails alone."""
    outcomes: dict[int, Outcome] = {}
    alike = defaultdict(list)
    for number, search in enumerate(searches):
        alike[search.question].append(number)
    for numbers in alike.values():
        own = [(searches[number], raws[number]) for number in numbers]
        outcomes |= zip(numbers, _answered(own, seconds, record), strict=True)
    return [outcomes[number] for number in range(len(searches))]


def _answered(
    searches: Sequence[tuple[Search, FloatArray]],
    seconds: float,
    record: Callable[[list[Answer], Matcher], list[Answer]],
) -> list[Outcome]:
    matcher = searches[0][0].matcher
    try:
        answers = iter(record(matcher.search(**_queries(searches, seconds)), matcher))
    except BaseException as error:
        if len(searches) == 1:
            return [error]
        return [outcome for one in searches for outcome in _answered([one], seconds, record)]
    return [list(islice(answers, len(search.queries))) for search, _ in searches]


def _queries(searches: Sequence[tuple[Search, FloatArray]], seconds: float) -> dict[str, Any]:
    """Arguments of `Matcher.search` for the queries of all searches, in order."""
    first = searches[0][0]
    images = [one for search, raw in searches if (one := search.embedded(raw)) is not None]
    if not images:
        queries = chain.from_iterable(search.queries for search, _ in searches)
        return {**first.options, first.kind: list(queries)}
    # They waited for each other: what took one of them its time took it all.
    spent: Counter[str] = Counter()
    for one in images:
        spent.update(one.milliseconds)
    milliseconds = dict(spent) | {"embed": 1e3 * seconds}
    rows = np.concatenate([one.rows for one in images])
    return {**first.options, "embedded": EmbeddedImages(rows, milliseconds)}
