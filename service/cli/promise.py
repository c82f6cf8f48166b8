"""A calibration on the console: what it promises, what would improve it, and on request all figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vicinal.service.cli.console import say

if TYPE_CHECKING:
    from vicinal.service.calibrator.record import CalibrationRecord

__all__ = ["print_promise"]

# Further advice is of little use while the first is not followed.
_MOST_ADVICE = 3


def print_promise(record: CalibrationRecord, gallery: str, *, details: bool = False) -> None:
    """Print a calibration for people.

    Args:
        record: The calibration.
        gallery: Name of its gallery.
        details: Also print all figures.
    """
    from vicinal.service.reports.promise import advice, promise
    from vicinal.service.reports.text import calibration_lines

    for sentence in promise(record):
        say(sentence)
    steps = advice(record, gallery)[:_MOST_ADVICE]
    if steps:
        say("To improve it, what promises most first:")
    for number, step in enumerate(steps, start=1):
        say(f"  {number}. {step.text}")
        if step.command:
            say(f"     {step.command}")
    if details:
        for line in calibration_lines(record):
            say(line)
    else:
        say(
            f"Threshold {record.threshold:.4f}, calibration {record.id}. All figures: "
            f"vicinal calibration show {record.id} -g {gallery} --details"
        )
