"""Compaction: a new version made of the built one and its live changes, while searches and changes go on.

Nothing is embedded again. Its neighbor lists are those that an index job would find, in a large gallery at
least as complete; changes that come meanwhile stand beside it as they stood beside the old one.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
from pydantic import Field

from vicinal.calibration.arrays import FloatArray, Ints
from vicinal.calibration.frozen import Frozen
from vicinal.indexer.errors import GalleryBusyError
from vicinal.indexer.graph.neighbor_graph import NeighborGraph, update_neighbor_graph
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.storage.files import scratch, storing
from vicinal.indexer.storage.item_table import mapped_matrix
from vicinal.indexer.views.snapshot import ITEM_COLUMNS, SnapshotRows, write_snapshot
from vicinal.indexer.views.view import GalleryView
from vicinal.models.progress import OnProgress, no_progress

_BLOCK = 16_384


class CompactionPolicy(Frozen):
    """Limits at which a gallery is compacted.

    Attributes:
        share: A new version is made when this share of the built version's size has changed.
        least: Not before so many changes, whatever the share.
        most: After so many changes in any case: each search compares the added items one by one.
    """

    share: float = Field(0.1, gt=0.0, le=1.0)
    least: int = Field(100, ge=1)
    most: int = Field(50_000, ge=1)

    def is_due(self, view: GalleryView) -> bool:
        """Tell whether a gallery in this state should be compacted."""
        wanted = max(self.least, self.share * len(view.snapshot))
        return view.n_changes >= min(wanted, self.most)


@dataclass(frozen=True)
class Compaction:
    """Result of a compaction."""

    version: int
    n_items: int
    index: str
    seconds: float


def compact(reader: GalleryReader, *, on_progress: OnProgress = no_progress) -> Compaction | None:
    """Make a new version of a gallery's present state and let searches use it; None without changes."""
    gallery, started = reader.gallery, time.monotonic()
    with gallery.compacting():
        gallery.remove_half_made()
        version = None
        # Until no change comes in between.
        while version is None:
            activation, view = reader.active()
            if not view.n_changes:
                return None
            version = gallery.pointer.number_searched(activation)
        with (
            storing(f"a compacted version of gallery '{gallery.name}'"),
            scratch(gallery.path / "versions") as folder,
        ):
            rows = _rows_of(view, folder, on_progress)
            manifest = view.snapshot.manifest
            fields = {
                "version": version,
                "revision": view.revision,
                "bundle": manifest.bundle,
                "bundle_name": manifest.bundle_name,
                "refiner": manifest.refiner,
                "table": manifest.table,
                "next_number": view.next_number,
            }
            snapshot = write_snapshot(
                gallery.snapshot_path(version),
                rows,
                index=manifest.index_kind,
                fields=fields,
                tables=gallery.tables,
            )
        gallery.refine(snapshot)
        made = snapshot.manifest
        done = Compaction(version, made.n_items, made.index, round(time.monotonic() - started, 3))
        now = datetime.now(UTC).isoformat(timespec="seconds")
        gallery.reports.save(version, {"kind": "compaction", **asdict(done), "created_at": now})
        if not gallery.pointer.swap_compacted(activation, version):
            gallery.forget({version})
            raise GalleryBusyError(
                f"another version of gallery '{gallery.name}' was activated while it was compacted: "
                "it stays as it is"
            )
    return done


def _rows_of(view: GalleryView, folder: Path, on_progress: OnProgress) -> SnapshotRows:
    positions = np.arange(view.n_positions)
    live = positions[~view.is_dead(positions)]
    snapshot = view.snapshot
    embeddings = _gathered(view, live, folder / "embeddings.npy")
    graph = update_neighbor_graph(
        NeighborGraph(snapshot.neighbor_ids, snapshot.neighbor_similarities),
        live[: np.searchsorted(live, len(snapshot))],
        embeddings,
        on_progress=on_progress,
    )
    return SnapshotRows(_items_of(view, live), view.sequences(live), embeddings, graph)


def _gathered(view: GalleryView, live: Ints, path: Path) -> FloatArray:
    """(n, d) embeddings in a file: a large gallery's do not fit into memory twice."""
    parts = (view.vectors(live[start : start + _BLOCK]) for start in range(0, len(live), _BLOCK))
    return mapped_matrix(path, (len(live), view.snapshot.manifest.dim), parts)


def _items_of(view: GalleryView, live: Ints) -> pa.Table:
    places = np.arange(view.n_positions)
    places[view.patches.positions] = view.n_positions + np.arange(len(view.patches.positions))
    parts = (view.snapshot.item_table, view.segment.items, view.patches.items)
    schema = view.patches.items.schema
    everything = pa.concat_tables([part.select(ITEM_COLUMNS).cast(schema) for part in parts])
    return everything.take(pa.array(places[live]))
