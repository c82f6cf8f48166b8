"""Coarse labels: the kinds that labels belong to, which tell near from far queries without a mate."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vicinal.calibration import CalibrationError
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.service.search.item_groups import value_text


def read_coarse_labels(path: Path) -> dict[str, str]:
    """Coarse label of each label, from a CSV file with the columns `label` and `coarse`."""
    with path.open(newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream)
        if not {"label", "coarse"} <= set(reader.fieldnames or ()):
            raise CalibrationError(f"'{path}' has no columns label and coarse: name them in its first line")
        return {row["label"]: row["coarse"] for row in reader}


def coarse_labels_by_column(
    snapshot: Snapshot, column: str, further: Iterable[tuple[str, Mapping[str, Any]]] = ()
) -> dict[str, str]:
    """Coarse label of each label, from a metadata column of the items and of further images."""
    table = snapshot.item_table.select(["label", "metadata"]).to_pydict()
    items = zip(table["label"], map(_parsed, table["metadata"]), strict=True)
    found: dict[str, str] = {}
    for label, metadata in (*items, *further):
        coarse = value_text(metadata.get(column))
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
