"""Queue of jobs: its file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from vicinal.service.jobs import JobQueue


def test_what_is_asked_of_jobs_is_for_the_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    queue = JobQueue(tmp_path / "data" / "jobs.db")
    try:
        queue.put("key", b"value")
        files = sorted(path.name for path in (tmp_path / "data").iterdir())
        modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "data").iterdir()}
    finally:
        os.umask(before)
        queue.close()
    assert (files, modes) == (["jobs.db", "jobs.db-shm", "jobs.db-wal"], {0o600})
