"""Measurement: a bundle's embeddings on a test's data set, from the images to the figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from vicinal.models.configs.datasets import RevisitedConfig
from vicinal.models.datasets import list_images, read_revisited
from vicinal.models.embedder import Embedder
from vicinal.models.evaluation.config import RetrievalTest
from vicinal.models.evaluation.embedding import embed_files
from vicinal.models.evaluation.report import Evaluation, EvaluationSettings, evaluate
from vicinal.models.evaluation.revisited import JudgedMetrics, judged_metrics

__all__ = ["JudgedEvaluation", "OnStage", "measure_test"]

OnStage = Callable[[str, int, int], None]

_DIFFICULTIES: tuple[Literal["easy", "medium", "hard"], ...] = ("easy", "medium", "hard")


@dataclass(frozen=True)
class JudgedEvaluation:
    """Figures of a landmark set.

    Attributes:
        by_difficulty: Metrics for `easy`, `medium` and `hard`.
        n_gallery: Images that are searched.
        n_queries: Images that are searched for.
    """

    by_difficulty: dict[str, JudgedMetrics]
    n_gallery: int
    n_queries: int

    @property
    def figures(self) -> dict[str, float]:
        """All figures by name, flat."""
        figures = {}
        for difficulty, metrics in self.by_difficulty.items():
            figures[f"{difficulty}_mean_average_precision"] = metrics.mean_average_precision
            figures |= {f"{difficulty}_precision_{k}": value for k, value in metrics.precision.items()}
        return figures | {"n_gallery": float(self.n_gallery), "n_queries": float(self.n_queries)}

    @property
    def notes(self) -> tuple[str, ...]:
        """Which queries do not count."""
        return tuple(
            f"{difficulty}: {metrics.n_without_relevant} of {self.n_queries} queries have no relevant image"
            for difficulty, metrics in self.by_difficulty.items()
            if metrics.n_without_relevant
        )


def measure_test(
    embedder: Embedder,
    test: RetrievalTest,
    settings: EvaluationSettings | None = None,
    *,
    on_progress: OnStage | None = None,
) -> Evaluation | JudgedEvaluation:
    """Embed the images of a test and measure.

    Args:
        embedder: The bundle's embedder.
        test: What to measure on.
        settings: What to measure; the test's own ranks are preferred.
        on_progress: Called with the stage (`embed` or `measure`), what is done and all there is.

    Raises:
        DatasetError: The data set is incomplete, or an image cannot be used.
        EvaluationError: No query has a mate.
        MissingPackageError: The layout or the clustering needs a package that is not installed.
    """
    report = on_progress or (lambda _stage, _done, _total: None)
    if isinstance(test.dataset, RevisitedConfig):
        return _measure_landmarks(embedder, test.dataset, report)
    chosen = settings or EvaluationSettings()
    listing = list_images(test.dataset)
    with listing.open() as read:
        embeddings = embed_files(embedder, listing.files, read, on_progress=_of_stage("embed", report))
    return evaluate(
        embeddings,
        listing.labels,
        listing.roles,
        settings=chosen if test.ks is None else replace(chosen, ks=test.ks),
        on_progress=_of_stage("measure", report),
    )


def _measure_landmarks(embedder: Embedder, config: RevisitedConfig, report: OnStage) -> JudgedEvaluation:
    landmarks = read_revisited(config)
    files = (*landmarks.queries, *landmarks.gallery)
    with landmarks.open() as read:
        embeddings = embed_files(embedder, files, read, on_progress=_of_stage("embed", report))
    queries, gallery = np.split(embeddings, [len(landmarks.queries)])
    by_difficulty: dict[str, JudgedMetrics] = {}
    for done, difficulty in enumerate(_DIFFICULTIES, start=1):
        judged = (truth.judged(difficulty) for truth in landmarks.ground_truth)
        by_difficulty[difficulty] = judged_metrics(queries, gallery, judged=judged)
        report("measure", done, len(_DIFFICULTIES))
    return JudgedEvaluation(by_difficulty, n_gallery=len(gallery), n_queries=len(queries))


def _of_stage(stage: str, report: OnStage) -> Callable[[int, int], None]:
    return lambda done, total: report(stage, done, total)
