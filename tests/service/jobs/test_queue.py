"""Queue of jobs: its file, and what becomes of jobs when it is exchanged."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from vicinal.service.errors import JobsUnavailableError
from vicinal.service.jobs.queue import JobQueue


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


# The store of a server, as others may change it under its feet: a backup that is laid over it, a disk that
# is mounted anew.


def _remove(path: Path) -> None:
    for one in path.parent.glob(f"{path.name}*"):
        one.unlink()


def _lay_over(path: Path) -> None:
    other = JobQueue(path.with_name("other.db"))
    other.put("theirs", b"1")
    other.close()
    _remove(path)
    path.with_name("other.db").rename(path)


def _mount_anew(path: Path) -> None:
    path.parent.rename(path.parent.with_name("away"))


@pytest.mark.parametrize("change", [_remove, _lay_over, _mount_anew])
def test_what_is_kept_lies_in_the_file_that_others_see(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    path = tmp_path / "data" / "jobs.db"
    queue = JobQueue(path)
    queue.put("before", b"1")
    change(path)
    queue.put("job", b"2")
    queue.enqueue("job", 1)
    for one in (queue, JobQueue(path)):
        kept = one.all()
        assert kept["job"] == b"2"
        assert ("theirs" in kept, "before" in kept) == (change is _lay_over, False)
        assert one.waiting() == {("job", 1)}


def _garble(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)


def _replace_by_a_folder(path: Path) -> None:
    path.mkdir()


def _link_nowhere(path: Path) -> None:
    path.symlink_to("nowhere/jobs.db")


@pytest.mark.parametrize("change", [_garble, _replace_by_a_folder, _link_nowhere])
def test_a_store_that_is_none_is_told_and_does_not_stay(
    tmp_path: Path, change: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "jobs.db"
    queue = JobQueue(path)
    queue.put("before", b"1")
    _remove(path)
    change(path)
    for _ in range(2):
        with pytest.raises(JobsUnavailableError, match="jobs cannot be kept"):
            queue.put("job", b"1")
    assert "jobs cannot be kept" in (queue.look() or "")
    assert caplog.text.count("jobs cannot be kept") == 1
    path.rmdir() if path.is_dir() else path.unlink()
    queue.put("job", b"1")
    assert (queue.look(), queue.get("job")) == (None, {"job": b"1"})
