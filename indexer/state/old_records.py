"""Older files of a gallery's records: calibrations with what is in force, comparisons, doubles, reports."""

from __future__ import annotations

import hashlib
import json
import logging
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Table, insert

from vicinal.indexer.state.rows import Rows
from vicinal.indexer.state.schema import activations, attachments, documents, search_counts
from vicinal.models.configs.sealed_json import unsealed

logger = logging.getLogger(__name__)
# Folders that are read, and what a document of each is; beside the records other files lie in some.
FOLDERS = ("calibrations", "comparisons", "duplicates", "reports")
_KINDS = {
    "calibrations": "calibration",
    "calibrations/checks": "check",
    "comparisons": "comparison",
    "duplicates": "duplicates",
    "reports": "report",
}
_NO_RECORDS = {"active.json", "activations.json", "pipeline.json", "verdicts.json"}
# Files beside a calibration, by the key of its record that has their checksum.
_ATTACHED = {
    "scores_sha256": (".scores.npz", "scores"),
    "curves_sha256": (".evidence.json.gz", "curves"),
    "points_sha256": (".points.npz", "points"),
}
# When a record was made, by its own words.
_TIMES = ("created_at", "checked_at", "at")
# Records of this method are read no more.
_GONE = "rerank=k_reciprocal"


def bring_in_records(gallery: Path, rows: Rows) -> None:
    """Make rows of the files in a gallery's folder."""
    for folder, kind in _KINDS.items():
        for file in sorted((gallery / folder).glob("*.json")):
            if file.name not in _NO_RECORDS and (record := _read(file)) is not None:
                _bring_record(rows, file, kind, record)
    calibrations = gallery / "calibrations"
    _bring_choice(rows, calibrations / "pipeline.json")
    _bring_events(rows, calibrations)
    _bring_metrics(rows, calibrations / "metrics")
    for file in sorted((calibrations / "drift").glob("*.json")):
        if (counted := _read(file)) is not None:
            calibration, _, counter = file.stem.rpartition(".")
            row = {"calibration": calibration, "counter": counter, "since": _seconds(counted["since"])}
            rows.put(search_counts, {**row, "content": json.dumps(counted)})


def _read(file: Path) -> dict[str, Any] | None:
    """Fields of a sealed file; None where it is damaged, which is told."""
    try:
        return dict(json.loads(unsealed(file.read_bytes())))
    except (OSError, ValueError) as error:
        logger.warning("'%s' is left out: %s", file, error)
        return None


def _bring_record(rows: Rows, file: Path, kind: str, record: dict[str, Any]) -> None:
    name = {"kind": kind, "id": file.stem}
    for key, (suffix, attached) in _ATTACHED.items() if kind == "calibration" else ():
        content = _bound(file.with_suffix(suffix), record.get(key))
        if content is not None:
            rows.put(attachments, {**name, "name": attached, "content": content})
    at = next((one for one in (_seconds(record.get(key)) for key in _TIMES) if one), file.stat().st_mtime)
    rows.put(documents, {**name, "at": at, "content": json.dumps(record)})


def _bound(file: Path, sha256: str | None) -> bytes | None:
    if sha256 is None:
        return None
    try:
        content = file.read_bytes()
    except OSError as error:
        logger.warning("'%s' is left out: %s", file, error)
        return None
    if hashlib.sha256(content).hexdigest() == sha256:
        return content
    logger.warning("'%s' is left out: it is not what was written", file)
    return None


def _bring_choice(rows: Rows, file: Path) -> None:
    if not file.exists():
        return
    chosen = _read(file)
    if chosen is None:
        # Searches are refused as before, until somebody chooses again.
        _add_damaged(rows, documents, {"kind": "pipeline", "id": "", "at": 0.0, "content": ""})
        return
    row = {"kind": "pipeline", "id": "", "at": _seconds(chosen["at"]), "content": json.dumps(chosen)}
    rows.put(documents, row)


def _bring_events(rows: Rows, calibrations: Path) -> None:
    """Bring in what was put in force: of the two files one may be damaged, or lack the last change."""
    files = [calibrations / name for name in ("active.json", "activations.json")]
    if not any(file.exists() for file in files):
        return
    active, history = (_read(file) if file.exists() else None for file in files)
    events = [] if history is None else list(history["events"])
    last = {one["pipeline"]: one["calibration"] for one in events}
    for slot, one in (active or {}).items():
        if last.get(slot) != one["calibration"]:
            events.append({"kind": "activate", "pipeline": slot, **one})
    if active is None and not events:
        nothing = {"number": 1, "slot": "", "kind": "activate", "calibration": "", "at": None}
        _add_damaged(rows, activations, nothing)
    events = [one for one in events if _GONE not in one["pipeline"]]
    for number, one in enumerate(events, start=1):
        event = {"number": number, "slot": one["pipeline"], "kind": one["kind"]}
        rows.put(activations, {**event, "calibration": one["calibration"], "at": _seconds(one["at"])})


def _bring_metrics(rows: Rows, folder: Path) -> None:
    """Metrics by their checksum, and sums of photos beside the gallery by the bundle."""
    file = folder / "beside.json"
    beside = (_read(file) if file.exists() else None) or {}
    for path in sorted(folder.glob("*.npz")):
        content = _bound(path, path.stem)
        if content is not None:
            is_beside = path.stem == beside.get("sha256")
            kind, name = ("beside", beside["bundle"]) if is_beside else ("metric", path.stem)
            rows.put(attachments, {"kind": kind, "id": name, "name": "", "content": content})


def _add_damaged(rows: Rows, table: Table, row: dict[str, Any]) -> None:
    rows.connection.execute(insert(table), {**rows.sealed(table, row), "seal": b""})


def _seconds(at: str | None) -> float | None:
    return None if at is None else datetime.fromisoformat(at).timestamp()
