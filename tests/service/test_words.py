"""Words: one name for a rate and one way to write a share, wherever they are said."""

from __future__ import annotations

import pytest

from vicinal.indexer.hygiene import Hygiene
from vicinal.indexer.sources import SourceLook
from vicinal.models.bundle import ModelBundle
from vicinal.service.measuring.drift import DriftState
from vicinal.service.measuring.evidence import RateEvidence, VisitEvidence
from vicinal.service.search.pipeline import Pipeline, choose_pipeline, service_pipeline
from vicinal.service.words import (
    RATES,
    drift_words,
    hygiene_lines,
    labels_behind,
    look_lines,
    number_of,
    percent,
    rate_name,
    search_words,
    span,
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


def test_shares_are_written_with_three_digits() -> None:
    assert (percent(0.05), percent(0.000774), span(0.0, 1.0)) == ("5 %", "0.0774 %", "0 % to 100 %")


@pytest.mark.parametrize(
    ("rate", "expected"), [("fpir", "FPIR"), ("hit_rate_1", "R@1"), ("precision", "precision")]
)
def test_rates_have_one_name(rate: str, expected: str) -> None:
    assert rate_name(rate) == expected


def test_every_target_with_a_rate_has_words() -> None:
    assert set(RATES) == {"far", "frr", "fpir", "fnir", "precision"}


@pytest.mark.parametrize(
    ("n_labels", "effective", "expected"),
    [(1, 1.0, "1 label"), (36, 35.0, "36 labels"), (36, 24.2, "36 labels (worth 24.2 of equal size)")],
)
def test_uneven_labels_are_told(n_labels: int, effective: float, expected: str) -> None:
    assert labels_behind(evidence(n_labels, effective)) == expected


def test_what_mixing_visits_would_promise_stands_beside_what_it_shows() -> None:
    found = VisitEvidence(
        by="visit",
        n_visits=20,
        n_alone=0,
        are_told=True,
        threshold_together=0.5,
        promised={"hit_rate_1": 1.0, "fnir": 0.1},
        shown={"hit_rate_1": 0.7, "fnir": 0.4},
    )
    assert visit_words(found) == (
        "Photos of one visit were kept apart: 20 visits. A calibration that mixes them (threshold 0.5000) "
        "promises FNIR 10 % but shows 40 %, R@1 100 % but shows 70 %"
    )


def test_unknown_drift_says_why() -> None:
    found = DriftState(calibration="a", pipeline="p", since=None, level="unknown", reason="nobody searched")
    assert drift_words(found) == "unknown: nobody searched"


@pytest.mark.parametrize(
    ("refine", "rerank", "expected"),
    [
        ("off", "off", "nearest neighbors, one threshold"),
        ("off", "contextual", "nearest neighbors, re-ranked by shared neighbors, one threshold"),
        ("query", "off", "nearest neighbors, query refined by attention over 4 neighbors, one threshold"),
        (
            "both",
            "k_reciprocal",
            "nearest neighbors, query and items refined by attention over 4 neighbors, re-ranked by mutual "
            "neighbors, one threshold",
        ),
    ],
)
def test_a_search_is_told_stage_by_stage(
    refiner_bundle: ModelBundle, refine: str, rerank: str, expected: str
) -> None:
    default = service_pipeline(Pipeline(), refiner_bundle)
    pipeline = choose_pipeline(default, rerank, refine=refine, bundle=refiner_bundle)
    assert search_words(pipeline, refiner_bundle) == expected


@pytest.mark.parametrize(
    ("n", "words", "expected"),
    [
        (0, ("item",), "0 items"),
        (1, ("item",), "1 item"),
        (2000, ("item",), "2,000 items"),
        (1, ("copy", "copies"), "1 copy"),
        (2, ("copy", "copies"), "2 copies"),
    ],
)
def test_one_thing_is_not_told_as_several(n: int, words: tuple[str, ...], expected: str) -> None:
    assert number_of(n, *words) == expected


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


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["a", "b"] * 5, "10 items with 2 labels; 5 items a label"),
        (["a"], "1 item with 1 label; 1 item a label; 1 label with one item"),
        (
            ["a", "a", "b", None],
            "4 items with 2 labels; 1 to 2 items a label, median 1; 1 label with one item; "
            "1 item without a label",
        ),
    ],
)
def test_a_look_tells_a_range_only_where_there_is_one(labels: list[str | None], expected: str) -> None:
    assert next(look_lines(SourceLook.at(labels))) == expected
