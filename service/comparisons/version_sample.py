"""Comparison sample: what two versions of a gallery share, and the items that are searched for in both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from vicinal.indexer.storage.active_pointer import Activation
from vicinal.service.comparisons.compared_version import ComparedVersion
from vicinal.service.comparisons.version_record import ItemCounts

__all__ = ["ComparisonSample", "count_items", "draw_sample"]

Bools = npt.NDArray[np.bool_]
Objects = npt.NDArray[np.object_]
Positions = npt.NDArray[np.int64]

_COLUMNS = ["id", "content_sha256", "label"]


@dataclass(frozen=True)
class ComparisonSample:
    """Items with the same picture in both versions.

    Attributes:
        ids: (Q,) their ids, ascending.
        old: (Q,) their positions in the old version.
        new: (Q,) their positions in the new one.
        old_labels: (Q,) their labels there; None without one.
        new_labels: (Q,) the same.
    """

    ids: Objects
    old: Positions
    new: Positions
    old_labels: Objects
    new_labels: Objects

    @property
    def is_labelled(self) -> Bools:
        """(Q,) whether an item has one and the same label in both."""
        return np.array(
            [
                old is not None and old == new
                for old, new in zip(self.old_labels, self.new_labels, strict=True)
            ],
            dtype=bool,
        )

    @property
    def label_codes(self) -> npt.NDArray[np.uint32]:
        """(Q,) number of each item's label in the new version; an item without one is alone."""
        names = [f"label {one}" if one is not None else f"item {i}" for i, one in enumerate(self.new_labels)]
        return np.unique(np.array(names, dtype=np.str_), return_inverse=True)[1].astype(np.uint32)


def draw_sample(old: ComparedVersion, new: ComparedVersion, n: int, seed: int) -> ComparisonSample:
    """At most n items with the same picture in both versions as built, drawn without replacement.

    Args:
        old: The active version.
        new: The candidate.
        n: Most items.
        seed: Seed of the sample.
    """
    rows = _common(*(side.gallery.columns(side.version, _COLUMNS) for side in (old, new)))
    alike = rows.filter(pa.array(~_differ(rows, "content_sha256")))
    ids = np.sort(np.asarray(alike["id"].to_numpy(zero_copy_only=False), dtype=object))
    if len(ids) > n:
        ids = ids[np.sort(np.random.default_rng(seed).choice(len(ids), n, replace=False))]
    before, after = (side.positions(ids.tolist()) for side in (old, new))
    return ComparisonSample(ids, before, after, old.snapshot.labels[before], new.snapshot.labels[after])


def count_items(
    old: ComparedVersion, new: ComparedVersion, activation: Activation | None
) -> tuple[ItemCounts, bool]:
    """What two versions share as they would be searched, and whether the old one has live changes.

    Args:
        old: The active version.
        new: The candidate.
        activation: What is searched; it knows the live changes of both.
    """
    known = {} if activation is None else activation.known_revisions
    revisions = [known.get(side.version, side.version) for side in (old, new)]
    before, after = (
        side.gallery.columns(revision, _COLUMNS) for side, revision in zip((old, new), revisions, strict=True)
    )
    rows = _common(before, after)
    counts = ItemCounts(
        both=len(rows),
        only_old=len(before) - len(rows),
        only_new=len(after) - len(rows),
        other_image=int(_differ(rows, "content_sha256").sum()),
        other_label=int(_differ(rows, "label").sum()),
    )
    return counts, revisions[0] != old.version


def _common(old: pa.Table, new: pa.Table) -> pa.Table:
    """Rows of both by id; columns of the new one end in `_new`."""
    # Metadata of a schema says nothing about its rows, and joins want equal ones.
    tables = [table.replace_schema_metadata(None).cast(_schema()) for table in (old, new)]
    return tables[0].join(tables[1], keys="id", join_type="inner", right_suffix="_new")


def _schema() -> pa.Schema:
    return pa.schema([("id", pa.string()), ("content_sha256", pa.binary()), ("label", pa.string())])


def _differ(rows: pa.Table, column: str) -> Bools:
    old, new = (rows[name].to_pylist() for name in (column, f"{column}_new"))
    return np.array([one != other for one, other in zip(old, new, strict=True)], dtype=bool)
