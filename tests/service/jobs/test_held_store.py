"""Jobs while another process holds the file's write lock: who starts waits, says so, and goes on."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.logs import said_by
from tests.service.jobs.conftest import Steps
from tests.waiting import wait_until
from vicinal.service.errors import JobsUnavailableError
from vicinal.service.jobs import queue as queue_module
from vicinal.service.jobs.queue import JobQueue
from vicinal.service.jobs.records import Job, new_job
from vicinal.service.jobs.runner import JobRunner
from vicinal.service.jobs.store import JobStore
from vicinal.service.jobs.worker import JobWorker

# A process that takes the lock as a worker does, and says when it has it.
HOLDER = """
import sqlite3, sys, time
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("begin exclusive")
print("held", flush=True)
sys.stdin.read()
held.execute("rollback")
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture(autouse=True)
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "_BUSY_SECONDS", 0.2)


@pytest.fixture
def store(path: Path) -> Iterator[JobStore]:
    opened = JobStore(JobQueue(path))
    yield opened
    opened.queue.close()


@pytest.fixture
def job(store: JobStore) -> Job:
    return store.create(new_job("steps", "shoes", {}))


@pytest.fixture
def holder(job: Job, path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds the lock of a store in which a job waits."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def lets_go(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()


def thaws_and_lets_go(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGCONT)
    lets_go(process)


def told_away(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in said_by(caplog, "vicinal.service.jobs") if "does not answer" in line]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("is_stopped", "ends"),
    [(False, lets_go), (True, thaws_and_lets_go), (True, subprocess.Popen.kill)],
    ids=["lets go", "was frozen and thaws", "was frozen and is killed"],
)
def test_a_worker_that_starts_while_the_store_is_held_waits_and_then_works(
    holder: subprocess.Popen[bytes],
    is_stopped: bool,
    ends: Callable[[subprocess.Popen[bytes]], None],
    path: Path,
    job: Job,
    store: JobStore,
    steps: Steps,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if is_stopped:
        holder.send_signal(signal.SIGSTOP)
        os.waitpid(holder.pid, os.WUNTRACED)
    with JobWorker(JobStore(JobQueue(path)), {"steps": steps}, heartbeat_seconds=0.1):
        wait_until(lambda: told_away(caplog))
        assert steps.finished == []
        (said,) = told_away(caplog)
        assert f"process {holder.pid} holds it" in said
        assert (f"kill -CONT {holder.pid}" in said) == is_stopped
        ends(holder)
        wait_until(lambda: store.get(job.id).is_final)
        assert store.get(job.id).result == {"n": 5}


@pytest.fixture
def held(job: Job, path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sqlite3.Connection]:
    """A connection that holds the lock of a store in which a job waits, once it is told to."""
    monkeypatch.setattr(queue_module, "_BUSY_SECONDS", 0.0)
    monkeypatch.setattr(queue_module, "_LOOK_SECONDS", 0.0)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        yield connection


def test_a_store_that_is_held_in_mid_job_loses_nothing_and_is_told_of_once(
    held: sqlite3.Connection, job: Job, path: Path, steps: Steps, caplog: pytest.LogCaptureFixture
) -> None:
    class Stopping(threading.Event):
        n_waits = 0

        def wait(self, _: float | None = None) -> bool:
            """Wait between two tries to have the last word; the lock is let go in the third."""
            self.n_waits += 1
            if self.n_waits == 3:
                held.execute("rollback")
            return False

    store, stopping = JobStore(JobQueue(path)), Stopping()

    def hold(number: int) -> None:
        if number == 2:
            held.execute("begin exclusive")

    steps.before = hold
    runner = JobRunner(store, {"steps": steps}, worker="w", heartbeat_seconds=60.0, stopping=stopping)
    runner.run(job.id, 1)
    assert (stopping.n_waits, steps.finished) == (3, [0, 1, 2, 3, 4])
    assert (store.get(job.id).state, len(told_away(caplog))) == ("succeeded", 1)
    store.queue.close()


def a_folder(path: Path) -> None:
    path.mkdir()


def another_file(path: Path) -> None:
    path.write_bytes(b"no database at all " * 100)


def under_a_file(path: Path) -> None:
    path.parent.rmdir()
    path.parent.write_text("", encoding="utf-8")


@pytest.mark.parametrize("spoil", [a_folder, under_a_file])
def test_a_place_that_no_wait_mends_is_named_at_once_with_the_way_out(
    spoil: Callable[[Path], None], tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    spoil(tmp_path / "data" / "jobs.db")
    store = JobStore(JobQueue(tmp_path / "data" / "jobs.db"))
    with pytest.raises(JobsUnavailableError, match=r"jobs\.db.*VICINAL_RUN_JOBS"):
        JobWorker(store, {})


def test_a_damaged_store_is_to_be_moved_away(tmp_path: Path) -> None:
    another_file(tmp_path / "jobs.db")
    with pytest.raises(JobsUnavailableError, match=r"it is damaged: .*move it away"):
        JobQueue(tmp_path / "jobs.db").put("job", b"1")
