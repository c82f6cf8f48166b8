"""Compared version: one version of a gallery, searched with its own bundle, pipeline and threshold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from vicinal.indexer.errors import BundleMismatchError, GalleryNotRefinedError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.similarity import FloatArray
from vicinal.service.calibrator.item_groups import PhotoGroups
from vicinal.service.calibrator.record import CalibrationRecord
from vicinal.service.errors import CalibrationRecordError
from vicinal.service.galleries.bundles import ServedBundle, ServedBundles
from vicinal.service.scoring.opened_refiner import OpenedRefiner, open_refiner
from vicinal.service.scoring.pipeline import ActivePipelineFile, Pipeline
from vicinal.service.scoring.scorer import Scorer
from vicinal.service.thresholds.store import CalibrationStore

__all__ = ["ComparedVersion", "QueryOutcomes", "average_precisions", "open_version"]

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Objects = npt.NDArray[np.object_]
Positions = npt.NDArray[np.int64]
OnProgress = Callable[[int, int], None]

_CHUNK = 64
_LEAST_CANDIDATES = 100
# Ranks beyond are not looked at: a label with more items is judged by its first so many.
_MOST_CANDIDATES = 1024
_NOBODY: Positions = np.empty(0, np.int64)


@dataclass(frozen=True)
class QueryOutcomes:
    """What a version finds for queries.

    Attributes:
        best: (Q,) id of the best item, None without any.
        best_labels: (Q,) its label.
        scores: (Q,) its score, -inf without any.
        n_mates: (Q,) mates of the query in the version.
        mate_scores: (Q,) score of the best mate among the candidates, -inf without one.
        average_precisions: (Q,) average precision over the first R candidates, R the number of mates; 0
            without mates.
    """

    best: Objects
    best_labels: Objects
    scores: Floats
    n_mates: Positions
    mate_scores: Floats
    average_precisions: Floats

    def hits(self, labels: Objects) -> Floats:
        """(Q,) 1 where the best item has the query's label, none of which is None, else 0."""
        return np.asarray(self.best_labels == labels, dtype=np.float64)

    @classmethod
    def joined(cls, parts: Sequence[QueryOutcomes]) -> QueryOutcomes:
        """Outcomes of all parts, in order."""
        return cls(*(np.concatenate([getattr(one, name) for one in parts]) for name in cls.__annotations__))


@dataclass(frozen=True)
class ComparedVersion:
    """A version and what it is searched with.

    Attributes:
        gallery: The gallery.
        snapshot: The version as it was built.
        served: Its bundle; None when that is not here, and then nothing is refined.
        pipeline: How scores are made.
        refinement: What it refines with; None where it refines nothing.
        record: The calibration in force when it is searched; None without one that fits.
        problem: Why it cannot be searched at all, or only without refinement; None when it can.
        is_searchable: Whether there is anything to search with.
    """

    gallery: Gallery
    snapshot: Snapshot
    served: ServedBundle | None
    pipeline: Pipeline
    refinement: OpenedRefiner | None
    record: CalibrationRecord | None
    problem: str | None
    is_searchable: bool = True

    @property
    def version(self) -> int:
        """Its number."""
        return self.snapshot.manifest.version

    @property
    def group_by(self) -> str | None:
        """Metadata column of the groups that its calibration kept apart."""
        grouping = (
            None if self.record is None or self.record.evidence is None else self.record.evidence.grouping
        )
        return None if grouping is None else grouping.column

    def positions(self, ids: Sequence[str]) -> Positions:
        """(n,) positions of items, all of which are there."""
        known = self.snapshot.item_table["id"].combine_chunks()
        return np.asarray(pc.index_in(pa.array(ids, known.type), known), dtype=np.int64)

    def scorer(self) -> Scorer:
        """A scorer of its pipeline."""
        return Scorer(self.snapshot, self.pipeline, self.refinement)

    def leave_one_out(
        self, positions: Positions, groups: PhotoGroups | None, on_progress: OnProgress
    ) -> QueryOutcomes:
        """Search for items as if they were not there, nor the photos of their groups.

        Args:
            positions: (Q,) positions of the items.
            groups: Groups whose photos are never each other's mates or context.
            on_progress: Called with finished and all queries.
        """
        own = [
            np.union1d([at], _NOBODY if groups is None else groups.members(groups.names[at]))
            for at in positions.tolist()
        ]
        vectors = np.asarray(self.snapshot.embeddings[positions])
        labels = self.snapshot.labels[positions]
        return self._search(vectors, labels, own, positions, on_progress)

    def search(self, embeddings: FloatArray, labels: Objects, on_progress: OnProgress) -> QueryOutcomes:
        """Search for pictures from outside.

        Args:
            embeddings: (Q, d) float32 of the version's bundle, L2-normalized.
            labels: (Q,) labels; None where unknown.
            on_progress: Called with finished and all queries.
        """
        return self._search(embeddings, labels, [_NOBODY] * len(labels), None, on_progress)

    def _search(
        self,
        vectors: FloatArray,
        labels: Objects,
        own: list[Positions],
        positions: Positions | None,
        on_progress: OnProgress,
    ) -> QueryOutcomes:
        scorer, n = self.scorer(), len(labels)
        mates = self._n_mates(labels, own)
        width = int(np.clip(mates.max(initial=0), _LEAST_CANDIDATES, _MOST_CANDIDATES))
        parts = []
        for start in range(0, n, _CHUNK):
            rows = slice(start, min(start + _CHUNK, n))
            scored = scorer.score(
                vectors[rows],
                width,
                excluded=own[rows],
                items=None if positions is None else positions[rows],
            )
            parts.append(self._outcomes(scored.positions, scored.scores, labels[rows], mates[rows]))
            on_progress(rows.stop, n)
        return QueryOutcomes.joined(parts)

    def _n_mates(self, labels: Objects, own: list[Positions]) -> Positions:
        all_labels = self.snapshot.labels
        names, counts = np.unique(
            np.array([one for one in all_labels if one is not None], dtype=object), return_counts=True
        )
        sizes = dict(zip(names.tolist(), counts.tolist(), strict=True))
        return np.array(
            [
                0 if label is None else sizes.get(label, 0) - int((all_labels[out] == label).sum())
                for label, out in zip(labels, own, strict=True)
            ],
            dtype=np.int64,
        )

    def _outcomes(
        self, positions: Positions, scores: Floats, labels: Objects, mates: Positions
    ) -> QueryOutcomes:
        found = positions >= 0
        item_labels = self.snapshot.labels[positions]
        item_labels[~found] = None
        is_mate = found & (item_labels == labels[:, None]) & (mates[:, None] > 0)
        best = self.snapshot.item_table["id"].take(pa.array(np.maximum(positions[:, 0], 0)))
        ids = np.array(best.to_pylist(), dtype=object)
        ids[~found[:, 0]] = None
        return QueryOutcomes(
            best=ids,
            best_labels=item_labels[:, 0],
            scores=scores[:, 0],
            n_mates=mates,
            mate_scores=np.where(is_mate, scores, -np.inf).max(axis=1),
            average_precisions=average_precisions(is_mate, mates),
        )


def open_version(gallery: Gallery, version: int, bundles: ServedBundles) -> ComparedVersion:
    """Open a version with its own bundle.

    Without the bundle its stored embeddings can still be searched by items, as far as nothing is refined.

    Args:
        gallery: The gallery.
        version: A published version.
        bundles: Bundles that are here.

    Raises:
        VersionNotFoundError: There is no such version.
        GalleryError: It is damaged.
        RefineError: The settings ask for a refinement that its bundle does not have.
        CalibrationRecordError: The file that names the gallery's pipeline is damaged.
    """
    snapshot = gallery.snapshot(version)
    pipeline = Pipeline(rerank=bundles.settings.pipeline.rerank)
    served, refinement, problem, is_searchable = None, None, None, True
    try:
        served = bundles.of(gallery.name, snapshot.manifest.bundle)
        chosen = ActivePipelineFile(gallery.calibrations_path).resolve(served.pipeline, served.bundle)
        pipeline = chosen.pipeline
        refinement = open_refiner(pipeline, served.refiner, gallery.name, snapshot)
    except BundleMismatchError as error:
        problem = f"the bundle of version {version} is not here: {error}"
    except GalleryNotRefinedError as error:
        problem, is_searchable = str(error), False
    return ComparedVersion(
        gallery=gallery,
        snapshot=snapshot,
        served=served,
        pipeline=pipeline,
        refinement=refinement,
        record=_record_in_force(gallery, snapshot, pipeline),
        problem=problem,
        is_searchable=is_searchable,
    )


def _record_in_force(gallery: Gallery, snapshot: Snapshot, pipeline: Pipeline) -> CalibrationRecord | None:
    """The calibration that decides when the version is searched; never one of another bundle."""
    version, activation = snapshot.manifest.version, gallery.activation
    store = CalibrationStore(gallery.calibrations_path)
    if activation is not None and version in {activation.version, *activation.calibrated}:
        store.calibrated_as = activation.calibration_of(version)
    elif not store.has_own(version):
        return None
    if store.has_own(version):
        store.calibrated_as = version
    try:
        record = store.active(pipeline)
    except CalibrationRecordError:
        # The version's searches fail with it; the comparison says that there is no threshold.
        return None
    fits = record is not None and record.bundle == snapshot.manifest.bundle
    return record if fits else None


def average_precisions(is_mate: Bools, n_mates: Positions) -> Floats:
    """(Q,) average precision over the first R ranks (Musgrave et al., ECCV 2020, eq. 2).

    Args:
        is_mate: (Q, w) whether each candidate is a mate, best first.
        n_mates: (Q,) mates R of each query; more than w count as w.
    """
    width = is_mate.shape[1]
    cut = np.minimum(n_mates, width)
    ranks = np.arange(1, width + 1)
    precisions = is_mate.cumsum(axis=1) / ranks
    counted = is_mate & (ranks <= cut[:, None])
    return np.asarray((precisions * counted).sum(axis=1) / np.maximum(cut, 1))
