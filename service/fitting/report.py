"""Report of a fitting, in words for people."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vicinal.service.words import number_of

if TYPE_CHECKING:
    from vicinal.service.training import FitReport, PhotosUsed


def report_lines(report: FitReport) -> list[str]:
    """Lines for people."""
    before, after = 100 * report.found_before.value, 100 * report.found_after.value
    beside, alone = (
        f"[95 %: {100 * low:.0f} to {100 * high:.0f}]"
        for low, high in (report.range_beside, report.range_alone)
    )
    lines = [
        f"Of 100 photos of things you have, {before:.0f} were found before, {after:.0f} now {beside}, at the "
        f"same rate of wrong matches ({100 * report.fpir:.2g} in 100).",
        f"The first answer was right for {100 * report.hit_rate_before:.0f} of 100 before, for "
        f"{100 * report.hit_rate_after:.0f} now.",
        f"Measured in a trial that learned without {report.n_held_out_labels:,} of the labels, on their "
        f"{report.n_held_out_photos:,} photos, beside the other labels. The new bundle has learned from all.",
        f"In a gallery of {number_of(report.n_labels, 'label')} that it has not learned from, "
        f"{100 * report.found_alone.value:.0f} of 100 would be found {alone}.",
        "The later photos of each label, by file name, were searched among its earlier ones, and the other "
        "way round. The ranges begin where look-alikes of a label are kept apart, too: where names do not "
        "follow time, photos of another day are like that.",
    ]
    if not report.helps:
        lines.append("It did not help: stay with the bundle that you have.")
    elif report.gain.low <= 0.0:
        lines.append(
            f"The gain may be chance (95 %: {100 * report.gain.low:+.0f} to {100 * report.gain.high:+.0f}): "
            "compare below before you use it."
        )
    return [
        *lines,
        *use_lines(report, "Learned"),
        f"Bundle: {report.bundle}",
    ]


def use_lines(used: PhotosUsed, verb: str) -> list[str]:
    """Lines for people: how many photos are learned from, and why others are not."""
    found, learned = number_of(used.n_found, "photo"), f"{used.n_photos:,} of"
    lines = [f"{verb} from {learned} {found}, of {number_of(used.n_labels, 'label')}."]
    for n, what, which in (
        (
            used.n_single,
            "label",
            "with one photo: nothing to learn from, taken for what you do not have",
        ),
        (
            used.n_spare,
            "photo",
            f"left out for want of time, which allows {used.per_label} a label: more --minutes take more",
        ),
        (used.n_unlabelled, "photo", "without a label, left out"),
        (used.n_repeated, "repeated file", "left out"),
        (used.n_unusable, "file", "without a picture that can be read, left out"),
    ):
        if n:
            lines.append(f"  {number_of(n, what)} {which}")
    return lines


def next_commands(
    report: FitReport,
    source: str | None,
    gallery: str | None,
    data_dir: Path | None,
    bundle: Path | None = None,
) -> list[str]:
    """Commands for the new bundle; none where it does not help."""
    if not report.helps:
        return []
    options = [] if data_dir is None else ["--data-dir", str(data_dir)]
    if gallery is None:
        return [
            _command(["index", source or "photos", "--gallery", "shop", "--bundle", report.bundle, *options])
        ]
    before = options if bundle is None else ["--bundle", str(bundle), *options]
    places = f"VICINAL_BUNDLES_DIR={shlex.quote(str(Path(report.bundle).parent))} "
    index = ["index", *([source] if source else []), "--gallery", gallery, "--bundle", report.bundle]
    return [
        _command([*index, "--no-activate", *options]),
        f"{places}{_command(['compare', 'VERSION', '--gallery', gallery, *before])}",
        f"{places}{_command(['use', 'COMPARISON', '--gallery', gallery, *before])}",
    ]


def _command(words: Sequence[str]) -> str:
    return shlex.join(["vicinal", *words])
