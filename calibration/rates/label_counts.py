"""Counts by label: what an error rate rests on, label by label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from vicinal.calibration.arrays import AnyArray, Codes, Floats, Mask
from vicinal.calibration.errors import CalibrationError
from vicinal.calibration.trials import TrialLabels, Trials

RateName = Literal["far", "frr", "fpir", "fnir", "precision"]


@dataclass(frozen=True)
class LabelCounts:
    """Trials of each label, and in how many of them the event of the rate happened."""

    # (L,) trials of each label with the event, such as queries that got a match; no whole numbers where
    # trials have weights.
    events: AnyArray
    trials: AnyArray  # (L,) all trials of each label, above 0
    # 1, or 2 where each trial stands under both of its labels, as negative pairs do.
    labels_per_trial: Literal[1, 2] = 1

    def __post_init__(self) -> None:
        if self.events.shape != self.trials.shape or self.trials.ndim != 1 or not len(self.trials):
            raise CalibrationError(
                f"events and trials have shapes {self.events.shape} and {self.trials.shape}, expected one "
                "count each for at least one label"
            )
        if (self.trials <= 0).any() or (self.events < 0).any() or (self.events > self.trials).any():
            raise CalibrationError("a label has no trials, or more events than trials")

    @property
    def n_labels(self) -> int:
        """Labels with trials."""
        return len(self.trials)

    @property
    def n_events(self) -> int:
        """Trials with the event, each counted once."""
        return round(float(self.events.sum())) // self.labels_per_trial

    @property
    def n_trials(self) -> int:
        """All trials, each counted once."""
        return round(float(self.trials.sum())) // self.labels_per_trial

    @property
    def rate(self) -> float:
        """Share of the trials with the event, in [0, 1]."""
        return min(1.0, float(self.events.sum() / self.trials.sum()))

    @property
    def effective_labels(self) -> float:
        """Labels of equal size that would weigh as evenly: (sum n)^2 / sum n^2 (Kish, 1965), up to L."""
        sizes = self.trials.astype(np.float64)
        return float(sizes.sum() ** 2 / (sizes**2).sum())

    @property
    def leave_one_label_out(self) -> tuple[float, float]:
        """Lowest and highest rate without the trials of one label; the rate itself where there is but one."""
        remaining = self.n_trials - self.trials
        usable = remaining > 0
        if not usable.any():
            return self.rate, self.rate
        rates = (self.n_events - self.events[usable]) / remaining[usable]
        return max(0.0, float(rates.min())), min(1.0, float(rates.max()))

    @classmethod
    def of(cls, is_event: Mask, *codes: Codes, weights: Floats | None = None) -> LabelCounts | None:
        """Count (n,) trials by label, or by two different ones; all alike without weights. None for none."""
        if len(codes) not in (1, 2):
            raise CalibrationError(f"{len(codes)} labels a trial were given, expected one or two")
        size = max(int(one.max(initial=0)) for one in codes) + 1
        if weights is not None:
            # As many in all as there are.
            weights = weights * (len(weights) / max(float(weights.sum()), 1e-300))
        true = None if weights is None else weights[is_event]
        trials = np.stack([np.bincount(one, weights, minlength=size) for one in codes]).sum(axis=0)
        events = np.stack([np.bincount(one[is_event], true, minlength=size) for one in codes]).sum(axis=0)
        present = trials > 0
        return cls(events[present], trials[present], 2 if len(codes) == 2 else 1) if present.any() else None


def label_counts(trials: Trials, rate: RateName, threshold: float) -> LabelCounts | None:
    """Evidence for a rate at a threshold; None where there was nothing to measure it on.

    A precision rests on the returned matches, counted under the labels of their queries.
    """
    labels = trials.labels
    if labels is None:
        raise CalibrationError("counts by label need the labels of the trials")
    if rate == "far":
        return _accepted_pairs(trials, labels, threshold)
    if rate == "frr":
        return LabelCounts.of(trials.mate_scores < threshold, labels.mates)
    if rate == "fpir":
        return LabelCounts.of(
            trials.best_scores_without_mate >= threshold,
            labels.without_mate,
            weights=_weights(trials.without_mate_weights),
        )
    if rate == "fnir":
        return LabelCounts.of(
            trials.best_mate_scores < threshold, labels.best_mates, weights=_weights(trials.best_mate_weights)
        )
    returned = trials.answer_scores >= threshold
    weights = _weights(trials.answer_weights)
    return LabelCounts.of(
        trials.answer_is_mate[returned],
        labels.answers[returned],
        weights=None if weights is None else weights[returned],
    )


def _weights(weights: Floats) -> Floats | None:
    """Weights of trials; None where all count alike."""
    return weights if len(weights) else None


def _accepted_pairs(trials: Trials, labels: TrialLabels, threshold: float) -> LabelCounts | None:
    accepted = trials.non_mate_scores >= threshold
    codes = (labels.non_mate_queries, labels.non_mate_items)
    if trials.low_pairs is None:
        return LabelCounts.of(accepted, *codes)
    n = len(labels.names)
    pairs, events = trials.low_pairs.by_label, trials.low_pairs.reaching(threshold)[:, 0]
    pairs = sum((np.bincount(one, minlength=n) for one in codes), start=pairs)
    events = sum((np.bincount(one[accepted], minlength=n) for one in codes), start=events)
    return LabelCounts(events[pairs > 0], pairs[pairs > 0], labels_per_trial=2)


def impostor_label_effect(
    scores: Floats, labels: AnyArray, query_labels: AnyArray, threshold: float
) -> float:
    """Variance of an FPIR over labels in both roles, by its variance over labels of queries alone.

    In leave-one-out a query without a mate is a photo whose label was taken out, and what it meets are the
    other labels of the same sample. Two labels that are alike meet twice, from either side, and a label that
    is like many answers for all of them. An interval that takes the labels of the queries for a sample leaves
    that out. Both roles go together when a label is left out of the queries and of the gallery alike
    (jackknife over labels of a statistic of pairs; Efron and Stein, 1981).

    The (Q, w) scores of each query's candidates come best first, -inf for padding, without its own label. The
    ratio is at least 1, and 1 where there is nothing to tell it by.
    """
    if not scores.size:
        return 1.0
    first = labels[:, 0]
    is_other = labels != first[:, None]
    answered = scores[:, 0] >= threshold
    still_answered = np.where(is_other, scores, -np.inf).max(axis=1) >= threshold
    names, own = np.unique(np.concatenate([query_labels, first]), return_inverse=True)
    queries, impostors = own[: len(first)], own[len(first) :]
    n = len(names)
    trials = np.bincount(queries, minlength=n)
    events = np.bincount(queries, weights=answered, minlength=n)
    # Queries that are answered with this label alone.
    lost = np.bincount(impostors, weights=answered & ~still_answered, minlength=n)
    rest = len(queries) - trials
    usable = (trials > 0) & (rest > 0)
    if usable.sum() < 2:
        return 1.0
    total = events.sum()
    as_queries = (total - events)[usable] / rest[usable]
    in_both = (total - events - lost)[usable] / rest[usable]
    variance = float(as_queries.var())
    return max(1.0, float(in_both.var()) / variance) if variance > 0.0 else 1.0
