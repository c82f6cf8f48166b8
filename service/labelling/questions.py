"""Questions: which two photos of a gallery a person is asked about next, of pairs that searches would show. A
block follows from the seed and the answers before it alone, so that a page loaded again asks the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from vicinal.calibration import Target
from vicinal.calibration.arrays import Floats, Ints
from vicinal.calibration.rates.answered_pairs import AnsweredPairs, PairAnswers, PairStrata
from vicinal.service.measuring.records.record import StoredArrays
from vicinal.service.search.scorer import N_DECIDED_CANDIDATES, Scorer

# True: same; False: different; None: cannot be told.
Answer = bool | None

# Questions that are drawn from the same answers.
BLOCK = 4
# The first questions are about all strata alike: a model that is wrong about the best pairs would never ask.
_LOOK = 8
# Of so many questions one is asked a second time, to learn how often answers are slips.
_AGAIN = 8
# Nothing is estimated from fewer answers. An estimate is good enough with an interval of this length for a
# precision, and for a FAR of this share of the target.
FEWEST = 40
_SHORT, _SHORT_FAR = 0.08, 1.0
# Accepted pairs at the far end of where the threshold could lie, by those at the near end.
_PLACES = 4.0
# Items that are searched for.
_MOST_QUERIES = 1000


@dataclass(frozen=True)
class Question:
    """Two images: the number of their pair, and the positions of both."""

    pair: int
    items: tuple[int, int]


@dataclass(frozen=True)
class ScoredPairs(StoredArrays):
    """Query, candidate and score of n pairs, (q,) best score of a query, and how many pairs score lower."""

    what: ClassVar[str] = "pairs to ask about"
    queries: Ints
    items: Ints
    scores: Floats
    top_scores: Floats
    n_others: int

    @classmethod
    def of(cls, scorer: Scorer, *, seed: int) -> Self:
        """Search for items that are there, at most 1,000 of them."""
        view = scorer.view
        there = view.live
        n, rng = len(there), np.random.default_rng(seed)
        chosen = np.sort(there[rng.permutation(n)[:_MOST_QUERIES]])
        own = [chosen[i : i + 1] for i in range(len(chosen))]
        found = scorer.score(view.vectors(chosen), N_DECIDED_CANDIDATES, excluded=own, items=chosen)
        rows, columns = np.nonzero(found.positions >= 0)
        return cls(
            chosen[rows],
            found.positions[rows, columns],
            found.scores[rows, columns],
            np.maximum(found.scores[:, 0], 0.0),
            len(chosen) * (n - 1) - len(rows),
        )

    def among(self, there: Ints) -> tuple[Self, Ints]:
        """The pairs of items at some positions, and their places among all."""
        kept = np.flatnonzero(np.isin(self.queries, there) & np.isin(self.items, there))
        queries, scores = self.queries[kept], self.scores[kept]
        # The best of each query comes first.
        best = scores[np.unique(queries, return_index=True)[1]]
        n_queries = int(np.isin(np.unique(self.queries), there).sum())
        top_scores = np.zeros(n_queries)
        top_scores[: len(best)] = np.maximum(best, 0.0)
        n_others = n_queries * (len(there) - 1) - len(kept)
        return type(self)(queries, self.items[kept], scores, top_scores, n_others), kept

    @cached_property
    def strata(self) -> PairStrata:
        """The pairs by score."""
        return PairStrata.of(self.scores, n_others=self.n_others)

    @cached_property
    def own_strata(self) -> Ints:
        """(n,) stratum of each pair."""
        return self.strata.stratum(self.scores)

    @cached_property
    def photos(self) -> Ints:
        """(n,) one number for the same two photos, whichever of them is the query."""
        first, second = np.minimum(self.queries, self.items), np.maximum(self.queries, self.items)
        return np.asarray(first * (int(second.max(initial=0)) + 1) + second)

    def question(self, pair: int) -> Question:
        """The two photos of a pair."""
        return Question(pair, (int(self.queries[pair]), int(self.items[pair])))


def posterior(
    pairs: ScoredPairs, asked: Sequence[int], answers: Sequence[Answer], seed: int
) -> AnsweredPairs:
    """Rates that the answers leave possible at every threshold; a pair may be asked about several times."""
    told = [(pair, answer) for pair, answer in zip(asked, answers, strict=True) if answer is not None]
    same, different = (Counter(pair for pair, answer in told if answer is one) for one in (True, False))
    names = sorted({pair for pair, _ in told})
    counts = np.array([[same[one], different[one]] for one in names], dtype=np.int64).reshape(-1, 2)
    strata = pairs.own_strata[np.array(names, dtype=np.int64)]
    return AnsweredPairs(pairs.strata, PairAnswers(strata, counts[:, 0], counts[:, 1]), seed=seed)


def progress(found: AnsweredPairs, n_answers: int, target: Target) -> float:
    """Nearness of a session's end, in [0, 1]; at 1 its answers are enough."""
    border = found.border(target)
    if n_answers < FEWEST or border is None:
        return 0.5 * min(n_answers / FEWEST, 0.99)
    ends = found.interval(target, border)
    longest = _SHORT if target.rate == "precision" else _SHORT_FAR * target.value
    length = max(ends.high - ends.low, 1e-9)
    return 0.5 + 0.5 * min(1.0, longest / length, _PLACES / found.spread(target))


def next_block(
    pairs: ScoredPairs,
    asked: Sequence[int],
    answers: Sequence[Answer],
    *,
    found: AnsweredPairs,
    target: Target,
    seed: int,
) -> list[Question]:
    """The next questions."""
    rng = np.random.default_rng([seed, len(asked)])
    drawing = _Drawing(pairs, asked, rng)
    block: list[Question] = []
    for number in range(len(asked), len(asked) + BLOCK):
        doubtful = _most_doubtful(pairs, asked, answers, found) if number % _AGAIN == _AGAIN - 1 else None
        if doubtful is not None:
            question = pairs.question(doubtful)
            # The other way round, so that nobody recognizes it by its place.
            block.append(Question(doubtful, question.items[::-1]))
        elif drawing.n_left.any():
            n_strata = len(drawing.n_left)
            stratum = number * (n_strata - 1) // (_LOOK - 1) if number < _LOOK else n_strata
            if stratum == n_strata or not drawing.n_left[stratum]:
                stratum = found.next_stratum(target, drawing.n_asked, drawing.n_left, rng)
            block.append(pairs.question(drawing.draw(stratum)))
    return block


class _Drawing:
    """Draws pairs not asked about, all of a stratum as probable, so that no precision is biased."""

    def __init__(self, pairs: ScoredPairs, asked: Sequence[int], rng: np.random.Generator) -> None:
        self._pairs, self._rng = pairs, rng
        known = sorted(set(asked))
        self._is_free = ~np.isin(pairs.photos, pairs.photos[known])
        self.n_asked = np.bincount(pairs.own_strata[known], minlength=len(pairs.strata.sizes))

    @property
    def n_left(self) -> Ints:
        """(H,) pairs of each stratum that can be drawn."""
        strata = self._pairs.strata
        return np.bincount(self._pairs.own_strata[self._is_free], minlength=len(strata.sizes))

    def draw(self, stratum: int) -> int:
        """A pair of a stratum that has some left."""
        free = np.flatnonzero(self._is_free & (self._pairs.own_strata == stratum))
        pair = int(self._rng.choice(free))
        self.n_asked[stratum] += 1
        # The other way round it shows the same two photos.
        self._is_free &= self._pairs.photos != self._pairs.photos[pair]
        return pair


def _most_doubtful(
    pairs: ScoredPairs, asked: Sequence[int], answers: Sequence[Answer], found: AnsweredPairs
) -> int | None:
    """The pair whose answers are most likely wrong; none of the last block, which is remembered."""
    told = list(zip(asked, answers, strict=True))
    same, different = (Counter(pair for pair, answer in told if answer is one) for one in (True, False))
    earlier = sorted({pair for pair, answer in told[:-BLOCK] if answer is not None})
    if not earlier:
        return None
    shares = found.shares.mean(axis=0)[pairs.own_strata[earlier]]
    error = max(float(found.errors.mean()), 0.01)
    k, d = (np.array([one[pair] for pair in earlier]) for one in (same, different))
    if_same = shares * (1.0 - error) ** k * error**d
    if_different = (1.0 - shares) * error**k * (1.0 - error) ** d
    return int(earlier[int(np.argmax(np.minimum(if_same, if_different) / (if_same + if_different)))])
