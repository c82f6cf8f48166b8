"""Live difference: what was added, replaced, patched and removed in a gallery since a noted state.

The noted state is a small table of its own: the revisions of the item table in between are cleaned up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from vicinal.calibration.arrays import Ints
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.staging import Base
from vicinal.indexer.storage.active_pointer import Activation

_SCHEMA = pa.schema(
    [
        ("sequence", pa.int64()),
        ("patch", pa.int64()),
        ("id", pa.string()),
        ("added_at", pa.timestamp("us", tz="UTC")),
    ]
)


@dataclass(frozen=True)
class LiveDiff:
    """What happened since a noted state.

    Attributes:
        outdated: Ids of items that are gone, or are no longer what they were.
        sequences: Sequences of the present rows that are new or changed, ascending.
    """

    outdated: list[str]
    sequences: Ints


def contents_of(gallery: Gallery, activation: Activation | None) -> pa.Table:
    """Columns `sequence`, `patch`, `id` and `added_at` of what is searched, by sequence; maybe none."""
    if activation is None:
        return _SCHEMA.empty_table()
    return gallery.columns(activation.revision, _SCHEMA.names).cast(_SCHEMA)


def live_diff(base: Base, now: pa.Table) -> LiveDiff | None:
    """Compare what is searched with a noted state.

    Returns:
        What happened, or None when the items were not changed but indexed anew, so that nothing can be
        compared.
    """
    before, next_number = base.contents, base.next_number
    old_sequences, sequences = (table["sequence"].to_numpy() for table in (before, now))
    old = now.filter(pa.array(sequences < next_number))
    places = np.searchsorted(old_sequences, old["sequence"].to_numpy())
    if (places >= len(before)).any():
        return None
    same = before.take(pa.array(places))
    if any(
        same[name].combine_chunks() != old[name].combine_chunks() for name in ("sequence", "id", "added_at")
    ):
        return None
    patches, old_patches = (table["patch"].to_numpy() for table in (old, same))
    if (patches != old_patches)[patches < next_number].any():
        # Whoever went back to an earlier version took a patch back.
        return None
    is_changed = (sequences >= next_number) | (now["patch"].to_numpy() >= next_number)
    is_gone = ~np.isin(old_sequences, sequences)
    came = now.filter(pa.array(is_changed))
    came_ids = came["id"].to_pylist()
    gone_ids = before.filter(pa.array(is_gone))["id"].to_pylist()
    return LiveDiff(
        outdated=sorted({*gone_ids, *came_ids}),
        sequences=came["sequence"].to_numpy(),
    )
