"""A calibration on the console: what it promises, what would improve it, and on request all figures."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vicinal.service.cli.console import say

if TYPE_CHECKING:
    from vicinal.models.bundle import BundleManifest
    from vicinal.service.measuring.records.promise import PromiseCheck
    from vicinal.service.measuring.records.record import CalibrationRecord

# Further advice is of little use while the first is not followed.
_MOST_ADVICE = 3


def print_promise(
    record: CalibrationRecord,
    gallery: str,
    bundle: BundleManifest,
    *,
    check: PromiseCheck | None = None,
    details: bool = False,
    places: Sequence[str] = (),
) -> None:
    """Print a calibration for people; the commands in it get the options of `place_words` too."""
    from vicinal.service.reports.promise import advice, tried_promise
    from vicinal.service.reports.text import calibration_lines

    found_by = "".join(f" {shlex.quote(word)}" for word in places)
    for sentence in tried_promise(record, check, bundle.noun):
        say(sentence)
    steps = advice(record, gallery, noun=bundle.noun)[:_MOST_ADVICE]
    if steps:
        say("To improve it, what promises most first:")
    for number, step in enumerate(steps, start=1):
        say(f"  {number}. {step.text}")
        if step.command:
            say(f"     {step.command.replace(' && ', f'{found_by} && ')}{found_by}")
    if details:
        for line in calibration_lines(record, bundle.noun):
            say(line)
    else:
        say(
            f"Threshold {record.threshold:.4f}, calibration {record.id}. All figures: "
            f"vicinal calibration show {record.id} -g {gallery} --details{found_by}"
        )
