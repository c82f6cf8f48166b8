"""Errors of the refine package, all below `RefineError`."""

from __future__ import annotations

from vicinal.calibration.advice import AdvisedError, advise


class RefineError(AdvisedError):
    """Root of the package's errors."""


class RefinerNotFoundError(RefineError, LookupError):
    """The bundle has no context refiner."""

    def __init__(self, bundle: str) -> None:
        super().__init__(
            f"bundle '{bundle}' has no refiner: ",
            advise("train one with {train_refiner()}, or search without refinement"),
        )


class RefinerMismatchError(RefineError, ValueError):
    """The refiner was trained on the embeddings of another bundle."""

    def __init__(self, bundle: str, expected: str, actual: str) -> None:
        super().__init__(
            f"the refiner in bundle '{bundle}' was trained on the embeddings of bundle {actual}, this one "
            f"makes those of {expected}: ",
            advise("train it again with {train_refiner()}"),
        )


class RefinementError(RefineError, ValueError):
    """Embeddings, contexts or a number of steps that the refiner cannot take."""


class RefinerTrainingError(RefineError, ValueError):
    """Embeddings that no refiner can be trained or validated on."""
