"""Live changes: items added, replaced, patched and removed while the gallery is searched.

Each call is one commit, on the disk when it returns, and seen as a whole by the next search of any process.
A new item's neighbor list is made at once from the items before it, the same one by one and together; older
lists stay until the gallery is compacted or indexed again (`GalleryView.graph_staleness`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from vicinal.calibration.arrays import FloatArray, Ints
from vicinal.indexer.errors import (
    BundleMismatchError,
    EngineError,
    GalleryError,
    ItemNotFoundError,
)
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.graph.neighbor_graph import N_NEIGHBORS, SPARE_NEIGHBORS, build_neighbor_graph
from vicinal.indexer.item_rules import checked_label, checked_metadata
from vicinal.indexer.jobs.preparation import no_rows, with_columns
from vicinal.indexer.jobs.retention import READER_GRACE
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.storage.active_pointer import Activation, Note
from vicinal.indexer.storage.item_table import as_fixed_lists, as_matrix
from vicinal.indexer.storage.removals import REMEMBERED_COLUMNS, Reserve, remembered
from vicinal.indexer.views.view import GalleryView
from vicinal.models.bundle import ModelBundle
from vicinal.models.similarity import exact_similarities

# What to do with an image whose id belongs to another image.
OnConflict = Literal["error", "replace", "skip"]
# `unchanged`: this very image is there under this id. `skipped` and `refused`: another image is.
Outcome = Literal["added", "replaced", "unchanged", "skipped", "refused"]
OUTCOME_WHERE_TAKEN: dict[OnConflict, Outcome] = {
    "error": "refused",
    "replace": "replaced",
    "skip": "skipped",
}


def outcomes_of(
    ids: Sequence[str], digests: Sequence[bytes], held: Mapping[str, bytes], conflict: OnConflict
) -> list[Outcome]:
    """Outcome of each image, as if they came one by one; an image that is there under its id is `unchanged`
    so that it can be sent again, and with `replace` written all the same, as its label may be another one.
    """
    present = dict(held)
    outcomes: list[Outcome] = []
    for item_id, digest in zip(ids, digests, strict=True):
        before = present.get(item_id)
        if before == digest and conflict != "replace":
            outcomes.append("unchanged")
        else:
            outcomes.append("added" if before is None else OUTCOME_WHERE_TAKEN[conflict])
        if outcomes[-1] in ("added", "replaced"):
            present[item_id] = digest
    return outcomes


def digests_of(gallery: Gallery, view: GalleryView, ids: Sequence[str]) -> dict[str, bytes]:
    """SHA-256 digest of the file of each item that is there, by id."""
    positions = view.positions(ids)
    if (positions < 0).all():
        return {}
    sequences = view.sequences(positions[positions >= 0])
    rows = gallery.table.rows(view.revision, sequences, ["id", "content_sha256"])
    return dict(zip(rows["id"].to_pylist(), rows["content_sha256"].to_pylist(), strict=True))


# Seconds that a change waits for the one before it.
_PATIENCE = 30.0
# From here on the small files of small changes are merged.
_MOST_SMALL_FILES = 128
# What only old revisions refer to is removed after so many changes.
_CHANGES_BETWEEN_CLEANING = 64


@dataclass(frozen=True)
class Change:
    """Result of a live change."""

    revision: int  # The table's version that holds it
    outcomes: tuple[Outcome, ...] = ()  # Of each row, where rows were to be added
    n_patched: int = 0  # With another label or other metadata
    n_removed: int = 0
    n_carried: int = 0  # Labels and values of metadata that items got of copies which went
    conflicts: tuple[str, ...] = ()  # Where these have others, a sentence each


@dataclass(frozen=True)
class Patch:
    """New label and metadata of an item."""

    label: str | None = None
    # Merged into the present metadata (RFC 7396): a value replaces, None removes
    metadata: Mapping[str, Any] | None = None
    keeps_label: bool = False  # Leave the label as it is


def create_gallery(gallery: Gallery, bundle: ModelBundle) -> bool:
    """Make a gallery without items, where there is none yet; says whether it did."""
    with gallery.writing():
        if gallery.active_version is not None:
            actual = gallery.snapshot().manifest.bundle
            if actual != bundle.fingerprint:
                raise BundleMismatchError(gallery.name, bundle.fingerprint, actual)
            return False
        gallery.keep_space(bundle)
        gallery.start(no_rows(bundle.dim), bundle=bundle.fingerprint, bundle_name=bundle.name)
        gallery.publish(build_neighbor_graph(np.empty((0, bundle.dim), np.float32)))
        return True


def add_items(
    reader: GalleryReader,
    rows: pa.Table,
    *,
    bundle: str,
    conflict: OnConflict = "error",
    note: Note | None = None,
) -> Change:
    """Add items, as if they came one by one; which ids are taken is decided while nobody else writes. What is
    to be noted of it comes into force with them.
    """
    with reader.gallery.writing(patience=_PATIENCE):
        activation, view = reader.active()
        gallery, manifest, width = reader.gallery, view.snapshot.manifest, rows["embedding"].type.list_size
        if manifest.bundle != bundle:
            raise BundleMismatchError(gallery.name, bundle, manifest.bundle)
        if width != manifest.dim:
            raise GalleryError(f"gallery '{gallery.name}' holds {manifest.dim}-d embeddings, got {width}-d")
        ids = rows["id"].to_pylist()
        held = digests_of(gallery, view, ids)
        outcomes = tuple(outcomes_of(ids, rows["content_sha256"].to_pylist(), held, conflict))
        # Of two with one id the later one.
        places = {ids[i]: i for i, outcome in enumerate(outcomes) if outcome in ("added", "replaced")}
        if not places:
            return Change(view.revision, outcomes)
        last, n_new = rows.take(pa.array(sorted(places.values()), pa.int64())), len(places)
        old = view.positions(last["id"].to_pylist())
        sequences = np.arange(activation.next_number, activation.next_number + n_new)
        neighbors, similarities = _neighbor_lists(view, as_matrix(last["embedding"]), sequences, old)
        columns = {
            "sequence": pa.array(sequences),
            "patch": pa.array(np.full(n_new, -1)),
            "neighbor_ids": as_fixed_lists(neighbors),
            "neighbor_similarities": as_fixed_lists(similarities),
        }
        for name, column in columns.items():
            last = last.append_column(name, column)
        gone = view.sequences(old[old >= 0])
        revision = _commit(reader, activation, last, gone, activation.next_number + n_new, note)
        return Change(revision, outcomes)


def remove_items(
    reader: GalleryReader, item_ids: Sequence[str], *, note_of: Callable[[pa.Table], Note] | None = None
) -> Change:
    """Remove all of some items or, when one is not there, none; their source does not bring them back. What
    is noted of them may take their whole rows.
    """
    with reader.gallery.writing(patience=_PATIENCE):
        activation, view = reader.active()
        sequences = np.unique(view.sequences(found_positions(reader, view, item_ids)))
        if not len(sequences):
            return Change(view.revision)
        gallery, names = reader.gallery, () if note_of is not None else REMEMBERED_COLUMNS
        note = (note_of or remembered)(gallery.table.rows(view.revision, sequences, names))

        def commit() -> int:
            return _commit(reader, activation, None, sequences, activation.next_number, note)

        # Where the disk is full, to remove something is what helps.
        revision = Reserve(gallery.path.parent).used_if_full(commit)
        return Change(revision, n_removed=len(sequences))


def remove_again(reader: GalleryReader, held: Mapping[str, bytes]) -> None:
    """Remove what a person removed, but for what is `held`, by id with its digest, from a version that was
    made before that.
    """
    gallery, removed = reader.gallery, reader.gallery.removals.read()
    there = digests_of(gallery, reader.view(), [*removed.items])
    gone = [one for one, sha in there.items() if sha in removed.items[one] and held.get(one) != sha]
    remove_items(reader, gone)


def patch_items(reader: GalleryReader, patches: Mapping[str, Patch]) -> Change:
    """Change label and metadata of items: of all of them, or of none when one is not there."""
    with reader.gallery.writing(patience=_PATIENCE):
        activation, view = reader.active()
        sequences = np.sort(view.sequences(found_positions(reader, view, list(patches))))
        if not len(sequences):
            return Change(view.revision)
        rows = reader.gallery.table.rows(view.revision, sequences)
        columns = (rows[name].to_pylist() for name in ("id", "label", "metadata"))
        known = [(*values, patches[values[0]]) for values in zip(*columns, strict=True)]
        labels = [
            label if patch.keeps_label else checked_label(patch.label, item_id)
            for item_id, label, _, patch in known
        ]
        texts = [_patched(item_id, text or "{}", patch.metadata or {}) for item_id, _, text, patch in known]
        rows = with_columns(
            rows,
            label=pa.array(labels, pa.string()),
            metadata=pa.array(texts, pa.string()),
            patch=pa.array(np.full(len(rows), activation.next_number)),
        )
        revision = _commit(reader, activation, rows, sequences, activation.next_number + 1)
        return Change(revision, n_patched=len(rows))


def _commit(
    reader: GalleryReader,
    activation: Activation,
    rows: pa.Table | None,
    removed: Ints,
    next_number: int,
    note: Note | None = None,
) -> int:
    gallery = reader.gallery
    revision = gallery.table.change(activation.revision, rows, removed)
    if gallery.table.n_small_files(revision) > _MOST_SMALL_FILES:
        revision = gallery.table.merge_small_files(revision)
    gallery.pointer.move_revision(activation, revision, next_number, note=note)
    if revision % _CHANGES_BETWEEN_CLEANING == 0:
        gallery.pointer.clean_up(READER_GRACE)
    return revision


def found_positions(reader: GalleryReader, view: GalleryView, item_ids: Sequence[str]) -> Ints:
    """Positions of items; ItemNotFoundError where one is not there."""
    positions = view.positions(item_ids)
    if (positions < 0).any():
        raise ItemNotFoundError(reader.gallery.name, item_ids[int(np.argmax(positions < 0))])
    return positions


def _neighbor_lists(
    view: GalleryView, embeddings: FloatArray, sequences: Ints, old: Ints
) -> tuple[Ints, FloatArray]:
    """Neighbors of each new item: sequences and similarities of live items before it; `old` ones are gone."""
    n_fetched = N_NEIGHBORS + SPARE_NEIGHBORS
    ids = np.full((len(embeddings), N_NEIGHBORS), -1, dtype=np.int64)
    similarities = np.full((len(embeddings), N_NEIGHBORS), -np.inf, dtype=np.float32)
    for i, query in enumerate(embeddings):
        gone = old[: i + 1]
        positions = _nearest_but(view, query[None], n_fetched, gone[gone >= 0])
        # The nearest rows before it, up to the rounding of float32 products.
        own = np.argsort(-(embeddings[:i] @ query), kind="stable")[:n_fetched]
        vectors = np.concatenate([view.vectors(positions), embeddings[own]])
        candidates = np.concatenate([view.sequences(positions), sequences[own]])
        exact = exact_similarities(query, vectors)
        order = np.lexsort((candidates, -exact))[:N_NEIGHBORS]
        ids[i, : len(order)], similarities[i, : len(order)] = candidates[order], exact[order]
    return ids, similarities


def _nearest_but(view: GalleryView, query: FloatArray, n: int, gone: Ints) -> Ints:
    """At least the n nearest live items that are not gone."""
    n_fetched = n
    while True:
        try:
            found = view.nearest(query, n_fetched)[0] if len(view) else np.empty(0, np.int64)
        except EngineError:
            # Searches say so; what is added need not wait for it.
            found = view.nearest_compared(query, n_fetched)[0]
        left = found[(found >= 0) & ~np.isin(found, gone)]
        if len(left) >= n or n_fetched >= len(view):
            return left
        n_fetched *= 2


def _patched(item_id: str, text: str, patch: Mapping[str, Any]) -> str:
    # What was stored before there were rules stays as it is until it is changed.
    if not patch:
        return text
    # Before it is merged, which follows it however deep it is.
    checked_metadata(patch, item_id)
    return checked_metadata(_merge_patch(json.loads(text), patch), item_id)


def _merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge_patch(merged.get(key), value)
    return merged
