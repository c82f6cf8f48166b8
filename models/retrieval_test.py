"""Retrieval test: what a bundle's embeddings can do on classes that its training never saw."""

from __future__ import annotations

from vicinal.models.embedder import Embedder
from vicinal.models.evaluation.config import RetrievalTest
from vicinal.models.evaluation.measurement import measure_test
from vicinal.models.evaluation.report import EvaluationSettings

__all__ = ["measure"]

# Clustering is left to `vicinal evaluate`: it takes longest and says least about search.
_SETTINGS = EvaluationSettings(ks=(1,), parts=("opis",))
_LEFT_OUT = ("recall_", "n_without_mate", "n_classes")
_DIGITS = 5


def measure(embedder: Embedder, test: RetrievalTest) -> dict[str, float]:
    """Figures of the initial embeddings on a test, as a bundle states them.

    Returns:
        `hit_rate_1`, `r_precision`, `map_at_r`, `mean_average_precision`, `map_at_1000`, OPIS and
        epsilon-OPIS with their sampling floors, the counts, and `auroc` of the top similarity between
        queries with a mate and without one, where there are both; for landmark sets the figures by
        difficulty.

    Raises:
        DatasetError: The data set is incomplete, or an image cannot be used.
        EvaluationError: No query has a mate.
    """
    figures = measure_test(embedder, test, _SETTINGS).figures
    return {name: round(value, _DIGITS) for name, value in figures.items() if not name.startswith(_LEFT_OUT)}
