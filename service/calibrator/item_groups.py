"""Photo groups: items that were taken together, such as those of one visit or session.

Photos of one visit look alike for reasons that a later query will not share: light, shelf, camera. In a
calibration they are never each other's mates, candidates or context.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.calibration import CalibrationError
from vicinal.indexer.views.snapshot import Snapshot

__all__ = ["PhotoGroups", "group_name"]

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
