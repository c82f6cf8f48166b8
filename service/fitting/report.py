"""Report of a fitting: what changed, in figures for a script and in words for people."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from vicinal.models.refiner_manifest import RerankVerdict, Sides
from vicinal.service.words import number_of


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Interval(_Frozen):
    """A share with its 95 % interval over labels.

    Attributes:
        value: As measured.
        low: Lower end.
        high: Upper end.
    """

    value: float
    low: float
    high: float


class HeldOutFigures(_Frozen):
    """What the held-out labels say of a network that never saw them.

    Attributes:
        n_held_out_photos: Photos that were searched for.
        n_held_out_labels: Their labels, with two photos or more.
        fpir: Rate of wrong matches that both bundles are compared at.
        found_before: Share of the photos of things that are there which the bundle before finds.
        found_after: The same with the new bundle.
        gain: The difference, paired over labels.
        hit_rate_before: Share of them whose first answer is right, before.
        hit_rate_after: The same with the new bundle.
        map_at_r_before: MAP@R before.
        map_at_r_after: MAP@R with the new bundle.
        refine: What its refiner refines by default; None without a refiner.
        rerank: Whether to re-rank by default; None without a refiner.
    """

    n_held_out_photos: int
    n_held_out_labels: int
    fpir: float
    found_before: Interval
    found_after: Interval
    gain: Interval
    hit_rate_before: float
    hit_rate_after: float
    map_at_r_before: float
    map_at_r_after: float
    refine: Sides | None
    rerank: RerankVerdict | None


class FitReport(HeldOutFigures):
    """What a fitting did, and what a trial without some of the labels said that it changes.

    Attributes:
        bundle: Folder of the new bundle.
        name: Its name.
        fingerprint: Its fingerprint.
        n_photos: Photos that it learned from, those held out in the trial among them.
        n_labels: Their labels.
        n_single: Labels with one photo, which stood for things that are not there.
        n_unlabelled: Photos without a label, left out.
        n_repeated: Files that are there twice, left out.
        n_unusable: Files that are no picture, left out.
        n_spare: Photos of labels that have more than there is time for, left out.
        share: How far from the first weights to the trained ones the kept weights lie.
        views: Views of each photo.
        steps: Steps of training.
        precision: Form of the network.
        seconds: Seconds by stage, of the last start of the run.
    """

    bundle: str
    name: str
    fingerprint: str
    n_photos: int
    n_labels: int
    n_single: int
    n_unlabelled: int
    n_repeated: int
    n_unusable: int
    n_spare: int
    share: float
    views: int
    steps: int
    precision: str | None
    seconds: dict[str, float]

    @property
    def helps(self) -> bool:
        """Whether more is found than before."""
        return self.gain.value > 0.0


def report_lines(report: FitReport) -> list[str]:
    """What to tell people."""
    before, after = 100 * report.found_before.value, 100 * report.found_after.value
    ends = f"[95 %: {100 * report.found_after.low:.0f} to {100 * report.found_after.high:.0f}]"
    lines = [
        f"Of 100 photos of things you have, {before:.0f} were found before, {after:.0f} now {ends}, at the "
        f"same rate of wrong matches ({100 * report.fpir:.2g} in 100).",
        f"The first answer was right for {100 * report.hit_rate_before:.0f} of 100 before, for "
        f"{100 * report.hit_rate_after:.0f} now.",
        f"Measured in a trial that learned without {report.n_held_out_labels:,} of the labels, on their "
        f"{report.n_held_out_photos:,} photos, beside the other labels. The new bundle has learned from all.",
        "The later photos of each label, by file name, were searched among its earlier ones, and the other "
        "way round. Where names do not follow time, photos of another day are found less often than this.",
    ]
    if not report.helps:
        lines.append("It did not help: stay with the bundle that you have.")
    elif report.gain.low <= 0.0:
        lines.append(
            f"The gain may be chance (95 %: {100 * report.gain.low:+.0f} to {100 * report.gain.high:+.0f}): "
            "compare below before you use it."
        )
    lines.append(
        f"Learned from {number_of(report.n_photos, 'photo')} of {number_of(report.n_labels, 'label')}."
    )
    for n, what, which in (
        (
            report.n_single,
            "label",
            "with one photo: nothing to learn from, taken for what you do not have",
        ),
        (
            report.n_spare,
            "photo",
            "left out for want of time, of labels that have most: more --minutes take more",
        ),
        (report.n_unlabelled, "photo", "without a label, left out"),
        (report.n_repeated, "repeated file", "left out"),
        (report.n_unusable, "file", "without a picture that can be read, left out"),
    ):
        if n:
            lines.append(f"  {number_of(n, what)} {which}")
    return [*lines, f"Bundle: {report.bundle}"]


def next_commands(
    report: FitReport,
    source: str | None,
    gallery: str | None,
    data_dir: Path | None,
    bundle: Path | None = None,
) -> list[str]:
    """What to do with the new bundle; nothing where it does not help.

    Args:
        source: Folder or manifest of the photos; None for a gallery's own.
        gallery: The gallery that it was fitted to; None without one.
    """
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
