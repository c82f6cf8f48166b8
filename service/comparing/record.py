"""Comparison record: several *variants* of a gallery, each a version searched with one pipeline, on the same
queries, and what follows from it. The first variant, the *present* one, is the active version with the
pipeline that `auto` stands for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from pydantic import Field, StrictBool, StrictInt, field_validator

from vicinal.calibration import Target
from vicinal.calibration.frozen import Frozen, Recorded
from vicinal.service.measuring.evidence import RateEvidence
from vicinal.service.measuring.records.record import CalibrationRecord
from vicinal.service.request_fields import ComparisonOptions
from vicinal.service.search.pipeline import Pipeline
from vicinal.service.words import percent

FigureName = Literal["error", "fnir", "fpir", "hit_rate", "map_at_r", "auroc", "opis"]


class ComparisonRequest(ComparisonOptions):
    """Variants that are compared with the present one, and how."""

    versions: tuple[StrictInt, ...] = Field(
        (), max_length=8, description="Other versions of the gallery, each with its own bundle and pipeline."
    )
    pipelines: StrictBool = Field(
        False, description="Try the usual pipelines on each version, as is done where no version is named."
    )
    group_by: str | None = Field(
        None,
        min_length=1,
        max_length=256,
        description="Try them, deciding by `label` or a metadata key and not as the version's own.",
    )


class PairedFigure(Frozen):
    """A figure of one variant, and its difference to the present one's on the same queries with a 95 %
    interval, by drawing labels; None where that has no such figure.
    """

    value: float
    difference: float | None = None
    low: float | None = None
    high: float | None = None


class ComparedFlips(Frozen):
    """Queries that a variant decides otherwise than the present one, each at its own threshold.

    Attributes:
        n: Queries.
        to_match: Without a match before, with one after.
        to_no_match: With a match before, without one after.
        other_best: With a match in both, the best of which is another item.
        other_label: Of these, those whose best match has another label, or no label to tell.
        flipped: Share that is decided otherwise: to a match, to none, or to a best match of another label.
    """

    n: int
    to_match: int
    to_no_match: int
    other_best: int
    other_label: int
    flipped: RateEvidence


class Variant(Frozen):
    """A version of the gallery, with its bundle, searched with one pipeline.

    Attributes:
        bundle: Fingerprint of the version's bundle.
        calibration: What decides its searches: what is in force for it already, where that holds the target
            or the variant is the present one, else what was found on the queries of the comparison.
        figures: By name: `hit_rate` (R@1) and `map_at_r` of queries with a mate; `fnir` and `fpir` at its
            own threshold; `error`, FNIR (or FPIR, where the target holds FNIR or FRR) at the threshold
            that holds the target on these queries; `auroc` of best scores; `opis` on final scores.
        opis_floor: What equal classes would show; None where it cannot be told.
        flips: Of the `queries`, by name, and of the `pictures` of former releases; none for the present one.
        left_out: Why something is missing: the `calibration`, or what `queries` would tell; what the present
            variant lacks, no other is compared by.
        problem: Why it cannot be put in force; None when it can.
    """

    version: int
    bundle: str
    pipeline: Pipeline
    calibration: CalibrationRecord | None
    figures: dict[FigureName, PairedFigure]
    opis_floor: float | None
    flips: dict[str, ComparedFlips]
    left_out: dict[str, str]
    problem: str | None


class Comparison(Recorded):
    """Several variants of a gallery on the same queries; never changed.

    Attributes:
        id: Its name, that of its job.
        target: What the variants were calibrated for; None where nothing says it.
        n_with_mate: Those with a mate in every variant.
        variants: The present one first.
        recommended: Number of the variant to use.
    """

    format_version: Literal[1] = 1
    id: str
    created_at: datetime
    gallery: str
    request: ComparisonRequest
    target: Target | None
    n_queries: int
    n_with_mate: int
    n_labels: int
    variants: tuple[Variant, ...]
    recommended: int
    reason: str
    warnings: tuple[str, ...]

    @field_validator("request", mode="before")
    @classmethod
    def _of_today(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or isinstance(given.get("pipelines"), bool):
            return given
        # Of a former release, which named pictures and varied pipelines.
        grid = given.get("pipelines")
        tried = {"pipelines": grid is not None, "group_by": grid and grid.get("group_by")}
        return {**given, "pictures": None, **tried}

    @property
    def asked(self) -> Literal["fnir", "fpir"]:
        """The error that `error` is: the one that the target does not hold."""
        return asked_error(self.target)

    @property
    def in_short(self) -> dict[str, Any]:
        """Summary that a job tells of it."""
        told = {"recommended": self.recommended, "reason": self.reason, "summaries": self.summaries}
        return {"comparison": self.id, **told}

    @property
    def summaries(self) -> dict[int, str]:
        """Summary of each other version for people, in one line."""
        return {version: self._summary(version) for version in self.request.versions}

    def _summary(self, version: int) -> str:
        one = next(one for one in self.variants if one.version == version)
        parts = [f"against {self.variants[0].version}"]
        for title, name in _SUMMARIZED:
            figure = one.figures.get(name)
            if figure is not None and figure.difference is not None:
                parts.append(f"{title} {percent(figure.value)} ({100 * figure.difference:+.1f})")
        if "queries" in one.flips:
            parts.append(f"{percent(one.flips['queries'].flipped.rate)} flipped")
        parts.append("calibrated" if one.calibration else "not calibrated")
        return ", ".join(parts)


def asked_error(target: Target | None) -> Literal["fnir", "fpir"]:
    """The error that is compared at a target: the one that it does not hold."""
    return "fpir" if target is not None and target.rate in ("fnir", "frr") else "fnir"


_SUMMARIZED: tuple[tuple[str, FigureName], ...] = (("R@1", "hit_rate"), ("FNIR", "fnir"))
# What a version is judged by unseen, with the sign of what is worse.
_JUDGED: tuple[tuple[str, FigureName, float], ...] = (("FNIR", "fnir", 1.0), ("hit rate", "hit_rate", -1.0))


def recommend(variants: Sequence[Variant], asked: str) -> tuple[int, str]:
    """Number of the variant to use, and why: the lowest error, where its interval excludes chance."""
    name = asked.upper()
    known = [
        (one.figures["error"].value, number)
        for number, one in enumerate(variants)
        if "error" in one.figures and one.calibration is not None and one.problem is None
    ]
    if not known:
        return 0, f"the present variant stays: no variant has a {name} at the target"
    lowest, best = min(known)
    error = variants[best].figures["error"]
    if error.low is None or error.high is None:
        return best, f"the present variant cannot hold the target; this one has the lowest {name}"
    if error.difference is not None and error.difference >= 0.0:
        return 0, f"no variant has a lower {name} than the present one"
    interval = f"{100 * error.low:.1f} to {100 * error.high:.1f} points of {name}"
    if error.high >= 0.0:
        return 0, (
            f"the present variant stays: number {best} has the lowest {name}, {percent(lowest)}, but its "
            f"difference of {interval} does not exclude 0"
        )
    return best, f"it has the lowest {name}; its difference to the present variant is {interval}"


def objection(one: Variant) -> str | None:
    """Reason why a new version is not to be searched unseen; None where it is calibrated, and FNIR and hit
    rate are no worse than the present ones by more than chance.
    """
    if one.problem is not None:
        return f"it cannot be used: {one.problem}"
    if one.calibration is None:
        return f"it has no calibration: {one.left_out.get('calibration')}"
    for title, name, sign in _JUDGED:
        figure = one.figures.get(name)
        if figure is None or figure.low is None or figure.high is None:
            missing = "; ".join(one.left_out.values()) or "the present version has no such figure"
            return f"{title} cannot be compared: {missing}"
        if min(sign * figure.low, sign * figure.high) > 0.0:
            ends = f"{100 * figure.low:+.1f} to {100 * figure.high:+.1f} points"
            return f"its {title} is worse: {ends}"
    return None
