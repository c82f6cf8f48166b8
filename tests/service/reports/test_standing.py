"""Standing of a gallery: what speaks most against its promise is said."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from vicinal.calibration import RateInterval
from vicinal.service.measuring.drift import DriftLevel
from vicinal.service.measuring.records.record import CalibrationRecord
from vicinal.service.reports import standing as standings
from vicinal.service.reports.standing import StandingWord, promise_in_short, standing
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


@pytest.mark.parametrize(
    ("misses", "state", "word"),
    [
        ((0.28, 0.75), "current", "unsure"),
        ((0.1, 0.3), "current", "holds"),
        ((0.28, 0.75), "broken", "broken"),
    ],
)
def test_a_range_goes_with_every_rate_and_a_wide_one_holds_nothing(
    misses: tuple[float, float], state: CalibrationState, word: StandingWord, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranges = {"fnir": RateInterval(0.39, *misses, 0.95), "precision": RateInterval(0.9, 0.8, 1.0, 0.95)}
    monkeypatch.setattr(standings, "promised_range", lambda _, name: ranges[name])
    record = CalibrationRecord.model_construct()
    assert standing(Threshold(value=0.5, state=state), "none", None, record).word == word
    low, high = (f"{100 * (1 - one):.0f}" for one in reversed(misses))
    assert (
        promise_in_short(record)
        == f"Of 100 matches 80 to 100 are right; of 100 things {low} to {high} are found"
    )


def test_drift_leads_to_what_can_change_it() -> None:
    found = standing(Threshold(value=0.5, state="current"), "strong", None).sentence
    assert ("Review" in found, "labelled photos" in found, "calibrate again" in found) == (True, True, False)


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
