"""Item groups: photos that were taken together, and labels of one kind.

Photos of one visit or session look alike for reasons that a later query will not share: light, shelf,
camera. In a calibration they are never each other's mates, candidates or context. Coarse labels, the kinds
that labels belong to, tell near from far queries without a mate.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.calibration import CalibrationError
from vicinal.indexer.views.snapshot import Snapshot

__all__ = ["PhotoGroups", "coarse_labels_by_column", "group_name", "read_coarse_labels"]

Positions = npt.NDArray[np.int64]
_NOBODY: Positions = np.empty(0, np.int64)


@dataclass(frozen=True)
class PhotoGroups:
    """Groups of a gallery's items.

    Attributes:
        column: Metadata column that names the group.
        names: (n,) group of each item; None for an item that is a group of its own.
    """

    column: str
    names: npt.NDArray[np.object_]

    @classmethod
    def of(cls, snapshot: Snapshot, column: str) -> PhotoGroups:
        """Groups by a metadata column; an item without a value is a group of its own.

        Raises:
            CalibrationError: No item has a value in the column.
        """
        texts = snapshot.item_table["metadata"].to_pylist()
        metadata = [json.loads(text or "{}") for text in texts]
        names = np.array([group_name(one.get(column)) for one in metadata], dtype=object)
        if not any(name is not None for name in names):
            known = sorted({key for one in metadata for key in one})
            raise CalibrationError(
                f"no item has a value in the metadata column '{column}' to group by; the gallery's columns: "
                f"{', '.join(known) or 'none'}"
            )
        return cls(column, names)

    @property
    def largest(self) -> int:
        """Items of the largest group."""
        return max(map(len, self._members.values()), default=1)

    @property
    def n(self) -> int:
        """Groups, those of a single item included."""
        return len(self._members) + sum(name is None for name in self.names)

    def members(self, name: str | None) -> Positions:
        """Ascending positions of the items of a group; none for None, or for a group that is not here."""
        return _NOBODY if name is None else self._members.get(name, _NOBODY)

    @cached_property
    def _members(self) -> dict[str, Positions]:
        places: dict[str, list[int]] = {}
        for position, name in enumerate(self.names):
            if name is not None:
                places.setdefault(name, []).append(position)
        return {name: np.array(found, dtype=np.int64) for name, found in places.items()}


def group_name(value: Any) -> str | None:
    """One text for equal values of a metadata column, whether written `3` or `3.0`; None for a missing one.

    Args:
        value: A JSON value; empty text and NaN count as missing.
    """
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def read_coarse_labels(path: Path) -> dict[str, str]:
    """Coarse label of each label, from a CSV file with the columns `label` and `coarse`.

    Raises:
        CalibrationError: It has no such columns.
    """
    with path.open(newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream)
        if not {"label", "coarse"} <= set(reader.fieldnames or ()):
            raise CalibrationError(f"'{path}' has no columns label and coarse: name them in its first line")
        return {row["label"]: row["coarse"] for row in reader}


def coarse_labels_by_column(
    snapshot: Snapshot, column: str, further: Iterable[tuple[str, Mapping[str, Any]]] = ()
) -> dict[str, str]:
    """Coarse label of each label, from a metadata column of the items and of further images.

    Args:
        snapshot: The gallery version.
        column: Metadata column that names the coarse label.
        further: Label and metadata of queries from outside.

    Raises:
        CalibrationError: The images of one label have different coarse labels, or none has any.
    """
    table = snapshot.item_table.select(["label", "metadata"]).to_pydict()
    items = zip(table["label"], map(_parsed, table["metadata"]), strict=True)
    found: dict[str, str] = {}
    for label, metadata in (*items, *further):
        coarse = group_name(metadata.get(column))
        if label is None or coarse is None:
            continue
        if found.setdefault(label, coarse) != coarse:
            raise CalibrationError(
                f"images of label '{label}' have the coarse labels '{found[label]}' and '{coarse}' in column "
                f"'{column}': a label belongs to one"
            )
    if not found:
        raise CalibrationError(f"no image has a value in the metadata column '{column}'")
    return found


def _parsed(metadata: str | None) -> dict[str, Any]:
    return dict(json.loads(metadata or "{}"))
