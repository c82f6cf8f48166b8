"""Record of a calibration, and the scores that it was made from, to try other thresholds on. Of pairs and
candidates at most a million each are kept, those next to the decision; beyond them no counts are given.
"""

from __future__ import annotations

import io
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal, Self

import numpy as np

from vicinal.calibration import (
    CalibrationError,
    LabelCounts,
    RateInterval,
    Target,
    TrialLabels,
    Trials,
    choose_threshold,
)
from vicinal.calibration.arrays import AnyArray, Codes, Floats, Ints, Mask, Objects
from vicinal.calibration.frozen import Frozen, Recorded
from vicinal.calibration.rates.label_counts import RateName
from vicinal.service.errors import CalibrationRecordError
from vicinal.service.measuring.evidence import Apart, Evidence
from vicinal.service.search.pipeline import Pipeline

CalibrationSource = Literal["leave_one_out", "queries", "searches", "answers", "by_hand"]


class Rates(Frozen):
    """Error rates at the threshold; None where there was nothing to measure it on.

    Attributes:
        far: Share of negative pairs accepted.
        frr: Share of positive pairs rejected.
        fpir: Share of queries without a mate that get any match.
        fnir: Share of queries with a mate that get none of their mates.
        hit_rate_1: Share of queries with a mate whose best candidate is one; no threshold involved.
    """

    far: float | None
    frr: float | None
    fpir: float | None
    fnir: float | None
    hit_rate_1: float | None


class CalibrationRecord(Recorded):
    """Threshold, what it was measured on, and what it holds for.

    Attributes:
        source: `leave_one_out` over the gallery, labelled `queries`, answers to `searches` that a service
            kept, `answers` about pairs of photos, or set `by_hand`.
        target: The rate that was asked for; None when set by hand.
        threshold: Lowest accepted final score, in full precision.
        pipeline: The pipeline whose scores were measured; the threshold means nothing for another.
        bundle: Fingerprint of the bundle.
        version: Gallery version that was searched.
        n_items: Its size; FPIR grows with the gallery.
        n_with_mate: Queries with a mate.
        n_without_mate: Queries without; in leave-one-out each query again, with its label taken out.
        n_labels: Labels among the queries.
        warnings: What could make the rates too good.
        evidence: Intervals; None when set by hand, and in records of format 1.
        gallery_id: Its identity, which it keeps under another name; None before the record is kept.
        format_version: 1 for records that know no evidence, which can still be read; 2 for those of today.
    """

    format_version: Literal[1, 2] = 1
    id: str
    created_at: datetime
    source: CalibrationSource
    target: Target | None
    threshold: float
    rates: Rates | None
    pipeline: Pipeline
    bundle: str
    version: int
    n_items: int
    n_with_mate: int = 0
    n_without_mate: int = 0
    n_labels: int = 0
    seed: int = 0
    warnings: tuple[str, ...] = ()
    evidence: Evidence | None = None
    gallery: str | None = None
    gallery_id: str | None = None


def promised_range(record: CalibrationRecord, rate: RateName) -> RateInterval | None:
    """Rate as measured, with the 95 % range that photos of another day will show; None where not measured."""
    found = None if record.evidence is None else record.evidence.rates.get(rate)
    if found is None or record.evidence is None:
        return None
    wider = record.evidence.another_day.get(rate, found)
    return RateInterval(found.rate, wider.low, wider.high, 0.95)


def new_calibration_id() -> str:
    """An id that sorts by time and cannot collide by accident."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


# The scores of each rate in `Trials`, and the labels that they stand under in `TrialLabels`.
_TRIALS: dict[RateName, tuple[str, ...]] = {
    "far": ("non_mate_scores", "non_mate_queries", "non_mate_items"),
    "frr": ("mate_scores", "mates"),
    "fpir": ("best_scores_without_mate", "without_mate"),
    "fnir": ("best_mate_scores", "best_mates"),
    "precision": ("answer_scores", "answers"),
}
# How much each trial counts.
_WEIGHTS: dict[RateName, str] = {
    "fpir": "without_mate_weights",
    "fnir": "best_mate_weights",
    "precision": "answer_weights",
}
# Rates whose event is a score below the threshold: of these the lowest scores are kept.
_REJECTIONS = ("frr", "fnir")
_MOST_KEPT = 1_000_000


@dataclass(frozen=True)
class KeptTrials:
    """Trials of one rate: (n,) kept scores, (1 or 2, n) `codes` of labels, (L,) `totals` of kept and others.
    `is_mate` is empty but for a precision, `weights` are where all count alike.
    """

    scores: Floats
    codes: Codes
    totals: Ints
    is_mate: Mask
    weights: Floats

    @property
    def n(self) -> int:
        """All trials."""
        return int(self.totals.sum()) // len(self.codes)

    @property
    def is_whole(self) -> bool:
        """Tell whether every trial was kept."""
        return len(self.scores) == self.n

    @classmethod
    def of(cls, trials: Trials, labels: TrialLabels, rate: RateName) -> Self:
        """Keep the highest scores of a rate's trials, or the lowest."""
        of_scores, *of_labels = _TRIALS[rate]
        scores: Floats = getattr(trials, of_scores)
        codes: list[Codes] = [getattr(labels, name) for name in of_labels]
        totals = np.sum([np.bincount(one, minlength=len(labels.names)) for one in codes], axis=0)
        if rate == "far" and trials.low_pairs is not None:
            totals = totals + trials.low_pairs.by_label
        kept = np.arange(len(scores))
        if len(scores) > _MOST_KEPT:
            order = np.argpartition(scores if rate in _REJECTIONS else -scores, _MOST_KEPT)
            kept = np.sort(order[:_MOST_KEPT])
        flags, weights = np.empty(0, np.bool_), np.empty(0)
        if rate == "precision":
            flags = trials.answer_is_mate[kept]
        counted = getattr(trials, _WEIGHTS[rate]) if rate in _WEIGHTS else weights
        weights = counted[kept] if len(counted) else weights
        return cls(scores[kept], np.stack([one[kept] for one in codes]), totals, flags, weights)


@dataclass(frozen=True)
class StoredArrays:
    """Numbers and texts that are kept as a compressed `.npz` archive; `what` they are stands in errors."""

    what: ClassVar[str]

    def to_bytes(self) -> bytes:
        """The archive."""
        stream = io.BytesIO()
        np.savez_compressed(stream, **self._arrays())
        return stream.getvalue()

    @classmethod
    def from_bytes(cls, stored: bytes) -> Self:
        """Read what `to_bytes` gave."""
        try:
            with np.load(io.BytesIO(stored), allow_pickle=False) as arrays:
                return cls._of_arrays(arrays)
        except KeyError as error:
            # Of a former release.
            raise CalibrationRecordError(f"these are no {cls.what}: {error}") from error

    def _arrays(self) -> dict[str, Any]:
        return {name: _stored(value) for name, value in vars(self).items()}

    @classmethod
    def _of_arrays(cls, arrays: Mapping[str, AnyArray]) -> Self:
        return cls(
            **{one.name: _read(arrays[one.name], is_text=one.type == "Objects") for one in fields(cls)}
        )


def _stored(value: Any) -> Any:
    """An array as it is stored; text of numpy gives each the room of the longest."""
    is_text = isinstance(value, np.ndarray) and value.dtype.kind in "OU"
    return np.frombuffer(json.dumps(value.tolist()).encode(), np.uint8) if is_text else value


def _read(value: AnyArray, *, is_text: bool) -> Any:
    if is_text:
        return np.array(json.loads(value.tobytes()), dtype=object)
    return value if value.ndim else value.item()


@dataclass(frozen=True)
class StoredScores(StoredArrays):
    """Scores of one calibration by rate (`calibration.Trials`), the (Q,) best scores of queries, and its
    second reading, where there is one.
    """

    what: ClassVar[str] = "stored scores"
    names: Objects
    top_scores: Floats
    trials: dict[RateName, KeptTrials]
    apart: Apart | None = None

    @classmethod
    def of(cls, trials: Trials, top_scores: Floats, apart: Apart | None = None) -> Self:
        """Keep what a calibration was made from."""
        if trials.labels is None:
            raise CalibrationError("scores are stored with labels, these trials carry none")
        kept = {rate: KeptTrials.of(trials, trials.labels, rate) for rate in _TRIALS}
        return cls(trials.labels.names, np.asarray(top_scores, np.float64), kept, apart)

    def covers(self, rate: RateName, threshold: float) -> bool:
        """Tell whether the kept scores count a rate exactly at a threshold."""
        kept = self.trials[rate]
        if kept.is_whole:
            return True
        if rate in _REJECTIONS:
            return threshold <= float(kept.scores.max())
        return threshold > float(kept.scores.min())

    def counts(self, rate: RateName, threshold: float) -> LabelCounts | None:
        """Counts behind a rate at a threshold; None without trials, or where too few scores were kept."""
        kept = self.trials[rate]
        if not self.covers(rate, threshold):
            return None
        if rate == "precision":
            returned = kept.scores >= threshold
            weights = kept.weights[returned] if len(kept.weights) else None
            return LabelCounts.of(kept.is_mate[returned], kept.codes[0][returned], weights=weights)
        is_event = kept.scores < threshold if rate in _REJECTIONS else kept.scores >= threshold
        if len(kept.weights):
            return LabelCounts.of(is_event, kept.codes[0], weights=kept.weights)
        n = len(kept.totals)
        events = np.stack([np.bincount(one[is_event], minlength=n) for one in kept.codes]).sum(axis=0)
        present = kept.totals > 0
        if not present.any():
            return None
        return LabelCounts(events[present], kept.totals[present], 2 if len(kept.codes) == 2 else 1)

    def choose_threshold(self, target: Target, starting: float | None = None) -> float:
        """The threshold that a calibration for another target would have chosen on these scores; `starting`
        is the bundle's own (`ThresholdChoice`).
        """
        needed: tuple[RateName, ...] = ("far", "frr") if target.rate == "utility" else (target.rate,)
        for rate in needed:
            kept = self.trials[rate]
            if not kept.is_whole:
                raise CalibrationError(
                    f"{target} needs all {kept.n:,} scores, the record keeps {len(kept.scores):,} of them: "
                    "calibrate for it without activating it"
                )
        trials = self._as_trials()
        threshold = choose_threshold(trials, target)
        chosen = None if self.apart is None else self.apart.choose(trials, target, threshold, starting)
        return threshold if chosen is None else chosen.threshold

    def _arrays(self) -> dict[str, Any]:
        kept = {
            f"{rate}_{name}": value for rate, one in self.trials.items() for name, value in vars(one).items()
        }
        apart = {} if self.apart is None else {f"apart_{name}": one for name, one in vars(self.apart).items()}
        return {"names": _stored(self.names), "top_scores": self.top_scores, **kept, **apart}

    @classmethod
    def _of_arrays(cls, arrays: Mapping[str, AnyArray]) -> Self:
        names = [one.name for one in fields(KeptTrials)]
        kept = {rate: KeptTrials(*(arrays[f"{rate}_{name}"] for name in names)) for rate in _TRIALS}
        labels = _read(arrays["names"], is_text=True)
        apart = Apart(arrays["apart_best"], arrays["apart_strangers"]) if "apart_best" in arrays else None
        return cls(labels, arrays["top_scores"], kept, apart)

    def _as_trials(self) -> Trials:
        scores: dict[str, Any] = {}
        codes: dict[str, Codes] = {}
        for rate, (of_scores, *of_labels) in _TRIALS.items():
            scores[of_scores] = self.trials[rate].scores
            codes |= zip(of_labels, self.trials[rate].codes, strict=True)
        answers = self.trials["precision"]
        return Trials(
            **scores,
            answer_is_mate=answers.is_mate,
            answer_weights=answers.weights,
            best_mate_weights=self.trials["fnir"].weights,
            without_mate_weights=self.trials["fpir"].weights,
            labels=TrialLabels(self.names, **codes),
        )
