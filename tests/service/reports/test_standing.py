"""Standing of a gallery: what speaks most against its promise is said."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from vicinal.service.measuring.drift import DriftLevel
from vicinal.service.reports.standing import StandingWord, standing
from vicinal.service.search.answers import CalibrationState, Threshold


@pytest.mark.parametrize(
    ("state", "drift", "word"),
    [
        ("current", "none", "holds"),
        ("current", "unknown", "holds"),
        ("current", "moderate", "holds"),
        ("current", "strong", "drifting"),
        ("stale", "none", "unsure"),
        ("broken", "strong", "broken"),
        ("by_hand", "strong", "by_hand"),
        ("default", "none", "never_measured"),
        ("none", "none", "never_measured"),
    ],
)
def test_the_state_of_a_threshold_is_said_in_a_word(
    state: CalibrationState, drift: DriftLevel, word: StandingWord
) -> None:
    found = standing(Threshold(value=0.5, state=state), drift, None)
    assert found.word == word
    assert found.sentence.endswith(".")


def test_a_damaged_record_is_named() -> None:
    found = standing(None, "unknown", "its record is damaged")
    assert (found.word, "its record is damaged" in found.sentence) == ("unusable", True)


def test_the_page_has_words_for_each(static_words: str) -> None:
    missing = [word for word in get_args(StandingWord) if f"  {word}: {{" not in static_words]
    assert missing == []


@pytest.fixture
def static_words() -> str:
    folder = Path(__file__).resolve().parents[3] / "service" / "static"
    return (folder / "lib" / "words.js").read_text("utf-8")
