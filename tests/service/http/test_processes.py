"""Several processes serve together, end together, and one that dies is replaced."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from benchmarks.load.client import Plan, outcome, started
from tests.ports import free_port
from tests.waiting import Clock, wait_until
from vicinal.models.bundle import ModelBundle
from vicinal.service.errors import RequestError
from vicinal.service.http.serving import processes

SEARCH = "/v1/galleries/shoes/search"
ITEM = {"item_id": "plain/view 0.png"}
# What a search may wait for where the machine stands still.
PATIENT = {"VICINAL_MAX_WAIT_SECONDS": "60"}
# As a script starts what it goes on beside: SIGINT is ignored there.
IN_BACKGROUND = ("sh", "-c", "trap '' INT; exec \"$@\"", "sh")
REQUEST = (
    f"POST {SEARCH} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    'Content-Length: 31\r\n\r\n{"item_id": "plain/view 0.png"}'
).encode()


@pytest.fixture
def data(calibrated_base: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(calibrated_base, tmp_path / "data"))


@contextmanager
def served(
    data: Path,
    bundle: ModelBundle,
    *options: str,
    own_session: bool = False,
    through: tuple[str, ...] = (),
    **variables: str,
) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Port and process of `vicinal serve`, ended afterwards whatever happened."""
    port = free_port()
    command = [
        *through,
        sys.executable,
        "-m",
        "vicinal",
        "serve",
        "--port",
        str(port),
        "--data-dir",
        str(data),
        *options,
    ]
    server = subprocess.Popen(
        [*command, "--bundle", str(bundle.path)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[3],
        env={k: v for k, v in os.environ.items() if not k.startswith("VICINAL_")} | PATIENT | variables,
        start_new_session=own_session,
    )
    with server:
        try:
            wait_until(lambda: is_alive(port), every=0.1)
            yield port, server
        finally:
            server.terminate()


def is_alive(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/livez").status_code == 200
    except httpx.TransportError:
        return False


def children_of(process: subprocess.Popen[str]) -> set[int]:
    """Processes that a process started; helpers of the interpreter are none of ours."""
    threads = [one.name for one in Path(f"/proc/{process.pid}/task").iterdir()]
    listed = {int(pid) for tid in threads for pid in about(process.pid, f"task/{tid}/children").split()}
    return {pid for pid in listed if "spawn_main" in about(pid, "cmdline")}


def about(pid: int, what: str) -> str:
    """A file of a process in /proc; empty where the process is gone."""
    try:
        return Path(f"/proc/{pid}/{what}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_replaced(pid: int, server: subprocess.Popen[str], n: int) -> bool:
    """Whether a server has `n` processes without this one."""
    # Of one moment: it may end between two.
    now = children_of(server)
    return len(now) == n and pid not in now


def state_of(pid: int) -> str:
    """State of a process, one letter; Z also for one that is gone."""
    fields = about(pid, "stat").rpartition(")")[2].split()
    return fields[0] if fields else "Z"


def runs(pid: int) -> bool:
    return state_of(pid) != "Z"


def ends(pids: set[int]) -> Callable[[], bool]:
    return lambda: not any(runs(pid) for pid in pids)


@pytest.mark.slow
def test_a_process_that_dies_is_replaced_and_searches_go_on(data: Path, tiny_bundle: ModelBundle) -> None:
    with served(data, tiny_bundle, "--workers", "2") as (port, server):
        wait_until(lambda: len(children_of(server)) == 3)
        before = children_of(server)
        os.kill(min(before), signal.SIGKILL)
        wait_until(lambda: is_replaced(min(before), server, 3))
        assert len(before & children_of(server)) == 2
        for _ in range(20):
            answer = httpx.post(f"http://127.0.0.1:{port}{SEARCH}", json=ITEM, timeout=30)
            assert answer.status_code == 200
        server.send_signal(signal.SIGTERM)
        _, written = server.communicate(timeout=60)
    assert server.returncode == 0
    assert "another one is started" in written
    assert "Traceback" not in written


@pytest.mark.parametrize(
    ("workers", "through"), [("1", IN_BACKGROUND), ("2", ())], ids=["in the background", "in front"]
)
@pytest.mark.slow
def test_ctrl_c_ends_all_without_a_word_of_where_they_were(
    data: Path, tiny_bundle: ModelBundle, workers: str, through: tuple[str, ...]
) -> None:
    options = "--workers", workers
    with served(data, tiny_bundle, *options, own_session=True, through=through) as (_, server):
        # Some are just being started.
        os.killpg(server.pid, signal.SIGINT)
        _, written = server.communicate(timeout=90)
    assert (server.returncode, "Traceback" in written, "is killed" in written) == (0, False, False)


@pytest.mark.slow
def test_the_jobs_of_a_server_end_with_it_and_come_back_without_it(
    data: Path, tiny_bundle: ModelBundle
) -> None:
    with served(data, tiny_bundle) as (port, server):
        wait_until(lambda: len(children_of(server)) == 1)
        (jobs,) = children_of(server)
        wait_until(lambda: os.getpriority(os.PRIO_PROCESS, jobs) == 19)
        assert os.getpriority(os.PRIO_PROCESS, server.pid) == os.getpriority(os.PRIO_PROCESS, 0)
        # Who serves alone counts in no folder.
        assert httpx.post(f"http://127.0.0.1:{port}{SEARCH}", json=ITEM, timeout=300).status_code == 200
        assert n_answered(port) == 1
        assert b"PROMETHEUS_MULTIPROC_DIR" not in Path(f"/proc/{server.pid}/environ").read_bytes()
        os.kill(jobs, signal.SIGKILL)
        wait_until(lambda: not runs(jobs))
        base = f"http://127.0.0.1:{port}/v1"
        job = httpx.post(f"{base}/admin/galleries/shoes/calibrations", json={"activate": False}, timeout=30)
        address = f"{base}/jobs/{job.json()['id']}"
        wait_until(lambda: httpx.get(address, timeout=30).json()["state"] == "succeeded")
        after = children_of(server)
        assert after
        server.kill()
        wait_until(ends(after))


@pytest.mark.slow
def test_clients_lose_no_request_when_the_server_stops(data: Path, tiny_bundle: ModelBundle) -> None:
    with served(data, tiny_bundle, "--workers", "2") as (port, server):
        client = started(Plan("127.0.0.1", port, [REQUEST], connections=8, seconds=20.0, warm_up=0.0))
        wait_until(lambda: n_answered(port) > 100)
        server.send_signal(signal.SIGTERM)
        _, written = server.communicate(timeout=60)
        seen = outcome(client)
    assert server.returncode == 0
    assert "Traceback" not in written
    assert seen["dropped"] == 0
    # Where the machine stands still some would wait too long.
    assert {"200"} <= set(seen["statuses"]) <= {"200", "429"}
    # Negative control: the server went while the client was sending.
    assert seen["refused"] > 0


def lines_of_metrics(port: int) -> list[str]:
    return httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=300).text.splitlines()


def n_answered(port: int) -> float:
    lines = lines_of_metrics(port)
    return sum(float(line.split()[-1]) for line in lines if line.startswith("vicinal_answers_total"))


@contextmanager
def only(chosen: int, processes: set[int]) -> Iterator[None]:
    """Let one process alone take connections."""
    others = processes - {chosen}
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    try:
        wait_until(lambda: all(state_of(pid) == "T" for pid in others))
        yield
    finally:
        for pid in others:
            os.kill(pid, signal.SIGCONT)


def counts_of(pid: int) -> Path:
    """Folder that a process counts in."""
    variables = Path(f"/proc/{pid}/environ").read_text().split("\0")
    (folder,) = (one.partition("=")[2] for one in variables if one.startswith("PROMETHEUS_MULTIPROC_DIR="))
    return Path(folder)


@pytest.mark.slow
def test_metrics_count_all_processes_whichever_answers(data: Path, tiny_bundle: ModelBundle) -> None:
    with served(data, tiny_bundle, "--workers", "2", VICINAL_RUN_JOBS="false") as (port, server):
        wait_until(lambda: len(children_of(server)) == 2)
        both = children_of(server)
        for pid in both:
            with only(pid, both):
                for _ in range(10):
                    answer = httpx.post(f"http://127.0.0.1:{port}{SEARCH}", json=ITEM, timeout=300)
                    assert answer.status_code == 200
        for pid in both:
            with only(pid, both):
                assert n_answered(port) == 20
                # What galleries are is told once, and not by each process.
                told = [line for line in lines_of_metrics(port) if line.startswith("vicinal_gallery_items{")]
                assert told == ['vicinal_gallery_items{gallery="shoes"} 60.0']
        folder, killed = counts_of(min(both)), min(both)
        assert list(folder.glob(f"gauge_live*_{killed}.db"))
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: is_replaced(killed, server, 2))
        # It has answered, and it is at nothing any more.
        assert n_answered(port) == 20
        assert not list(folder.glob(f"gauge_live*_{killed}.db"))
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)
    assert not folder.exists()


@pytest.mark.slow
def test_changes_of_one_process_are_seen_by_the_other_and_all_end_when_the_first_is_killed(
    data: Path, tiny_bundle: ModelBundle
) -> None:
    with served(data, tiny_bundle, "--workers", "2") as (port, server):
        wait_until(lambda: len(children_of(server)) == 3)
        base = f"http://127.0.0.1:{port}/v1/galleries/shoes/items"
        for number in range(6):
            # Each on a connection of its own, which either process may take.
            assert httpx.delete(f"{base}/plain/view {number}.png", timeout=30).status_code == 204
            for _ in range(4):
                assert httpx.get(f"{base}/plain/view {number}.png", timeout=30).status_code == 404
        children = children_of(server)
        server.kill()
        wait_until(ends(children))


def test_a_rate_without_redis_is_refused_in_one_sentence(
    data: Path, run: Callable[..., object], fail: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VICINAL_RATE_LIMIT", "10/minute")
    assert "set redis_url" in fail("serve", "--workers", "2", "--data-dir", data, "--port", "0")


def test_a_process_that_ends_too_often_or_says_that_it_cannot_start_is_not_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, started = Clock(), list[float]()
    monkeypatch.setattr(processes, "time", SimpleNamespace(monotonic=clock))
    child = processes._Child("server", print, ())

    def start(one: processes._Child) -> None:
        started.append(clock.now)
        one._started, one.process = clock.now, SimpleNamespace(exitcode=1, pid=0)  # type: ignore[assignment]

    monkeypatch.setattr(processes._Child, "start", start)
    child.start()
    # It has lived for long before it ends each time.
    for _ in range(2 * processes._MOST_SOON):
        clock.now += 2 * processes._SOON
        child.replace()
    for _ in range(processes._MOST_SOON - 1):
        child.replace()
    with pytest.raises(RequestError, match="cannot start"):
        child.replace()
    assert len(started) == 3 * processes._MOST_SOON
    child.n_soon = 0
    child.process.exitcode = processes._CANNOT_START  # type: ignore[union-attr, misc]
    with pytest.raises(RequestError):
        child.replace()


@pytest.mark.slow
def test_a_bundle_that_cannot_be_opened_ends_all_with_its_reason(
    data: Path, tmp_path: Path, fail: Callable[..., str]
) -> None:
    given = ("--data-dir", data, "--bundle", tmp_path / "none", "--port", free_port())
    assert str(tmp_path / "none") in fail("serve", "--workers", "2", *given)
