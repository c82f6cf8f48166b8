"""Golden answers: the present answers on two sets of photos are the kept ones, and what differs is named."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.golden.answers import ACROSS, SETS, answers, differences, read

KEPT = {"verdict": "match", "n": 2, "matches": [{"id": "a", "score": 0.5}, {"id": "b", "score": 0.25}]}


def _answers_in(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if "verdict" in value and "matches" in value:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _answers_in(one)


@pytest.mark.parametrize("name", SETS)
def test_answers_are_those_that_were_kept(name: str, data_dir: Path, tmp_path: Path) -> None:
    assert list(differences(read(name), answers(name, data_dir, tmp_path), ACROSS)) == []


@pytest.mark.parametrize("name", SETS)
def test_no_other_processor_could_decide_or_order_otherwise(name: str) -> None:
    """Scores of the kept searches lie further from the threshold, and from each other, than the tolerance."""
    found = list(_answers_in(read(name)))
    assert len(found) > 20
    for answer in found:
        for listed in (answer["matches"], answer["candidates"], answer.get("groups", [])):
            assert all(abs(one.get("margin", 1.0)) > 2 * ACROSS for one in listed)
            scores = [one["score"] for one in listed]
            assert all(a == b or abs(a - b) > 2 * ACROSS for a, b in pairwise(scores))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({**KEPT, "matches": [{"id": "a", "score": 0.5 + 1e-9}, KEPT["matches"][1]]}, "matches[0].score"),
        ({**KEPT, "matches": KEPT["matches"][::-1]}, "matches[0].id"),
        ({**KEPT, "matches": KEPT["matches"][:1]}, "matches has 1 entries, not 2"),
        ({**KEPT, "verdict": "no_match"}, 'verdict: "match" -> "no_match"'),
        ({**KEPT, "n": 3}, "n: 2 -> 3"),
        ({**KEPT, "n": 2.0}, "n: 2 -> 2.0"),
        ({**KEPT, "new": 1}, "new is new: 1"),
        ({"matches": KEPT["matches"], "verdict": "match"}, "n is missing"),
    ],
)
def test_what_differs_is_named(changed: Any, named: str) -> None:
    found = list(differences(KEPT, changed))
    assert found
    assert found[0].startswith(named)


def test_floats_may_differ_by_the_tolerance_alone() -> None:
    assert list(differences(KEPT, KEPT)) == []
    assert list(differences({"a": 1.0}, {"a": 1.0 + 1e-6}, 1e-5)) == []
    assert list(differences({"a": 1.0}, {"a": 1.0 + 1e-4}, 1e-5)) != []
