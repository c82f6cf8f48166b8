"""Group scores: the best item's or the label's, best first, and the same in any batch."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vicinal.service.search.group_scores import group_scores

NONE = (-np.inf, -1, 1, -np.inf)
ITEM = st.tuples(st.floats(0.0, 1.0), st.integers(0, 3))


def arrange(items: list[tuple[float, int]]) -> list[np.ndarray]:
    """(1, n) scores, groups, sizes and scores of labels, best first as a scorer gives them."""
    scores, codes = zip(*sorted(items, key=lambda one: -one[0]), strict=True)
    counts = np.bincount(codes, minlength=4)
    return [np.array([one]) for one in (scores, codes, counts[list(codes)], (0.9 - 0.1 * np.array(codes)))]


@given(items=st.lists(ITEM, min_size=1, max_size=15))
def test_a_group_scores_as_its_best_item_or_as_its_label(items: list[tuple[float, int]]) -> None:
    scores, codes, sizes, by_label = arrange(items)
    best = {code: max(score for score, of in items if of == code) for _, code in items}
    found = group_scores(scores, codes, sizes)
    assert dict(zip(found.codes[0].tolist(), found.scores[0].tolist(), strict=True)) == best
    assert found.scores[0].tolist() == sorted(best.values(), reverse=True)
    labels = group_scores(scores, codes, sizes, by_label)
    assert labels.codes[0].tolist() == sorted(best)
    # The best item stands for the label, whatever decides.
    shown = {code: scores[0, column] for code, column in zip(labels.codes[0], labels.best[0], strict=True)}
    assert shown == best


@given(queries=st.lists(st.lists(ITEM, min_size=1, max_size=8), min_size=2, max_size=4))
def test_a_query_scores_the_same_alone_and_in_a_batch(queries: list[list[tuple[float, int]]]) -> None:
    rows = [arrange(one) for one in queries]
    width = max(one[0].shape[1] for one in rows)
    batch = [
        np.concatenate(
            [np.pad(row[i], ((0, 0), (0, width - row[i].shape[1])), constant_values=none) for row in rows]
        )
        for i, none in enumerate(NONE)
    ]
    together = group_scores(*batch)
    for i, row in enumerate(rows):
        alone = group_scores(*row)
        for name, values in vars(alone).items():
            assert getattr(together, name)[i, : values.shape[1]].tolist() == values[0].tolist()


def test_nothing_found_is_no_group() -> None:
    found = group_scores(np.full((2, 3), -np.inf), np.full((2, 3), -1), np.ones((2, 3), int))
    assert found.codes.tolist() == [[-1], [-1]]
