"""Evaluation of a labelled set: every figure that its roles allow, by the same code for all test sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from vicinal.calibration import CalibrationError, OpisFloor, opis_floor
from vicinal.models.evaluation.clustering import clustering_nmi
from vicinal.models.evaluation.metrics import RetrievalMetrics
from vicinal.models.evaluation.search_set import SearchSet
from vicinal.models.similarity import FloatArray, normalize

__all__ = ["Evaluation", "EvaluationSettings", "Part", "evaluate"]

Part = Literal["nmi", "opis"]

_RETRIEVAL = ("r_precision", "map_at_r", "mean_average_precision", "map_at_1000")
_COUNTS = ("n_gallery", "n_queries", "n_absent", "n_without_mate", "n_classes")


@dataclass(frozen=True)
class EvaluationSettings:
    """What to measure.

    Attributes:
        ks: Ranks of the hit rates and recalls.
        parts: What is measured besides retrieval; each takes time of its own on large sets.
        n_repetitions: Simulated worlds behind the sampling floor of OPIS.
        seed: Seed of the clustering and of the simulation.
    """

    ks: tuple[int, ...] = (1, 2, 4, 8)
    parts: tuple[Part, ...] = ("nmi", "opis")
    n_repetitions: int = 50
    seed: int = 0


@dataclass(frozen=True)
class Evaluation:
    """Figures of one set.

    Attributes:
        retrieval: Retrieval metrics of the queries that have a mate.
        auroc: How well the top similarity tells queries with a mate from those without one; None where
            there are none of one kind.
        nmi: Of k-means clusters of all searched and searching images, absent ones aside; None if not asked.
        opis: OPIS and its sampling floor over all pairs of the same images; None if not asked or impossible.
        n_gallery: Images that are searched.
        n_queries: Images that are searched for, absent ones aside.
        n_absent: Images with the role `absent`.
        n_without_mate: Queries and absent images without a mate.
        n_classes: Labels of the searched and searching images, absent ones aside.
        notes: Why a figure is missing.
    """

    retrieval: RetrievalMetrics
    auroc: float | None
    nmi: float | None
    opis: OpisFloor | None
    n_gallery: int
    n_queries: int
    n_absent: int
    n_without_mate: int
    n_classes: int
    notes: tuple[str, ...] = ()

    @property
    def figures(self) -> dict[str, float]:
        """All figures by name, flat, without those that are missing."""
        retrieval = self.retrieval
        figures = {f"hit_rate_{k}": rate for k, rate in retrieval.hit_rate.items()}
        figures |= {f"recall_{k}": rate for k, rate in retrieval.recall.items()}
        figures |= {name: getattr(retrieval, name) for name in _RETRIEVAL}
        figures |= {name: value for name in ("nmi", "auroc") if (value := getattr(self, name)) is not None}
        figures |= {} if self.opis is None else _opis_figures(self.opis)
        return figures | {name: float(getattr(self, name)) for name in _COUNTS}


def evaluate(
    embeddings: npt.ArrayLike,
    labels: npt.ArrayLike,
    roles: npt.ArrayLike | None = None,
    *,
    settings: EvaluationSettings | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Measure a labelled set.

    Args:
        embeddings: (n, d), normalized or not.
        labels: (n,) class labels.
        roles: (n,) roles as in `models.datasets.LabelledFile`. Where there is a `gallery`, each `query` and
            `absent` image searches it, and other images play no part. Where there is none, all `train` and
            `test` images are searched among themselves, and `absent` ones search them. None takes all
            for `test`.
        settings: What to measure; the defaults of `EvaluationSettings` when None.
        on_progress: Called after each step with the steps done and all steps.

    Raises:
        EvaluationError: Lengths differ, a role is unknown or contradicts the labels, or no query has a mate.
        EmbeddingError: An embedding is zero or not finite.
    """
    settings = settings or EvaluationSettings()
    unit, names = normalize(embeddings), np.asarray(labels)
    search = SearchSet.of(unit, names, roles)
    report = on_progress or (lambda _done, _total: None)
    n_steps = 2 + len(settings.parts)
    report(0, n_steps)
    retrieval = search.retrieval(settings.ks)
    report(1, n_steps)
    auroc, n_without_mate = search.auroc()
    report(2, n_steps)
    unit, names = unit[search.known], names[search.known]
    nmi = clustering_nmi(unit, names, seed=settings.seed) if "nmi" in settings.parts else None
    report(n_steps - ("opis" in settings.parts), n_steps)
    opis, notes = _opis(unit, names, settings)
    report(n_steps, n_steps)
    return Evaluation(
        retrieval=retrieval,
        auroc=auroc,
        nmi=nmi,
        opis=opis,
        n_gallery=int(search.gallery.sum()),
        n_queries=int(search.queries.sum()),
        n_absent=int(search.absent.sum()),
        n_without_mate=n_without_mate,
        n_classes=len(np.unique(names)),
        notes=notes,
    )


def _opis(
    unit: FloatArray, labels: npt.NDArray[np.generic], settings: EvaluationSettings
) -> tuple[OpisFloor | None, tuple[str, ...]]:
    if "opis" not in settings.parts:
        return None, ()
    try:
        return opis_floor(unit, labels, n_repetitions=settings.n_repetitions, seed=settings.seed), ()
    except CalibrationError as error:
        return None, (f"OPIS is not measured: {error}",)


def _opis_figures(floor: OpisFloor) -> dict[str, float]:
    return {
        "opis": floor.measured.opis,
        "opis_floor": floor.opis,
        "opis_floor_spread": floor.opis_spread,
        "epsilon_opis": floor.measured.epsilon_opis,
        "epsilon_opis_floor": floor.epsilon_opis,
        "epsilon_opis_floor_spread": floor.epsilon_opis_spread,
    }
