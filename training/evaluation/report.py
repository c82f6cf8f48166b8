"""Evaluation of a labelled set: every figure that its roles allow, by the same code for all test sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.calibration import CalibrationError, opis_floor
from vicinal.calibration.arrays import AnyArray, FloatArray
from vicinal.models.errors import EvaluationError
from vicinal.models.progress import OnProgress, no_progress
from vicinal.models.similarity import normalize
from vicinal.training.evaluation.metrics import Distance, auroc, k_means, nmi, retrieval_metrics
from vicinal.training.evaluation.ranking import top_similarities

_AMONG_THEMSELVES = ("train", "test")
_COARSE = ("hit_rate_1", "map_at_r", "mean_average_precision")
_ROLES = (*_AMONG_THEMSELVES, "gallery", "query", "absent", "unused")


@dataclass(frozen=True)
class EvaluationSettings:
    """Choice of the figures.

    Attributes:
        ks: Ranks of the hit rates and recalls.
        nmi: Cluster, which takes long with thousands of classes.
        distance: `cosine`, or `euclidean` for embeddings that are compared as they are, not normalized.
        coarse: Rank by super-labels too, where there are some.
        opis: Measure OPIS over all pairs, and its sampling floor, with `n_repetitions` simulated worlds.
    """

    ks: tuple[int, ...] = (1, 2, 4, 8)
    distance: Distance = "cosine"
    coarse: bool = True
    nmi: bool = True
    opis: bool = True
    n_repetitions: int = 50
    seed: int = 0


@dataclass(frozen=True)
class Evaluation:
    """Figures of one set by name, and notes why a figure is missing that was asked for."""

    figures: dict[str, float]
    notes: tuple[str, ...] = ()


def evaluate(
    embeddings: npt.ArrayLike,
    labels: npt.ArrayLike,
    roles: npt.ArrayLike | None = None,
    *,
    super_labels: npt.ArrayLike | None = None,
    settings: EvaluationSettings | None = None,
    on_progress: OnProgress = no_progress,
) -> Evaluation:
    """Measure a labelled set of embeddings (n, d), normalized or not.

    Where `roles`, see `training.datasets.LabelledFile`, name a `gallery`, each `query` and `absent` image
    searches it, and other images play no part. Where there is none, all `train` and `test` images are
    searched among themselves, and `absent` ones search them. None takes all for `test`.

    Returns:
        Retrieval metrics of the queries that have a mate; `auroc` of the top similarity between those and
        queries without one, where there are both; with two `super_labels` or more `coarse_` R@1, MAP@R and
        mAP, for which an image of the same super-label is a mate; `nmi`, `nmi_geometric`, OPIS and its
        sampling floor of all searched and searching images, absent ones aside; and the counts `n_gallery`,
        `n_queries` (absent ones aside), `n_absent`, `n_without_mate` (absent ones too) and `n_classes`.

    Raises:
        EvaluationError: Lengths differ, a role is unknown or contradicts the labels, or no query has a mate.
        EmbeddingError: An embedding is zero or not finite.
        MissingPackageError: scikit-learn or Faiss is needed and not installed.
    """
    settings = settings or EvaluationSettings()
    n_steps = 2 + settings.nmi + settings.opis
    search = _Search(np.asarray(embeddings), np.asarray(labels), roles)
    on_progress("measure", 0, n_steps)
    notes: tuple[str, ...] = ()
    figures = search.retrieval(search.labels, settings.ks, settings.distance)
    known = search.queries | search.gallery
    if settings.coarse and super_labels is not None and len(set(np.asarray(super_labels)[known])) > 1:
        coarse = search.retrieval(np.asarray(super_labels), (1,), settings.distance)
        figures |= {f"coarse_{name}": coarse[name] for name in _COARSE}
    on_progress("measure", 1, n_steps)
    area, n_without_mate = search.auroc()
    is_cosine = settings.distance == "cosine"
    on_progress("measure", 2, n_steps)
    own, names = search.embeddings[known], search.labels[known]
    if settings.nmi:
        classes = np.unique(names, return_inverse=True)[1]
        found = k_means(own, int(classes.max()) + 1, seed=settings.seed, distance=settings.distance)
        figures["nmi"], figures["nmi_geometric"] = nmi(classes, found), nmi(classes, found, mean="geometric")
        on_progress("measure", 3, n_steps)
    if area is not None and is_cosine:
        figures["auroc"] = area
    if settings.opis and not is_cosine:
        notes = ("AUROC and OPIS are of cosines: they are not measured",)
    elif settings.opis:
        by_class, notes = _opis(search.unit[known], names, settings)
        figures |= by_class
    on_progress("measure", n_steps, n_steps)
    counts = {
        "n_gallery": search.gallery.sum(),
        "n_queries": search.queries.sum(),
        "n_absent": search.absent.sum(),
        "n_without_mate": n_without_mate,
        "n_classes": len(np.unique(names)),
    }
    return Evaluation(figures | {name: float(count) for name, count in counts.items()}, notes)


class _Search:
    """A labelled set, and who of it searches whom; `queries`, `gallery` and `absent` are masks."""

    def __init__(self, embeddings: AnyArray, labels: AnyArray, roles: npt.ArrayLike | None) -> None:
        n = len(embeddings)
        given = np.full(n, "test") if roles is None else np.asarray(roles).astype(str)
        if not n == len(labels) == len(given):
            raise EvaluationError(f"{n} embeddings, but {len(labels)} labels and {len(given)} roles")
        unknown = sorted(set(given.tolist()) - set(_ROLES))
        if unknown:
            raise EvaluationError(f"role '{unknown[0]}', expected one of {', '.join(_ROLES)}")
        self.embeddings, self.unit, self.labels = embeddings, normalize(embeddings), labels
        self.queries, self.gallery, self.absent = given == "query", given == "gallery", given == "absent"
        if self.queries.any() and not self.gallery.any():
            raise EvaluationError("there are images with the role 'query', but none with the role 'gallery'")
        self.among_themselves = not self.gallery.any()
        if self.among_themselves:
            self.queries = self.gallery = np.isin(given, _AMONG_THEMSELVES)
        present = np.flatnonzero(self.absent & np.isin(labels, labels[self.gallery]))
        if len(present):
            raise EvaluationError(
                f"image {present[0]} has the role 'absent', but its label '{labels[present[0]]}' "
                "is in the gallery"
            )

    def retrieval(self, labels: AnyArray, ks: tuple[int, ...], distance: Distance) -> dict[str, float]:
        """Retrieval metrics of the queries, by labels or super-labels."""
        options: dict[str, Any] = {"ks": ks, "distance": distance}
        if not self.among_themselves:
            options |= {
                "gallery_embeddings": self.embeddings[self.gallery],
                "gallery_labels": labels[self.gallery],
            }
        return retrieval_metrics(self.embeddings[self.queries], labels[self.queries], **options).figures

    def auroc(self) -> tuple[float | None, int]:
        """AUROC of the top similarity with against without a mate, and the number of queries without one."""
        searching = np.concatenate([np.flatnonzero(self.queries), np.flatnonzero(self.absent)])
        names, counts = np.unique(self.labels[self.gallery], return_counts=True)
        itself = int(self.among_themselves)
        has_mate = np.isin(self.labels[searching], names[counts > itself])
        if has_mate.all():
            return None, 0
        # The gallery is in the order of the queries where they are the same images.
        own = itself * int(self.queries.sum())
        exclude = [[row] if row < own else [] for row in range(len(searching))]
        tops = top_similarities(self.unit[searching], self.unit[self.gallery], exclude)
        return auroc(tops[has_mate], tops[~has_mate]), int((~has_mate).sum())


def _opis(
    unit: FloatArray, labels: AnyArray, settings: EvaluationSettings
) -> tuple[dict[str, float], tuple[str, ...]]:
    try:
        floor = opis_floor(unit, labels, n_repetitions=settings.n_repetitions, seed=settings.seed)
    except CalibrationError as error:
        return {}, (f"OPIS is not measured: {error}",)
    return {
        "opis": floor.measured.opis,
        "opis_floor": floor.opis,
        "opis_floor_spread": floor.opis_spread,
        "epsilon_opis": floor.measured.epsilon_opis,
        "epsilon_opis_floor": floor.epsilon_opis,
        "epsilon_opis_floor_spread": floor.epsilon_opis_spread,
    }, ()
