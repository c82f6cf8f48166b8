"""Words: one name for a rate and one way to write a share, wherever they are said."""

from __future__ import annotations

import pytest

from vicinal.indexer.hygiene import Hygiene
from vicinal.service.measuring.evidence import RateEvidence, VisitEvidence
from vicinal.service.words import (
    RATES,
    hygiene_lines,
    visit_words,
)


def evidence(n_labels: int, effective: float) -> RateEvidence:
    return RateEvidence(
        rate=0.05,
        low=0.01,
        high=0.2,
        n_trials=60,
        n_labels=n_labels,
        effective_labels=effective,
        leave_one_label_out=(0.04, 0.06),
    )


def test_every_target_with_a_rate_has_words() -> None:
    assert set(RATES) == {"far", "frr", "fpir", "fnir", "precision"}


def test_what_mixing_visits_would_promise_stands_beside_what_it_shows() -> None:
    found = VisitEvidence(
        by="visit",
        n_visits=20,
        threshold_together=0.5,
        promised={"hit_rate_1": 1.0, "fnir": 0.1},
        shown={"hit_rate_1": 0.7, "fnir": 0.4},
    )
    assert visit_words(found) == (
        "Photos of one visit were kept apart: 20 visits. A calibration that mixes them (threshold 0.5000) "
        "promises FNIR 10 % but shows 40 %, R@1 100 % but shows 70 %"
    )


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (
            1,
            [
                "1 exact duplicate: 'a' and 'b'",
                "1 pair of near duplicates: 'a' and 'b'",
                "1 duplicate with another label: 'a' and 'b'",
                "1 label with one item: 'c'",
                "1 item without a label",
            ],
        ),
        (
            2,
            [
                "2 exact duplicates, such as 'a' and 'b'",
                "2 pairs of near duplicates, such as 'a' and 'b'",
                "2 duplicates with another label, such as 'a' and 'b'",
                "2 labels with one item, such as 'c'",
                "2 items without a label",
            ],
        ),
    ],
)
def test_what_stands_out_is_told_with_an_example(n: int, expected: list[str]) -> None:
    pairs = [("a", "b")]
    assert list(hygiene_lines(Hygiene(n, n, n, n, n, pairs, pairs, pairs, ["c"]))) == expected
