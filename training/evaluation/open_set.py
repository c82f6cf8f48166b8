"""Open-set search: some queries have a mate in the gallery, others have none, and a threshold parts them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal.calibration.arrays import AnyArray, Ints, Mask
from vicinal.models.errors import EvaluationError


@dataclass(frozen=True)
class OpenSetRoles:
    """Gallery and its queries, as positions.

    The gallery holds half of the items of each known class; `known` are the other halves, queries with a
    mate; `absent` are items of classes that the gallery does not hold.
    """

    gallery: Ints
    known: Ints
    absent: Ints


def deal_roles(
    positions: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    draws: int,
    rng: np.random.Generator,
    visits: Ints | None = None,
) -> list[OpenSetRoles]:
    """Deal items into galleries and queries: each draw knows one half of the classes, the next the other.

    Photos of one visit are alike: with some of them in the gallery nearly anything finds the others, and
    strangers from the same shelf pass for mates. Where they are known, `visits` are (n,) numbers beside the
    labels, and a gallery holds all of a class's visit or nothing.

    The `positions` in `labels` take part. Halves of known classes are drawn, and absent classes are all
    asked. Galleries that would be empty are left out of the draws; items alone with their label are always
    absent.
    """
    own, all_labels = np.asarray(positions, np.int64), np.asarray(labels)
    names, sizes = np.unique(all_labels[own], return_counts=True)
    single = own[np.isin(all_labels[own], names[sizes == 1])]
    dealt = []
    for _ in range((draws + 1) // 2):
        parts = np.array_split(rng.permutation(names[sizes > 1]), 2)
        for classes in (parts, parts[::-1]):
            known, absent = (own[np.isin(all_labels[own], some)] for some in classes)
            gallery, queries = _halves(rng.permutation(known), all_labels, visits)
            dealt.append(OpenSetRoles(gallery, queries, np.concatenate([absent, single])))
    return [roles for roles in dealt[:draws] if len(roles.gallery)]


def hold_out_classes(classes: AnyArray, groups: AnyArray, share: float, seed: int) -> Mask:
    """(n,) items of a share of the classes, in [0, 1), drawn in each group alike; a class is in one group."""
    rng, held = np.random.default_rng(seed), []
    for group in np.unique(groups):
        own = np.unique(classes[groups == group])
        held.append(rng.permutation(own)[: round(share * len(own))])
    return np.isin(classes, np.concatenate(held)) if held else np.zeros(len(classes), np.bool_)


def threshold_at_fpir(best_absent_scores: npt.ArrayLike, fpir: float) -> float:
    """Lowest accepted score at which at most a share `fpir`, in (0, 1), of absent queries is answered.

    Given is the best score of each query without a mate; refused with EvaluationError when there are none.
    """
    absent = np.asarray(best_absent_scores, dtype=np.float64)
    if not len(absent):
        raise EvaluationError("a threshold for an FPIR needs queries without a mate")
    # A score is accepted above the best one that has to be turned down.
    turned_down = np.sort(absent)[::-1][int(np.floor(fpir * len(absent) + 1e-9))]
    return float(np.nextafter(turned_down, np.inf))


def fnir_at_fpir(best_mate_scores: npt.ArrayLike, best_absent_scores: npt.ArrayLike, fpir: float) -> float:
    """False negative identification rate at a false positive one (ISO/IEC 19795-1).

    The threshold is `threshold_at_fpir`; a query with a mate counts when no mate passes it. Given are the
    best scores of each query with one of its mates, -inf where none was found, and of each without; refused
    with EvaluationError when one of the two is empty.
    """
    mates, absent = (np.asarray(one, dtype=np.float64) for one in (best_mate_scores, best_absent_scores))
    if not len(mates) or not len(absent):
        raise EvaluationError("FNIR at an FPIR needs queries with and without a mate")
    return float((mates < threshold_at_fpir(absent, fpir)).mean())


def _halves(positions: Ints, labels: AnyArray, visits: Ints | None = None) -> tuple[Ints, Ints]:
    """The first half of each class's items, rounded up to whole visits, and the others."""
    if visits is not None:
        positions = positions[np.argsort(_first_of_visits(visits[positions]), kind="stable")]
    ordered = positions[np.argsort(labels[positions], kind="stable")]
    _, starts, sizes = np.unique(labels[ordered], return_index=True, return_counts=True)
    ranks = np.arange(len(ordered)) - np.repeat(starts, sizes)
    if visits is not None:
        ranks = ranks[_first_of_visits(visits[ordered])]
    first = ranks < np.repeat((sizes + 1) // 2, sizes)
    return ordered[first], ordered[~first]


def _first_of_visits(visits: Ints) -> Ints:
    """(n,) place of the first item of each item's visit."""
    _, first, own = np.unique(visits, return_index=True, return_inverse=True)
    return np.asarray(first[own], np.int64)
