"""Open-set search: some queries have a mate in the gallery, others have none, and a threshold parts them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal.models.errors import EvaluationError
from vicinal.models.evaluation.metrics import retrieval_metrics
from vicinal.models.similarity import FloatArray, normalize

__all__ = ["FPIR", "OpenSetFigures", "OpenSetRoles", "deal_roles", "fnir_at_fpir", "open_set_figures"]

Ints = npt.NDArray[np.int64]

# Rate of false positives at which networks are compared.
FPIR = 0.05
_DRAWS = 4


@dataclass(frozen=True)
class OpenSetRoles:
    """One gallery and its queries, as positions.

    Attributes:
        gallery: (m,) half of the items of each known class.
        known: (n,) the other halves: queries with a mate.
        absent: (k,) items of classes that the gallery does not hold: queries without one.
    """

    gallery: Ints
    known: Ints
    absent: Ints


@dataclass(frozen=True)
class OpenSetFigures:
    """How well embeddings find what is there and turn down what is not.

    Attributes:
        fnir: False negative identification rate at the false positive one asked for.
        map_at_r: MAP@R of the items among themselves.
    """

    fnir: float
    map_at_r: float

    @property
    def order(self) -> tuple[float, float]:
        """What a lower value of is better: FNIR, and where that is equal, MAP@R."""
        return self.fnir, -self.map_at_r


def deal_roles(
    positions: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    draws: int,
    rng: np.random.Generator,
    ordered: bool = False,
) -> list[OpenSetRoles]:
    """Deal items into galleries and queries: each draw knows one half of the classes, the next the other.

    Photos of one visit are alike: with some of them in the gallery nearly anything finds the others, and
    strangers from the same shelf pass for mates. Where items come in the order in which they were taken, a
    class cut in the middle keeps visits apart.

    Args:
        positions: (n,) positions in `labels` that take part.
        labels: Labels of all items.
        draws: Most galleries.
        rng: What classes are dealt with, and halves where they are drawn.
        ordered: Whether a gallery holds the earlier halves of its classes, and the next one the later halves;
            all queries are of the other halves. Otherwise halves are drawn, and absent classes are all asked.

    Returns:
        One for each draw whose gallery is not empty; items alone with their label are always absent.
    """
    own, all_labels = np.asarray(positions, np.int64), np.asarray(labels)
    names, sizes = np.unique(all_labels[own], return_counts=True)
    single = own[np.isin(all_labels[own], names[sizes == 1])]
    dealt = []
    for pair in range((draws + 1) // 2):
        parts = np.array_split(rng.permutation(names[sizes > 1]), 2)
        for turn, classes in enumerate((parts, parts[::-1])):
            known, absent = (own[np.isin(all_labels[own], some)] for some in classes)
            gallery, queries = _halves(known if ordered else rng.permutation(known), all_labels)
            if ordered:
                earlier, absent = _halves(absent, all_labels)
                if (pair + turn) % 2:
                    gallery, queries, absent = queries, gallery, earlier
            dealt.append(OpenSetRoles(gallery, queries, np.concatenate([absent, single])))
    return [roles for roles in dealt[:draws] if len(roles.gallery)]


def fnir_at_fpir(best_mate_scores: npt.ArrayLike, best_absent_scores: npt.ArrayLike, fpir: float) -> float:
    """False negative identification rate at a false positive one (ISO/IEC 19795-1).

    The threshold is the lowest that holds the rate; a query with a mate counts when no mate passes it.

    Args:
        best_mate_scores: (n,) best score of each query with one of its mates, -inf where none was found.
        best_absent_scores: (m,) best score of each query without a mate.
        fpir: Highest share of the queries without a mate that may be answered, in (0, 1).

    Raises:
        EvaluationError: One of the two is empty.
    """
    mates, absent = (np.asarray(one, dtype=np.float64) for one in (best_mate_scores, best_absent_scores))
    if not len(mates) or not len(absent):
        raise EvaluationError("FNIR at an FPIR needs queries with and without a mate")
    allowed = int(np.floor(fpir * len(absent) + 1e-9))
    # A score is accepted above the best one that has to be turned down.
    turned_down = np.sort(absent)[::-1][allowed]
    return float((mates <= turned_down).mean())


def open_set_figures(
    embeddings: npt.ArrayLike,
    labels: npt.ArrayLike,
    beside: npt.ArrayLike | None = None,
    *,
    fpir: float = FPIR,
    seed: int = 0,
) -> OpenSetFigures:
    """Figures of embeddings whose classes play the known and the absent ones in turn, cut in their order.

    Args:
        embeddings: (n, d), normalized or not; of photos, in the order in which they were taken.
        labels: (n,) labels.
        beside: (m, d) embeddings of other classes, which stand in every gallery: the more it holds, the
            easier a query without a mate finds something.
        fpir: Highest share of the queries without a mate that may be answered, in (0, 1).
        seed: Of the deal, so that two networks are asked the same.

    Raises:
        EvaluationError: There are fewer than two classes with a pair.
    """
    unit, names = normalize(np.asarray(embeddings, np.float32)), np.asarray(labels)
    others = unit[:0] if beside is None else normalize(np.asarray(beside, np.float32))
    rng = np.random.default_rng(seed)
    mates, absent = [], []
    for roles in deal_roles(np.arange(len(names)), names, draws=_DRAWS, rng=rng, ordered=True):
        best_mates, best_absent = _best_scores(unit, names, roles, others)
        mates.append(best_mates)
        absent.append(best_absent)
    if not mates:
        raise EvaluationError("an open-set search needs two classes of two images")
    fnir = fnir_at_fpir(np.concatenate(mates), np.concatenate(absent), fpir)
    return OpenSetFigures(fnir, retrieval_metrics(unit, names, ks=(1,)).map_at_r)


def _best_scores(
    unit: FloatArray, labels: npt.NDArray[np.generic], roles: OpenSetRoles, others: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Best score with a mate of each known query, and best score of each absent one."""
    gallery = unit[roles.gallery]
    are_mates = labels[roles.known, None] == labels[roles.gallery]
    known = np.where(are_mates, unit[roles.known] @ gallery.T, -np.inf).max(axis=1, initial=-np.inf)
    return known, (unit[roles.absent] @ np.concatenate([gallery, others]).T).max(axis=1, initial=-np.inf)


def _halves(positions: Ints, labels: npt.NDArray[np.generic]) -> tuple[Ints, Ints]:
    """The first half of each class's items, rounded up, and the others."""
    ordered = positions[np.argsort(labels[positions], kind="stable")]
    _, starts, sizes = np.unique(labels[ordered], return_index=True, return_counts=True)
    ranks = np.arange(len(ordered)) - np.repeat(starts, sizes)
    first = ranks < np.repeat((sizes + 1) // 2, sizes)
    return ordered[first], ordered[~first]
