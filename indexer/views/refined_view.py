"""Refined view: one state of a gallery in the space of its refined items.

Items of the built version have stored vectors; later ones are refined with those of their own neighbors that
are still there. Where items count as not in the gallery, as in leave-one-out, those refined with one of them
are refined anew. All of these are `changed`: compared one by one, and in neighbor lists as they are now.
"""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from vicinal.calibration.arrays import FloatArray, Ints
from vicinal.indexer.engines.vectors import rows_at
from vicinal.indexer.graph.neighbor_graph import N_NEIGHBORS, SPARE_NEIGHBORS
from vicinal.indexer.views.contexts import item_contexts
from vicinal.indexer.views.refined_snapshot import RefinedSnapshot
from vicinal.indexer.views.selection import Selection, nearest_among
from vicinal.indexer.views.snapshot import Snapshot, places_of
from vicinal.indexer.views.view import GalleryView, SegmentBuilder
from vicinal.models.similarity import exact_similarities
from vicinal.refine.context_refiner import ContextRefiner

_NOBODY: Ints = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class RefinedView:
    """State of a gallery, its items refined; see `GalleryView` for the methods of the same names."""

    view: GalleryView
    built: BuiltItems
    changed: Ints
    changed_vectors: FloatArray
    added_contexts: Ints
    excluded: Ints

    def __len__(self) -> int:
        return len(self.view)

    @property
    def has_unknown(self) -> bool:
        """Tell whether lists may hold neighbors that nobody knows."""
        return len(self._unchanged.dead) > 0

    def without(self, positions: Ints) -> RefinedView:
        """View as if some items were not in the gallery, and had never refined any other."""
        if not len(positions):
            return self
        users = self._users_of(positions)
        contexts = item_contexts(self.view, users, self.built.k, positions)
        vectors = self.built.refined(self.view, users, contexts)
        kept = ~np.isin(self.changed, np.union1d(users, positions))
        changed = np.concatenate([self.changed[kept], users])
        order = np.argsort(changed)
        return replace(
            self,
            changed=changed[order],
            changed_vectors=np.concatenate([self.changed_vectors[kept], vectors])[order],
            excluded=positions,
        )

    def _users_of(self, positions: Ints) -> Ints:
        """Ascending live positions of the items that were refined with one of some items."""
        n_built = len(self.view.snapshot)
        added = np.flatnonzero(np.isin(self.added_contexts, positions).any(axis=1)) + n_built
        users = np.concatenate([self.built.stored.users_of(positions), added])
        return users[~self.view.is_dead(users) & ~np.isin(users, positions)]

    def vectors(self, positions: Ints) -> FloatArray:
        """(..., d) refined embeddings at (...) positions; any values at -1."""
        n_built = len(self.view.snapshot)
        if n_built and not len(self.changed) and not len(self.view.segment):
            return rows_at(self.built.stored.embeddings, positions)
        vectors = np.zeros((*positions.shape, self.view.snapshot.manifest.dim), np.float32)
        places = places_of(self.changed, positions)
        stored = (places < 0) & (positions >= 0) & (positions < n_built)
        vectors[stored] = self.built.stored.embeddings[positions[stored]]
        vectors[places >= 0] = self.changed_vectors[places[places >= 0]]
        return vectors

    def nearest(self, queries: FloatArray, n: int, selection: Selection | None = None) -> Ints:
        """Live items near each query, every one of the n nearest among them; see `GalleryView.nearest`."""
        chosen, changed = None, self.changed
        if selection is not None:
            ours = selection.positions[selection.positions < len(self.view.snapshot)]
            chosen = Selection(ours[~self._unchanged.is_dead(ours)], selection.filter)
            changed = changed[selection.holds(changed)]
        found = self._unchanged.nearest(queries, n, chosen)
        if not len(changed) or not len(queries):
            return found
        rows = nearest_among(self.vectors, queries, n, changed)
        return np.concatenate([found, np.stack(rows)], axis=1)

    def neighbor_positions(self, positions: Ints) -> Ints:
        """(..., K) positions of the nearest others, nearest first; -1 for unknown ones and for padding."""
        return self._listed(positions)[0]

    def neighbor_similarities(self, positions: Ints) -> FloatArray:
        """(..., K) similarities, descending, -inf for padding; the last known one bounds unknown ones."""
        return self._listed(positions)[1]

    @cached_property
    def _unchanged(self) -> GalleryView:
        """The items that have their stored vector, as a gallery without the others."""
        gone = np.union1d(np.union1d(self.view.dead, self.changed), self.excluded)
        return replace(
            self.view,
            snapshot=self.built.as_snapshot(self.view.snapshot),
            segment=SegmentBuilder(self.view.snapshot.manifest.dim).segment(),
            dead=gone[gone < len(self.view.snapshot)],
        )

    def _listed(self, positions: Ints) -> tuple[Ints, FloatArray]:
        # A view without some items serves one query, and re-ranking asks it for the same lists many times.
        if not len(self.excluded):
            return self._made(positions)
        unique, places = np.unique(positions.ravel(), return_inverse=True)
        new = np.array([one for one in unique.tolist() if one not in self._remembered], np.int64)
        if len(new):
            self._remembered.update(zip(new.tolist(), zip(*self._made(new), strict=True), strict=True))
        rows = [self._remembered[one] for one in unique.tolist()]
        shape = (*positions.shape, N_NEIGHBORS)
        ids = np.array([one for one, _ in rows], np.int64).reshape(-1, N_NEIGHBORS)
        similarities = np.array([one for _, one in rows], np.float32).reshape(-1, N_NEIGHBORS)
        return ids[places].reshape(shape), similarities[places].reshape(shape)

    @cached_property
    def _remembered(self) -> dict[int, tuple[Ints, FloatArray]]:
        return {}

    def _made(self, positions: Ints) -> tuple[Ints, FloatArray]:
        graph = self.built.stored.graph
        ids = np.full((*positions.shape, N_NEIGHBORS), -1, np.int64)
        similarities = np.full((*positions.shape, N_NEIGHBORS), -np.inf, np.float32)
        is_changed = places_of(self.changed, positions) >= 0
        stored = ~is_changed & (positions >= 0) & (positions < len(self.view.snapshot))
        rows = positions[stored]
        ids[stored], similarities[stored] = graph.ids[rows], graph.similarities[rows]
        if self.has_unknown or len(self.changed):
            ids[stored], similarities[stored] = self._brought_up(rows, ids[stored], similarities[stored])
            ids[is_changed], similarities[is_changed] = self._searched(positions[is_changed])
        return ids, similarities

    def _brought_up(self, positions: Ints, ids: Ints, similarities: FloatArray) -> tuple[Ints, FloatArray]:
        """Stored lists without the neighbors that are gone or changed, merged with the changed ones."""
        is_cut = np.isfinite(similarities[:, -1:])
        last = np.where(is_cut, similarities[:, -1:], np.float32(-np.inf))
        gone = (ids < 0) | self._unchanged.is_dead(ids)
        kept = np.where(gone, last, similarities)
        vectors = self.vectors(positions)
        # Every changed item that is nearer than the last one listed, and so all that belong into the list.
        rows = nearest_among(self.vectors, vectors, N_NEIGHBORS + SPARE_NEIGHBORS, self.changed)
        added = np.stack(rows) if rows else np.empty((0, 0), np.int64)
        exact = exact_similarities(vectors, self.vectors(added))
        return _first(
            np.concatenate([np.where(gone, -1, ids), added], axis=1), np.concatenate([kept, exact], axis=1)
        )

    def _searched(self, positions: Ints) -> tuple[Ints, FloatArray]:
        """Lists of changed items, from a search."""
        vectors = self.vectors(positions)
        found = self.nearest(vectors, N_NEIGHBORS + 1 + SPARE_NEIGHBORS)
        exact = exact_similarities(vectors, self.vectors(found))
        others = (found >= 0) & (found != positions[:, None])
        return _first(np.where(others, found, -1), np.where(others, exact, np.float32(-np.inf)))


class BuiltItems:
    """The items of one built version, refined, and what refines others."""

    def __init__(self, stored: RefinedSnapshot, refiner: ContextRefiner) -> None:
        self.stored = stored
        self.refiner = refiner
        self.k = refiner.n_neighbors
        self._snapshot: Snapshot | None = None

    def refined(self, view: GalleryView, positions: Ints, contexts: Ints) -> FloatArray:
        """(m, d) items refined with (m, k) contexts."""
        if not len(positions):
            return np.empty((0, self.refiner.architecture.dim), np.float32)
        refinement = self.refiner.attend(
            view.vectors(positions),
            view.vectors(contexts),
            contexts >= 0,
            n_steps=self.stored.manifest.n_steps,
        )
        return refinement.embeddings

    def as_snapshot(self, snapshot: Snapshot) -> Snapshot:
        """The version with the refined vectors, lists and index in place of its own."""
        if self._snapshot is None:
            refined = copy.copy(snapshot)
            refined.embeddings, refined.index = self.stored.embeddings, self.stored.index
            refined.neighbor_ids = self.stored.graph.ids
            refined.neighbor_similarities = self.stored.graph.similarities
            self._snapshot = refined
        return self._snapshot


class RefinedSpace:
    """The refined items of one built version, and of what is added to it."""

    def __init__(self, stored: RefinedSnapshot, refiner: ContextRefiner) -> None:
        # Not this object itself: views know it, and with the last of them here none would ever be let go,
        # nor the files of its version.
        self.built = BuiltItems(stored, refiner)
        self._lock = threading.Lock()
        self._contexts: Ints = np.empty((0, self.built.k), np.int64)
        self._vectors: FloatArray = np.empty((0, refiner.architecture.dim), np.float32)
        self._last: RefinedView | None = None

    def view(self, view: GalleryView) -> RefinedView:
        """A state of the version in this space; only what was added since the last call is refined."""
        last = self._last
        if last is not None and last.view is view:
            return last
        added = len(view.snapshot) + np.arange(len(view.segment))
        contexts, vectors = self._added(view, added)
        live = ~view.is_dead(added)
        self._last = RefinedView(view, self.built, added[live], vectors[live], contexts, _NOBODY)
        return self._last

    def _added(self, view: GalleryView, added: Ints) -> tuple[Ints, FloatArray]:
        """Contexts and refined vectors of the added items; those with the context of last time are kept."""
        contexts = item_contexts(view, added, self.built.k)
        contexts[view.is_dead(added)] = -1
        with self._lock:
            known, n_known = self._contexts, min(len(self._contexts), len(contexts))
            changed = np.ones(len(contexts), dtype=bool)
            changed[:n_known] = (contexts[:n_known] != known[:n_known]).any(axis=1)
            vectors = np.empty((len(contexts), self.built.refiner.architecture.dim), np.float32)
            vectors[:n_known] = self._vectors[:n_known]
            vectors[changed] = self.built.refined(view, added[changed], contexts[changed])
            self._contexts, self._vectors = contexts, vectors
        return contexts, vectors


def _first(ids: Ints, similarities: FloatArray) -> tuple[Ints, FloatArray]:
    """The first K of each row, most similar first, known ones before unknown ones, ties by position."""
    order = np.lexsort((ids, ids < 0, -similarities), axis=1)[:, :N_NEIGHBORS]
    width = ((0, 0), (0, N_NEIGHBORS - order.shape[1]))
    return (
        np.pad(np.take_along_axis(ids, order, axis=1), width, constant_values=-1),
        np.pad(np.take_along_axis(similarities, order, axis=1), width, constant_values=np.float32(-np.inf)),
    )
