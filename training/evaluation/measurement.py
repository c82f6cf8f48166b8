"""Measurement: a bundle's embeddings on a test's data set, from the images to the figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from vicinal.models.embedder import Embedder
from vicinal.models.progress import OnProgress, no_progress
from vicinal.training.datasets import list_images
from vicinal.training.datasets.layouts.revisited import RevisitedConfig
from vicinal.training.evaluation.config import RetrievalTest
from vicinal.training.evaluation.embedding import embed_files
from vicinal.training.evaluation.report import Evaluation, EvaluationSettings, evaluate
from vicinal.training.evaluation.revisited import judged_metrics

_DIFFICULTIES: tuple[Literal["easy", "medium", "hard"], ...] = ("easy", "medium", "hard")
# What a bundle states: clustering takes longest and says least about search.
_STATED = EvaluationSettings(ks=(1,), nmi=False)
_NOT_STATED = ("recall_", "n_without_mate", "n_classes")
_DIGITS = 5


def measure_test(
    embedder: Embedder,
    test: RetrievalTest,
    settings: EvaluationSettings | None = None,
    *,
    on_progress: OnProgress = no_progress,
) -> Evaluation:
    """Embed the images of a test and measure; the test's own ranks are preferred to those of the settings.

    Gives the figures of `evaluate`; of a landmark set `mean_average_precision` and `precision_<k>`, each with
    its difficulty before it, `n_gallery` and `n_queries`.
    """
    if isinstance(test.dataset, RevisitedConfig):
        return _measure_landmarks(embedder, test.dataset, on_progress)
    chosen = settings or EvaluationSettings()
    listing = list_images(test.dataset)
    with listing.open() as read:
        embeddings = embed_files(embedder, listing.files, read, on_progress=on_progress)
    return evaluate(
        embeddings,
        listing.labels,
        listing.roles,
        settings=chosen if test.ks is None else replace(chosen, ks=test.ks),
        on_progress=on_progress,
    )


def manifest_metrics(embedder: Embedder, test: RetrievalTest) -> dict[str, float]:
    """Figures on a test, as a bundle states them: R@1 and precision, OPIS, AUROC and counts, rounded."""
    figures = measure_test(embedder, test, _STATED).figures
    return {
        name: round(value, _DIGITS) for name, value in figures.items() if not name.startswith(_NOT_STATED)
    }


def _measure_landmarks(embedder: Embedder, config: RevisitedConfig, on_progress: OnProgress) -> Evaluation:
    judged = config.judged()
    with config.open() as read:
        embeddings = embed_files(embedder, judged.files, read, on_progress=on_progress)
    queries, gallery = np.split(embeddings, [len(judged.ground_truth)])
    figures, notes = {"n_gallery": float(len(gallery)), "n_queries": float(len(queries))}, []
    for done, difficulty in enumerate(_DIFFICULTIES, start=1):
        truth = [one.judged(difficulty) for one in judged.ground_truth]
        metrics = judged_metrics(queries, gallery, judged=truth)
        figures[f"{difficulty}_mean_average_precision"] = metrics.mean_average_precision
        figures |= {f"{difficulty}_precision_{k}": value for k, value in metrics.precision.items()}
        if metrics.n_without_relevant:
            missing = f"{metrics.n_without_relevant} of {len(queries)} queries have no relevant image"
            notes.append(f"{difficulty}: {missing}")
        on_progress("measure", done, len(_DIFFICULTIES))
    return Evaluation(figures, tuple(notes))
