"""Jobs of before there were rows: `jobs.db`, a store of huey, with sealed JSON under `job:<id>`."""

from __future__ import annotations

import json
import logging
import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from vicinal.indexer.state.rows import Rows
from vicinal.indexer.state.schema import job_lists, jobs
from vicinal.models.configs.sealed_json import unsealed

logger = logging.getLogger(__name__)
_TIMES = ("created_at", "updated_at", "started_at", "finished_at")


def bring_in_jobs(folder: Path, rows: Rows) -> None:
    """Make rows of jobs that ended, and of those that wait or that a worker was at: these wait again."""
    address = f"{(folder / 'jobs.db').absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as file:
            kept = dict(file.execute("select key, value from kv where queue = 'vicinal'"))
    except sqlite3.Error as error:
        logger.warning("the jobs in '%s' cannot be read, and are left out: %s", folder / "jobs.db", error)
        return
    for job_id in [key.removeprefix("job:") for key in kept if key.startswith("job:")]:
        try:
            row = _row(json.loads(unsealed(kept[f"job:{job_id}"])))
        except (ValueError, KeyError, TypeError) as error:
            logger.warning("job '%s' is damaged, and is left out: %s", job_id, error)
            continue
        rows.add(jobs, {**row, "cancel_requested": int(f"cancel:{job_id}" in kept)})
        lists = {kind: kept[f"{kind}:{job_id}"] for kind in ("log", "failures") if f"{kind}:{job_id}" in kept}
        rows.add(job_lists, *({"id": job_id, "kind": kind, "content": lists[kind]} for kind in lists))


def _row(record: dict[str, Any]) -> dict[str, Any]:
    row = {name: json.dumps(one) if isinstance(one, dict | list) else one for name, one in record.items()}
    times = {name: datetime.fromisoformat(row[name]).timestamp() for name in _TIMES if row[name]}
    is_over = row["state"] in ("succeeded", "failed", "cancelled")
    return {**row, **times, "state": row["state"] if is_over else "queued"}
