"""Answered searches: which of the searches that a service kept are asked about, and what the answers say.

The only queries that are like tomorrow's are yesterday's. A person says of a drawn search whether the gallery
has what it shows, and which label that is. The searches are divided into strata by their best score, at
quantiles and at the threshold. Half of the draws go to the strata in proportion to their sizes, half to the
three strata nearest to the threshold, where an answer tells most; within a stratum the order is random and
never changes. N_h searches of which n_h were drawn and answered weigh w = N_h / n_h each:

    FNIR(t) = sum w [known, best mate below t] / sum w [known]
    FPIR(t) = sum w [absent, best score at or above t] / sum w [absent]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from vicinal.calibration.arrays import AnyArray, Floats, Ints, Mask

_N_STRATA = 8
_N_NEAREST = 3


@dataclass(frozen=True)
class SearchStrata:
    """Kept searches by their best score.

    Attributes:
        edges: (H - 1,) rising; a stratum begins at its edge.
        sizes: (H,) searches of each, at least one.
        means: (H,) mean score of each.
    """

    edges: Floats
    sizes: Ints
    means: Floats

    @classmethod
    def of(cls, scores: Floats, threshold: float) -> Self:
        """Divide (n,) best scores, at least one, at quantiles, the nearest of which gives way to the
        threshold.
        """
        edges = np.quantile(scores, np.arange(1, _N_STRATA) / _N_STRATA)
        if scores.min() < threshold <= scores.max():
            edges[np.argmin(np.abs(edges - threshold))] = threshold
        # An edge at the lowest score would leave nothing below it.
        edges = np.unique(edges[edges > scores.min()])
        own = np.searchsorted(edges, scores, side="right")
        edges = edges[np.isin(np.arange(1, len(edges) + 1), own)]
        own = np.searchsorted(edges, scores, side="right")
        sizes = np.bincount(own, minlength=len(edges) + 1)
        return cls(edges, sizes, np.bincount(own, scores) / sizes)

    def stratum(self, scores: Floats) -> Ints:
        """(n,) number of each score's stratum."""
        return np.asarray(np.searchsorted(self.edges, scores, side="right"))

    def shares(self, threshold: float) -> Floats:
        """(H,) share of the draws that each stratum gets."""
        even = self.sizes / self.sizes.sum()
        nearest = np.argsort(np.abs(self.means - threshold), kind="stable")[:_N_NEAREST]
        near = np.zeros(len(even))
        near[nearest] = 1.0 / len(nearest)
        return np.asarray((even + near) / 2.0)


def next_draws(
    scores: Floats,
    threshold: float,
    order: npt.ArrayLike,
    drawn: Mask,
    *,
    n: int = 1,
    in_sample: Mask | None = None,
    visits: AnyArray | None = None,
) -> Ints:
    """Places of the kept searches to ask about next, at most n, the first to be asked about first.

    It is told by the arguments alone. A search that was handed out counts as drawn, answered or not: an
    answer is used for rates if its search was drawn, whenever that was, and never because somebody chose to
    give it.

    Args:
        scores: (m,) best score of each kept search, -inf for one that found nothing.
        threshold: The threshold in force, or the one that the bundle begins with.
        order: (m,) random numbers that a search keeps for good, such as a hash of its id.
        drawn: (m,) whether it was handed out before.
        n: How many are wanted.
        in_sample: (m,) whether it is in the sample of all searches; others, such as answered ones that the
            sample has no room for, are counted where they were drawn, and not drawn. All when None.
        visits: (m,) what was searched for at one time by one sender; one search of each is asked about.
            Empty texts and None are visits of their own.
    """
    sampled = np.ones(len(scores), bool) if in_sample is None else in_sample
    places = np.arange(len(scores))[one_a_visit(order, drawn, sampled, visits)]
    if not (sampled[places]).any():
        return np.empty(0, np.int64)
    known = np.where(np.isfinite(scores), scores, 0.0)
    strata = SearchStrata.of(known[places][sampled[places]], threshold)
    own, rank = strata.stratum(known[places]), np.asarray(order)[places]
    n_drawn = np.bincount(own[drawn[places]], minlength=len(strata.sizes))
    is_free = ~drawn[places] & sampled[places]
    waiting = [
        places[here][np.argsort(rank[here], kind="stable")].tolist()
        for here in (np.flatnonzero(is_free & (own == h)) for h in range(len(strata.sizes)))
    ]
    shares, found = strata.shares(threshold), list[int]()
    while len(found) < n and any(waiting):
        lacking = shares * (n_drawn.sum() + 1) - n_drawn
        stratum = int(np.argmax(np.where([bool(one) for one in waiting], lacking, -np.inf)))
        found.append(waiting[stratum].pop(0))
        n_drawn[stratum] += 1
    return np.array(found, dtype=np.int64)


def one_a_visit(order: npt.ArrayLike, drawn: Mask, in_sample: Mask, visits: AnyArray | None) -> Mask:
    """(m,) whether a search stands for its visit: one that was drawn, else one of the sample, the first in
    order.
    """
    n = len(drawn)
    if visits is None:
        return np.ones(n, bool)
    names = [one or number for number, one in enumerate(visits)]
    found: dict[object, int] = {}
    for place in np.lexsort((np.asarray(order), ~in_sample, ~drawn)).tolist():
        found.setdefault(names[place], place)
    return np.isin(np.arange(n), list(found.values()))
