"""Errors of the calibration package, all below `CalibrationError`."""

from __future__ import annotations

from vicinal.calibration.advice import AdvisedError, advise


class CalibrationError(AdvisedError, ValueError):
    """A calibration cannot be made of these scores, or a target cannot be reached."""


class UnlabelledGalleryError(CalibrationError):
    """No item has a label."""


class OneLabelError(CalibrationError):
    """All images carry one label, so that there are no negative pairs."""


class NotEnoughTrialsError(CalibrationError):
    """Too few trials for a rate; `what` says what a trial is, in the plural."""

    def __init__(self, rate: float, n_trials: int, what: str) -> None:
        # 3 / 0.05 may come out above 60: a whole number of trials is not to be missed by rounding.
        needed = int(-(-(3.0 / rate - 1e-6) // 1.0))
        reason = f"a rate of {rate:g} needs at least {needed:,} {what}, this calibration has {n_trials:,}"
        if n_trials:
            reason += f"; the lowest rate that {n_trials:,} can show is {3.0 / n_trials:.2g}"
        super().__init__(reason)
        self.rate, self.n_trials, self.needed = rate, n_trials, needed
        # What a program reads beside the sentence.
        self.members = {"rate": rate, "n_trials": n_trials, "needed": needed, "trials": what}


class NotEnoughLabelsError(CalibrationError):
    """Too few labels to hold a rate, or to hold it as surely as was asked for.

    Args:
        target: The target in words, such as `FPIR 5 %, sure 95 %`.
        n_labels: Labels at hand.
        needed: Labels that would be enough, for a surer target if no trial of theirs had the event.
        what: What stands under the labels, in the plural.
    """

    def __init__(self, target: str, n_labels: int, needed: int, what: str) -> None:
        super().__init__(
            f"{target} needs {what} of at least {needed:,} labels, this calibration has {n_labels:,}: ",
            advise("add items of other labels, or search for some of them by {queries}"),
        )
        self.n_labels, self.needed = n_labels, needed
        self.members = {"target": target, "n_labels": n_labels, "needed": needed, "trials": what}


class NotEnoughAnswersError(CalibrationError):
    """Too few answered searches for a target; `what` says which are missing, in the plural."""

    def __init__(self, target: str, n_answers: int, needed: int, what: str) -> None:
        super().__init__(
            f"{target} needs answers to at least {needed:,} {what}, there are {n_answers:,}: ",
            advise("answer more of them by {review()}"),
        )
        self.n_answers, self.needed = n_answers, needed
        self.members = {"target": target, "n_answers": n_answers, "needed": needed, "searches": what}


class UnreachableTargetError(CalibrationError):
    """No threshold in [0, 1] holds the target, but the `lowest` or `highest` rate that is `reachable`."""

    def __init__(self, target: str, reachable: float, bound: str, cause: str) -> None:
        super().__init__(
            f"{target} cannot be reached: {cause}; the {bound} that a threshold in [0, 1] reaches is "
            f"{100.0 * reachable:.4g} %"
        )
        self.target, self.reachable = target, reachable
        self.members = {"target": target, "reachable": reachable, "bound": bound}
