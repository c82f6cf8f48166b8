"""Report of a fitting: the figures of what changed."""

from __future__ import annotations

from pydantic import ConfigDict

from vicinal.calibration.frozen import Frozen
from vicinal.models.refiner_manifest import RerankVerdict, Sides


class Interval(Frozen):
    """Share with its 95 % interval over labels."""

    value: float
    low: float
    high: float


class HeldOutFigures(Frozen):
    """Figures of the held-out labels, of a network that never saw them.

    Attributes:
        n_held_out_photos: Photos that were searched for.
        n_held_out_labels: Their labels, with two photos or more.
        fpir: Rate of wrong matches that both bundles are compared at.
        found_before: Share of the photos of things that are there which the bundle before finds.
        found_after: The same with the new bundle.
        found_apart: The same with look-alikes of a label kept apart, as photos of other days are.
        found_alone: As `found_after`, in a gallery of as many labels as were given, none of them learned
            from: measured in one of the held-out labels alone, at the threshold that so many would need.
        found_alone_apart: As `found_apart`, in that gallery.
        gain: The difference of the first two, paired over labels.
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
    found_apart: Interval
    found_alone: Interval
    found_alone_apart: Interval
    gain: Interval
    hit_rate_before: float
    hit_rate_after: float
    map_at_r_before: float
    map_at_r_after: float
    refine: Sides | None
    rerank: RerankVerdict | None

    @property
    def range_beside(self) -> tuple[float, float]:
        """Range of what is found beside the other labels, from look-alikes kept apart to together."""
        return min(self.found_apart.low, self.found_after.low), self.found_after.high

    @property
    def range_alone(self) -> tuple[float, float]:
        """The same in a gallery of labels that were not learned from."""
        return min(self.found_alone_apart.low, self.found_alone.low), self.found_alone.high


class PhotosUsed(Frozen):
    """Photos that are learned from, and why others are not.

    Attributes:
        n_found: All that were given.
        n_photos: Photos that it learns from, those held out in the trial among them.
        n_labels: Their labels.
        n_single: Labels with one photo, which stand for things that are not there.
        n_unlabelled: Photos without a label, left out.
        n_repeated: Files that are there twice, left out.
        n_unusable: Files without a picture that can be read, left out.
        n_spare: Photos of labels that have more than there is time for, left out.
        per_label: The most photos of a label that there is time for; None for all.
    """

    n_found: int
    n_photos: int
    n_labels: int
    n_single: int
    n_unlabelled: int
    n_repeated: int
    n_unusable: int
    n_spare: int
    per_label: int | None


class FitReport(HeldOutFigures, PhotosUsed):
    """Report of a fitting, and of a trial without some of the labels that said what it changes.

    Attributes:
        losses: Losses that were learned with, each in a training of its own; the weights are their mean.
        share: How far from the first weights to the trained ones the kept weights lie.
        seconds: Seconds by stage, of the last start of the run.
    """

    # Those of an earlier version have further fields.
    model_config = ConfigDict(extra="ignore")

    bundle: str
    name: str
    fingerprint: str
    losses: tuple[str, ...]
    share: float
    views: int
    steps: int
    precision: str | None
    seconds: dict[str, float]

    @property
    def helps(self) -> bool:
        """True if more is found than before."""
        return self.gain.value > 0.0
