"""Reader: keeps one gallery open in a process, and brings its view up to date when asked for it."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from vicinal.indexer.errors import GalleryError, GalleryNotFoundError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.graph.gpu import IndexDevices
from vicinal.indexer.storage.active_pointer import Activation
from vicinal.indexer.storage.item_table import Difference, as_matrix
from vicinal.indexer.views.snapshot import ITEM_COLUMNS
from vicinal.indexer.views.view import GalleryView, Patches, Segment, SegmentBuilder

# A version can be swapped and cleaned up between reading the pointer and opening it; not many times in a row.
_MOST_ATTEMPTS = 5


class GalleryReader:
    """Gallery that is open for reading; any number of threads may ask for its view.

    Asking reads one small file; after a live change also the changed rows, and after a new version its files
    are mapped. With `devices` it serves searches alone.
    """

    def __init__(self, gallery: Gallery, devices: IndexDevices | None = None) -> None:
        self.gallery = gallery
        self._devices = devices
        self._lock = threading.Lock()
        self._opened: _Opened | None = None

    def view(self) -> GalleryView:
        """The present state of the gallery."""
        return self.active()[1]

    def active(self) -> tuple[Activation, GalleryView]:
        """The present state of the gallery, and the activation that it belongs to."""
        opened = self._opened
        if opened is not None and opened.activation == self.gallery.pointer.read():
            return opened.activation, opened.view
        with self._lock:
            return self._bring_up_to_date()

    def reopen(self) -> None:
        """Open all files again when the view is next asked for, because they were made again."""
        with self._lock:
            self._opened = None

    def _bring_up_to_date(self) -> tuple[Activation, GalleryView]:
        for attempt in range(_MOST_ATTEMPTS):
            activation = self._activation()
            if self.gallery.is_awaited(activation):
                if self._opened is not None:
                    # A replica searches what it has until the rest is here.
                    return self._opened.activation, self._opened.view
                self.gallery.lay(again=True)
            try:
                self._opened = self._opened_at(activation)
                return activation, self._opened.view
            except GalleryError:
                if attempt == _MOST_ATTEMPTS - 1 or self._activation() == activation:
                    raise
        raise GalleryError(f"gallery '{self.gallery.name}' changes faster than it can be opened")

    def _opened_at(self, activation: Activation) -> _Opened:
        if self._opened is not None and self._opened.precedes(activation):
            # The revision that was open may be cleaned up: the built version never is while it is active.
            with suppress(GalleryError):
                return self._opened.at(activation)
        snapshot = self.gallery.snapshot(activation.version)
        if self._devices is not None:
            snapshot.serve(self._devices)
        view = replace(GalleryView.of(snapshot), calibrated_as=activation.calibrated_as)
        segment = SegmentBuilder(snapshot.manifest.dim)
        return _Opened(self.gallery, activation, view, segment).at(activation)

    def _activation(self) -> Activation:
        activation = self.gallery.activation
        if activation is None:
            raise GalleryNotFoundError(f"there is no gallery '{self.gallery.name}'")
        return activation


@dataclass(frozen=True, eq=False)
class _Opened:
    """An activation and its view; `at` grows the view's segment, which only its owner may do."""

    gallery: Gallery
    activation: Activation
    view: GalleryView
    segment: SegmentBuilder

    def precedes(self, activation: Activation) -> bool:
        """Tell whether only live changes lie between."""
        mine = self.activation
        return (mine.version, mine.token) == (activation.version, activation.token)

    def at(self, activation: Activation) -> _Opened:
        view = self.view
        if view.revision != activation.revision:
            table = self.gallery.table
            difference = table.difference(view.revision, activation.revision, view.next_number)
            view = self._changed(difference, activation)
        return replace(self, activation=activation, view=view)

    def _changed(self, difference: Difference, activation: Activation) -> GalleryView:
        before = self.view
        removed = before.positions_of_sequences(difference.removed)
        patches = _merged(before.patches, difference.patched, before)
        # Last, so that nothing that fails leaves rows behind.
        self.segment.extend(_as_segment(difference.added, before))
        return GalleryView(
            snapshot=before.snapshot,
            segment=self.segment.segment(),
            dead=np.union1d(before.dead, removed),
            patches=patches,
            revision=activation.revision,
            next_number=activation.next_number,
            calibrated_as=activation.calibrated_as,
        )


def _as_segment(added: pa.Table, before: GalleryView) -> Segment:
    sequences = added["sequence"].to_numpy()
    listed = as_matrix(added["neighbor_ids"])
    positions = before.positions_of_sequences(listed)
    # A neighbor may have come with the same change, or be gone again by now.
    own = np.searchsorted(sequences, listed)
    own[own == len(sequences)] = 0
    is_own = np.isin(listed, sequences)
    return Segment(
        sequences=sequences,
        embeddings=as_matrix(added["embedding"]),
        neighbor_positions=np.where(is_own, own + before.n_positions, positions),
        neighbor_similarities=as_matrix(added["neighbor_similarities"]),
        items=added.select(ITEM_COLUMNS),
    )


def _merged(before: Patches, patched: pa.Table, view: GalleryView) -> Patches:
    """The patches before, those of the same items replaced by later ones."""
    positions = view.positions_of_sequences(patched["sequence"].to_numpy())
    items = patched.select(ITEM_COLUMNS).cast(before.items.schema)
    kept = ~np.isin(before.positions, positions)
    merged = np.concatenate([before.positions[kept], positions])
    order = np.argsort(merged)
    rows = pa.concat_tables([before.items.filter(pa.array(kept)), items]).take(pa.array(order))
    return Patches(merged[order], rows.combine_chunks())
