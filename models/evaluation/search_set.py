"""Search set: a labelled set, and who of it searches whom."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vicinal.models.errors import EvaluationError
from vicinal.models.evaluation.metrics import RetrievalMetrics, auroc, retrieval_metrics
from vicinal.models.evaluation.ranking import top_similarities
from vicinal.models.similarity import FloatArray

__all__ = ["SearchSet"]

Mask = npt.NDArray[np.bool_]

_AMONG_THEMSELVES = ("train", "test")
_ROLES = (*_AMONG_THEMSELVES, "gallery", "query", "absent", "unused")


@dataclass(frozen=True)
class SearchSet:
    """A labelled set, and who of it searches whom.

    Attributes:
        unit: (n, d) unit embeddings.
        labels: (n,) labels.
        queries: (n,) images that are searched for.
        gallery: (n,) images that are searched.
        absent: (n,) images that are searched for although no label of theirs is in the gallery.
        among_themselves: Whether queries and gallery are the same images, each searched for without itself.
    """

    unit: FloatArray
    labels: npt.NDArray[np.generic]
    queries: Mask
    gallery: Mask
    absent: Mask
    among_themselves: bool

    @classmethod
    def of(cls, unit: FloatArray, labels: npt.NDArray[np.generic], roles: npt.ArrayLike | None) -> SearchSet:
        """Divide images by their roles; see `models.evaluation.evaluate`.

        Raises:
            EvaluationError: Lengths differ, a role is unknown or contradicts the labels.
        """
        given = np.full(len(unit), "test") if roles is None else np.asarray(roles).astype(str)
        if not len(unit) == len(labels) == len(given):
            raise EvaluationError(f"{len(unit)} embeddings, but {len(labels)} labels and {len(given)} roles")
        unknown = sorted(set(given.tolist()) - set(_ROLES))
        if unknown:
            raise EvaluationError(f"role '{unknown[0]}', expected one of {', '.join(_ROLES)}")
        queries, gallery, absent = given == "query", given == "gallery", given == "absent"
        if queries.any() and not gallery.any():
            raise EvaluationError("there are images with the role 'query', but none with the role 'gallery'")
        among_themselves = not gallery.any()
        if among_themselves:
            queries = gallery = np.isin(given, _AMONG_THEMSELVES)
        present = np.flatnonzero(absent & np.isin(labels, labels[gallery]))
        if len(present):
            raise EvaluationError(
                f"image {present[0]} has the role 'absent', but its label '{labels[present[0]]}' "
                "is in the gallery"
            )
        return cls(unit, labels, queries, gallery, absent, among_themselves)

    @property
    def known(self) -> Mask:
        """(n,) searched and searching images without the absent ones."""
        return self.queries | self.gallery

    def retrieval(self, ks: tuple[int, ...]) -> RetrievalMetrics:
        """Retrieval metrics of the queries.

        Raises:
            EvaluationError: No query has a mate.
        """
        queries, labels = self.unit[self.queries], self.labels[self.queries]
        if self.among_themselves:
            return retrieval_metrics(queries, labels, ks=ks)
        return retrieval_metrics(
            queries,
            labels,
            gallery_embeddings=self.unit[self.gallery],
            gallery_labels=self.labels[self.gallery],
            ks=ks,
        )

    def auroc(self) -> tuple[float | None, int]:
        """AUROC of the top similarity with against without a mate, and the number of queries without one."""
        searching = np.concatenate([np.flatnonzero(self.queries), np.flatnonzero(self.absent)])
        names, counts = np.unique(self.labels[self.gallery], return_counts=True)
        mates = dict(zip(names.tolist(), counts.tolist(), strict=True))
        itself = np.zeros(len(searching), np.int64)
        if self.among_themselves:
            itself[: self.queries.sum()] = 1
        n_mates = [mates.get(label, 0) for label in self.labels[searching].tolist()]
        has_mate = np.array(n_mates) > itself
        if has_mate.all():
            return None, 0
        # The gallery is in the order of the queries where they are the same images.
        exclude = [[row] if own else [] for row, own in enumerate(itself.tolist())]
        tops = top_similarities(self.unit[searching], self.unit[self.gallery], exclude)
        return auroc(tops[has_mate], tops[~has_mate]), int((~has_mate).sum())
