"""Standing: how far what a gallery promises can be relied on, in a word and a sentence."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from vicinal.service.measuring.drift import DriftLevel
from vicinal.service.measuring.records.record import CalibrationRecord, promised_range
from vicinal.service.search.answers import Threshold
from vicinal.service.words import counted

StandingWord = Literal["holds", "unsure", "broken", "drifting", "never_measured", "by_hand", "unusable"]

_SENTENCES: dict[StandingWord, str] = {
    "holds": "What was measured holds for the gallery as it is.",
    "unsure": "The gallery has changed since it was measured: calibrate it again.",
    "broken": "New photos were tried, and what was promised does not hold: calibrate with these.",
    "drifting": "Searches no longer look like those that it was measured with: answer some of them in "
    "Review, or calibrate with labelled photos like them.",
    "never_measured": "Nobody has measured yet how often its answers are right.",
    "by_hand": "Somebody set how sure a match has to be: nobody measured how often that is right.",
}
# Widest range of what is found that holds: answers to a hundred searches leave a narrower one.
_WIDEST = 0.3
_WIDE = (
    "What was measured leaves open how many are found: answer searches in Review, or calibrate with labelled "
    "photos of another day."
)


class Standing(BaseModel, frozen=True):
    """Standing of a gallery's promise: how far it can be relied on."""

    word: StandingWord = Field(
        description="`holds`: measured, and nothing speaks against it; `unsure`: the gallery has changed "
        "since, or the range of what is found is wide; `broken`: new photos were tried, and it does not "
        "hold; `drifting`: searches are other ones than then; `never_measured`; `by_hand`: somebody chose "
        "the threshold; `unusable`: its record cannot be used."
    )
    sentence: str = Field(description="The same for people, with what would help.")


def standing(
    threshold: Threshold | None,
    drift: DriftLevel,
    problem: str | None,
    record: CalibrationRecord | None = None,
) -> Standing:
    """Standing of a threshold and its record, None where a `problem` keeps that from being used."""
    if problem is not None or threshold is None:
        return Standing(word="unusable", sentence=f"Its calibration cannot be used: {problem}")
    word = _word(threshold, drift)
    found = None if record is None else promised_range(record, "fnir")
    if word == "holds" and found is not None and found.high - found.low > _WIDEST:
        return Standing(word="unsure", sentence=_WIDE)
    return Standing(word=word, sentence=_SENTENCES[word])


def _word(threshold: Threshold, drift: DriftLevel) -> StandingWord:
    if threshold.state == "broken":
        return "broken"
    if threshold.state == "by_hand":
        return "by_hand"
    if threshold.state in ("none", "default"):
        return "never_measured"
    if drift == "strong":
        return "drifting"
    return "unsure" if threshold.state == "stale" else "holds"


def promise_in_short(record: CalibrationRecord) -> str | None:
    """Line on matches that are right and things that are found, as ranges; None where none was measured."""
    right, missed = promised_range(record, "precision"), promised_range(record, "fnir")
    parts = []
    if right is not None:
        parts.append(f"of 100 matches {counted(right.low)} to {counted(right.high)} are right")
    if missed is not None:
        parts.append(f"of 100 things {counted(1 - missed.high)} to {counted(1 - missed.low)} are found")
    said = "; ".join(parts)
    return f"{said[0].upper()}{said[1:]}" if said else None
