"""Comparison schemas: what is known of a candidate version beside the active one, and what was decided."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from vicinal.calibration import CalibrationError, Target
from vicinal.service.calibrator.evidence import RateEvidence

__all__ = [
    "ActivationConditions",
    "CandidateCalibration",
    "ComparedSide",
    "ComparisonOptions",
    "ConditionOutcome",
    "Decision",
    "FlippedDecisions",
    "ItemCounts",
    "OpisFigure",
    "PairedFigure",
    "VersionComparison",
]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ComparisonOptions(_Frozen):
    """How two versions are compared.

    Attributes:
        max_queries: Most items that are searched for as if they were not in the gallery; more are sampled.
        seed: Seed of the sample and of the bootstrap.
        target: What the candidate is calibrated for; by default the target of the active threshold.
        queries: Folder or manifest of pictures below `sources_dir`, whose decisions are compared too.
    """

    max_queries: int = Field(1000, ge=1, le=100_000, description="Sample at most this many items.")
    seed: int = Field(0, ge=0, description="Seed of the sample and of the bootstrap.")
    target: str | None = Field(
        None, description="Target of the candidate's calibration; that of the active one when null."
    )
    queries: str | None = Field(
        None, description="Folder or manifest of pictures below `sources_dir`, searched for in both versions."
    )

    @field_validator("target")
    @classmethod
    def _is_target(cls, text: str | None) -> str | None:
        if text is not None:
            try:
                Target.parse(text)
            except CalibrationError as error:
                raise ValueError(str(error)) from error
        return text


class ActivationConditions(_Frozen):
    """What must hold for a candidate to be activated by itself; each is read at the bad end of its interval.

    Attributes:
        hit_rate_drop_at_most: By how much the hit rate may fall.
        fnir_rise_at_most: By how much FNIR may rise, each version at its own threshold.
        flipped_at_most: Share of the sample queries that may be decided otherwise.
        needs_calibration: Whether the candidate must have a threshold of its own.
    """

    hit_rate_drop_at_most: float | None = Field(None, ge=0.0, le=1.0)
    fnir_rise_at_most: float | None = Field(None, ge=0.0, le=1.0)
    flipped_at_most: float | None = Field(None, ge=0.0, le=1.0)
    needs_calibration: bool = False

    @model_validator(mode="after")
    def _at_least_one(self) -> ActivationConditions:
        if not self.needs_calibration and set(self.model_dump(exclude_none=True)) == {"needs_calibration"}:
            raise ValueError("name at least one condition, or activate = automatic")
        return self


class ItemCounts(_Frozen):
    """Items of both versions, with their live changes.

    Attributes:
        both: Ids in both.
        only_old: Ids in the active version alone.
        only_new: Ids in the candidate alone.
        other_image: Ids in both, with another file behind them.
        other_label: Ids in both, with another label.
    """

    both: int
    only_old: int
    only_new: int
    other_image: int
    other_label: int


class PairedFigure(_Frozen):
    """One figure of both versions on the same queries.

    Attributes:
        old: Of the active version.
        new: Of the candidate.
        difference: new - old.
        low: Lower end of the difference's 95 % interval, by bootstrap over labels.
        high: Upper end.
        n_queries: Queries that count; 0 where the figure is not of queries.
        n_labels: Labels behind them.
    """

    old: float
    new: float
    difference: float
    low: float
    high: float
    n_queries: int
    n_labels: int


class OpisFigure(PairedFigure):
    """OPIS on final scores, with what equal classes would show.

    Attributes:
        old_floor: Floor of the active version's; None where it cannot be told.
        new_floor: Floor of the candidate's.
    """

    old_floor: float | None
    new_floor: float | None


class FlippedDecisions(_Frozen):
    """Sample queries that the two versions decide otherwise, each with its own threshold.

    Attributes:
        n: Sample queries.
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


class CandidateCalibration(_Frozen):
    """The threshold that comes into force with the candidate.

    Attributes:
        calibration: Id of the record; None when there is none.
        target: What it was calibrated for.
        threshold: Lowest accepted score.
        rates: By name, with intervals.
        problem: Why there is none.
        warnings: What could make the rates too good.
    """

    calibration: str | None = None
    target: str | None = None
    threshold: float | None = None
    rates: dict[str, RateEvidence] = Field(default_factory=dict)
    problem: str | None = None
    warnings: tuple[str, ...] = ()


class ComparedSide(_Frozen):
    """One of the two versions.

    Attributes:
        bundle: Fingerprint of its bundle.
        is_served: Whether the bundle is here, so that the version can be searched.
        pipeline: Key of the pipeline that it was searched with.
        calibration: Record of the threshold that decides in it; None without one.
        threshold: That threshold.
    """

    version: int
    bundle: str
    bundle_name: str
    is_served: bool
    pipeline: str
    calibration: str | None
    threshold: float | None


class ConditionOutcome(_Frozen):
    """Whether one condition holds.

    Attributes:
        condition: Its name.
        limit: What was asked for.
        value: The bad end of the interval; None where nothing was measured.
        holds: Whether it does.
        reason: Why, in one sentence.
    """

    condition: str
    limit: float | bool
    value: float | bool | None
    holds: bool
    reason: str


class Decision(_Frozen):
    """Whether the candidate is to be activated by itself.

    Attributes:
        activate: Whether all conditions hold.
        outcomes: Each of them.
        reason: All in one sentence.
    """

    activate: bool
    outcomes: tuple[ConditionOutcome, ...]
    reason: str


class VersionComparison(_Frozen):
    """A candidate version beside the active one; never changed.

    Attributes:
        id: Name of the comparison, and of the calibration that was made for it.
        old: The active version, as it was built.
        new: The candidate.
        n_sampled: Items of the sample: searched for in both, each as if it were not there.
        items: Which items they share.
        hit_rate: Share of sampled items with a mate whose best other item is one (R@1).
        map_at_r: Mean average precision over the first R items, R the number of mates.
        fnir: Share of sampled items with a mate of which no mate reaches the version's threshold.
        opis: How differently the classes fare under one threshold.
        gallery_flips: Decisions on the sampled items.
        query_flips: Decisions on the pictures of `queries`.
        calibration: The candidate's own.
        left_out: Figures that are missing, each with its reason.
        warnings: What makes the comparison worth less.
        decision: By the conditions; None when the candidate waits for a person.
        summary: All in one line.
    """

    format_version: Literal[1] = 1
    id: str
    created_at: datetime
    gallery: str
    old: ComparedSide
    new: ComparedSide
    options: ComparisonOptions
    conditions: ActivationConditions | None
    n_sampled: int
    items: ItemCounts
    hit_rate: PairedFigure | None
    map_at_r: PairedFigure | None
    fnir: PairedFigure | None
    opis: OpisFigure | None
    gallery_flips: FlippedDecisions | None
    query_flips: FlippedDecisions | None
    calibration: CandidateCalibration
    left_out: dict[str, str]
    warnings: tuple[str, ...]
    decision: Decision | None
    summary: str
