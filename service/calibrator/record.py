"""Calibration record: one threshold, what it was measured on, and what it holds for."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

from vicinal.calibration import Target
from vicinal.service.calibrator.evidence import Evidence
from vicinal.service.scoring.pipeline import Pipeline

__all__ = ["CalibrationRecord", "Rates", "new_calibration_id"]


class Rates(BaseModel):
    """Error rates at the threshold; None where there was nothing to measure it on.

    Attributes:
        far: Share of negative pairs accepted.
        frr: Share of positive pairs rejected.
        fpir: Share of queries without a mate that get any match.
        fnir: Share of queries with a mate that get none of their mates.
        hit_rate_1: Share of queries with a mate whose best candidate is one; no threshold involved.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    far: float | None
    frr: float | None
    fpir: float | None
    fnir: float | None
    hit_rate_1: float | None


class CalibrationRecord(BaseModel):
    """One threshold, what it was measured on, and what it holds for.

    Attributes:
        source: `leave_one_out` over the gallery, labelled `queries`, or set `by_hand`.
        target: The rate that was asked for; None when set by hand.
        threshold: Lowest accepted final score, in full precision.
        pipeline: The pipeline whose scores were measured; the threshold means nothing for another.
        bundle: Fingerprint of the bundle.
        version: Gallery version that was searched.
        n_items: Its size; FPIR grows with the gallery.
        n_negative_pairs: Pairs of different labels that were scored.
        n_positive_pairs: Pairs of one label.
        n_with_mate: Queries with a mate.
        n_without_mate: Queries without; in leave-one-out each query again, with its label taken out.
        n_labels: Labels among the queries.
        n_labels_without_mate: Labels among the queries without a mate: what FPIR really rests on.
        warnings: What could make the rates too good.
        evidence: Intervals and predictions; None when set by hand, and in records of format 1.
        gallery: Name of the gallery; None in records of earlier releases, which are taken at their place.
        scores_sha256: Checksum of the stored scores; None where there are none.
        format_version: 1 for records that know no evidence, which can still be read; 2 for those of today.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format_version: Literal[1, 2] = 1
    id: str
    created_at: datetime
    source: Literal["leave_one_out", "queries", "by_hand"]
    target: Target | None
    threshold: float
    rates: Rates | None
    pipeline: Pipeline
    bundle: str
    version: int
    n_items: int
    n_negative_pairs: int = 0
    n_positive_pairs: int = 0
    n_with_mate: int = 0
    n_without_mate: int = 0
    n_labels: int = 0
    n_labels_without_mate: int = 0
    seed: int = 0
    warnings: tuple[str, ...] = ()
    evidence: Evidence | None = None
    gallery: str | None = None
    scores_sha256: str | None = None


def new_calibration_id() -> str:
    """An id that sorts by time and cannot collide by accident."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"
