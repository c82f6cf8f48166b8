"""Group scores: every form against a slow loop, and the same in any order and in any batch."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.service.search.group_scores import FEATURES, group_features, group_scores
from vicinal.service.search.pipeline import Group

WEIGHTS = (2.0, 1.0, 0.5, -1.0, 0.7, 3.0, 1.5, -2.0)


def form(score: str, **changes: object) -> Group:
    weights = WEIGHTS if score == "learned" else ()
    return Group.model_validate({"by": "label", "score": score, "k": 5, "weights": weights, **changes})


def arrange(items: list[tuple[float, int]], sizes: dict[int, int] | None = None) -> tuple:
    """(1, n) scores, groups and sizes, best first as a scorer gives them."""
    ordered = sorted(items, key=lambda one: -one[0])
    codes = np.array([[code for _, code in ordered]])
    seen = {code: [one for _, one in items].count(code) for code in codes[0].tolist()}
    n = np.array([[{**seen, **(sizes or {})}[code] for code in codes[0].tolist()]])
    return np.array([[score for score, _ in ordered]]), codes, n


def score_of(items: list[tuple[float, int]], group: Group, code: int = 0, **sizes: object) -> float:
    found = group_scores(*arrange(items, **sizes), group)
    return float(found.scores[0, found.codes[0].tolist().index(code)])


def slow(items: list[tuple[float, int]], group: Group, code: int, size: int) -> float:
    """The formulas, one item after the other."""
    ordered = sorted(items, key=lambda one: -one[0])
    own = [score for score, of in ordered if of == code]
    near = [(score, of) for score, of in ordered][: group.k]
    t = group.temperature
    if group.score == "max":
        return own[0]
    if group.score == "mean":
        return sum(own[: group.m]) / min(group.m, size)
    if group.score == "lme":
        # An item that is no candidate scores 0.
        padded = own + [0.0] * (size - len(own))
        return t * math.log(sum(math.exp(score / t) for score in padded) / size)
    if group.score == "vote":
        votes = sum(math.exp((score - 1.0) / t) for score, of in near if of == code)
        return min(1.0, max(own[0], 1.0 + t * math.log(votes) if votes else 0.0))
    votes = sum(math.exp((score - 1.0) / t) for score, of in near if of == code)
    return votes / sum(math.exp((score - 1.0) / t) for score, _ in near)


@pytest.mark.slow
@pytest.mark.parametrize("score", ["max", "mean", "lme", "vote", "share"])
@given(
    drawn=st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(0, 3)), min_size=1, max_size=15),
    more=st.integers(0, 4),
)
def test_a_score_is_what_its_formula_says(score: str, drawn: list[tuple[float, int]], more: int) -> None:
    group, code = form(score, temperature=0.1), drawn[0][1]
    size = sum(of == code for _, of in drawn) + more
    # Of items that tie at the k-th place either may be among the nearest.
    ties = {one for one, _ in drawn}
    if len(ties) < len(drawn) and score in ("vote", "share"):
        return
    found = score_of(drawn, group, code, sizes={code: size})
    assert found == pytest.approx(max(0.0, slow(drawn, group, code, size)), abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("score", ["max", "mean", "lme", "vote", "share", "learned"])
@given(
    items=st.lists(
        st.tuples(st.floats(0.0, 1.0), st.integers(0, 3)),
        min_size=2,
        max_size=12,
        unique_by=lambda one: one[0],
    ),
    seed=st.integers(0, 10),
)
def test_the_order_of_the_items_plays_no_part(score: str, items: list[tuple[float, int]], seed: int) -> None:
    shuffled = [items[place] for place in np.random.default_rng(seed).permutation(len(items))]
    code = items[0][1]
    assert score_of(shuffled, form(score), code) == pytest.approx(
        score_of(items, form(score), code), abs=1e-12
    )


@pytest.mark.slow
@pytest.mark.parametrize("score", ["max", "mean", "lme", "vote", "share", "learned"])
@given(data=st.data())
def test_a_query_scores_the_same_alone_and_in_a_batch(score: str, data: st.DataObject) -> None:
    item = st.tuples(st.floats(0.0, 1.0), st.integers(0, 3))
    queries = data.draw(st.lists(st.lists(item, min_size=1, max_size=8), min_size=2, max_size=4))
    rows = [arrange(one) for one in queries]
    width = max(one[0].shape[1] for one in rows)
    fillings = (-np.inf, -1, 1)
    batch = [
        np.concatenate(
            [np.pad(row[i], ((0, 0), (0, width - row[i].shape[1])), constant_values=filling) for row in rows]
        )
        for i, filling in enumerate(fillings)
    ]
    together = group_scores(*batch, form(score))
    for i, row in enumerate(rows):
        alone = group_scores(*row, form(score))
        n = alone.codes.shape[1]
        for name in ("codes", "scores", "sizes", "best"):
            assert getattr(together, name)[i, :n].tolist() == getattr(alone, name)[0].tolist()


def test_features_are_what_their_names_say() -> None:
    items = [(0.9, 0), (0.8, 1), (0.7, 0), (0.2, 2)]
    rows, codes, features = group_features(*arrange(items, {0: 4}), form("learned", m=2))
    named = dict(zip(FEATURES, features[codes.tolist().index(0)].tolist(), strict=True))
    assert rows.tolist() == [0, 0, 0]
    assert named["max"] == 0.9
    assert named["mean"] == pytest.approx(0.8)
    assert named["gap"] == pytest.approx(0.1)
    assert named["density"] == pytest.approx(np.mean([0.9, 0.8, 0.7, 0.2]))
    second = dict(zip(FEATURES, features[codes.tolist().index(1)].tolist(), strict=True))
    assert second["gap"] == pytest.approx(-0.1)


def test_items_that_are_left_out_leave_their_place_to_the_next() -> None:
    """The k nearest are counted among what is left."""
    scores, codes, sizes = arrange([(0.9, 0), (0.8, 1), (0.7, 2)])
    codes[0, 0], scores[0, 0] = -1, -np.inf
    left = group_scores(scores, codes, sizes, form("share", k=2))
    whole = group_scores(*arrange([(0.8, 1), (0.7, 2)]), form("share", k=2))
    assert left.scores[0].tolist() == whole.scores[0].tolist()
    assert left.best[0].tolist() == [1, 2]
