"""What embeddings are worth: ranking, one threshold for all classes, and knowing when there is no match."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from benchmarks.losses.images import Parts
from vicinal.calibration import opis, opis_floor
from vicinal.training.evaluation import auroc, retrieval_metrics
from vicinal.training.evaluation.metrics import Distance

__all__ = ["Labelled", "among_themselves", "measure_parts", "measure_test", "search_metrics", "top_scores"]

# OPIS looks at every pair; above this many images the gallery half stands for the set.
_MOST_FOR_OPIS = 5_000
_ASKED_FPIR = 0.05
Embeddings = npt.NDArray[np.float32]


class Labelled(Protocol):
    """Images of a part: their classes, and who searches whom."""

    @property
    def labels(self) -> npt.NDArray[np.str_]:
        """(n,) class names."""

    @property
    def roles(self) -> npt.NDArray[np.str_]:
        """(n,) `gallery`, `query` or `absent`."""


def measure_parts(embedded: dict[str, Embeddings], parts: Parts) -> dict[str, Any]:
    """Metrics on held-out training classes (for choices) and on test classes (for the report).

    Args:
        embedded: Embeddings of each part.
        parts: Their labels and roles.
    """
    return {
        "validation": among_themselves(embedded["validation"], parts.validation.labels),
        "test": measure_test(embedded, parts.calibration, parts.test),
    }


def measure_test(
    embedded: Mapping[str, Embeddings], calibration: Labelled, test: Labelled
) -> dict[str, float]:
    """Metrics on test classes, with a threshold from the calibration classes and with one from their own.

    Args:
        embedded: Embeddings of the parts `calibration` and `test`.
        calibration: Labels and roles of the one.
        test: Labels and roles of the other.
    """
    own = top_scores(embedded["test"], test)
    threshold = _threshold(top_scores(embedded["calibration"], calibration)["absent"])
    return {
        **search_metrics(embedded["test"], test),
        **_consistency(embedded["test"], test),
        "auroc": auroc(own["query"], own["absent"]),
        "fpir_at_calibrated_5": float((own["absent"] >= threshold).mean()),
        "fnir_at_calibrated_5": float(1.0 - (own["mate"] >= threshold).mean()),
        "fnir_at_fpir_5": float((own["mate"] < _threshold(own["absent"])).mean()),
    }


def top_scores(embeddings: Embeddings, part: Labelled) -> dict[str, npt.NDArray[np.float64]]:
    """Best cosine of each query.

    Returns:
        `query` and `absent`: best of all gallery items; `mate`: best mate of each query.
    """
    gallery = part.roles == "gallery"
    scores: dict[str, npt.NDArray[np.float64]] = {}
    for role in ("query", "absent"):
        similarities = _unit(embeddings[part.roles == role]) @ _unit(embeddings[gallery]).T
        scores[role] = similarities.max(axis=1).astype(np.float64)
        if role == "query":
            mates = part.labels[part.roles == role][:, None] == part.labels[gallery][None]
            scores["mate"] = np.where(mates, similarities, -1.0).max(axis=1).astype(np.float64)
    return scores


def _threshold(absent: npt.NDArray[np.float64]) -> float:
    """Lowest threshold that at most the asked share of the queries without a mate reaches."""
    allowed = int(_ASKED_FPIR * len(absent))
    return float(np.nextafter(np.sort(absent)[::-1][allowed], np.inf))


def search_metrics(embeddings: Embeddings, part: Labelled, distance: Distance = "cosine") -> dict[str, float]:
    """R@1, MAP@R and mAP of the queries in the gallery; images without these roles search each other."""
    query, gallery = part.roles == "query", part.roles == "gallery"
    if query.any():
        found = retrieval_metrics(
            embeddings[query],
            part.labels[query],
            gallery_embeddings=embeddings[gallery],
            gallery_labels=part.labels[gallery],
            ks=(1,),
            distance=distance,
        )
    else:
        found = retrieval_metrics(embeddings, part.labels, ks=(1,), distance=distance)
    return {
        "hit_rate_1": found.hit_rate[1],
        "map_at_r": found.map_at_r,
        "mean_average_precision": found.mean_average_precision,
    }


def among_themselves(embeddings: Embeddings, labels: npt.NDArray[np.str_]) -> dict[str, Any]:
    """Metrics of images that search each other, and the range of thresholds that OPIS looks at."""
    found, consistency = retrieval_metrics(embeddings, labels, ks=(1,)), opis(embeddings, labels)
    return {
        "hit_rate_1": found.hit_rate[1],
        "map_at_r": found.map_at_r,
        "opis": consistency.opis,
        "epsilon_opis": consistency.epsilon_opis,
        "threshold_range": list(consistency.threshold_range),
    }


def _consistency(embeddings: Embeddings, part: Labelled) -> dict[str, float]:
    known = np.isin(part.roles, ["gallery", "query"])
    if known.sum() > _MOST_FOR_OPIS:
        known = part.roles == "gallery"
    found = opis_floor(embeddings[known], part.labels[known], n_repetitions=20, seed=0)
    return {
        "opis": found.measured.opis,
        "epsilon_opis": found.measured.epsilon_opis,
        "opis_floor": found.opis,
        "epsilon_opis_floor": found.epsilon_opis,
    }


def _unit(embeddings: Embeddings) -> Embeddings:
    return embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
