"""Shared counts: the folder that the processes of one server count in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vicinal.service.http.serving.processes import shared_counts

SOURCES = Path(__file__).resolve().parents[3] / "src"
# A process that counts, and dies without a word.
COUNTING = """
import os, sys
from vicinal.service.http.access import Metrics
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.settings import Settings
metrics = Metrics(ServedBundles(Settings()))
metrics.record_problem("not-found")
metrics.record_request("GET", "/livez", 200, 0.001)
sys.stdout.write(metrics.exposition().decode())
sys.stdout.flush()
os._exit(1)
"""
PROBLEMS = 'vicinal_problems_total{type="not-found"}'
REQUESTS = 'vicinal_http_request_seconds_bucket{le="+Inf",method="GET",route="/livez",status="200"}'


@pytest.fixture(autouse=True)
def no_outer_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)


def counts_folder() -> Path | None:
    named = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    return Path(named) if named else None


def counted() -> dict[str, float]:
    """What one more process tells after it has counted one of each."""
    run = subprocess.run(
        [sys.executable, "-c", COUNTING],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=SOURCES,
    )
    lines = (line for line in run.stdout.splitlines() if not line.startswith("#"))
    return {series: float(value) for series, _, value in (line.rpartition(" ") for line in lines)}


@pytest.mark.slow
def test_processes_count_together_while_it_lasts() -> None:
    with shared_counts() as folder:
        told = [counted() for _ in range(2)]
        assert [(one[PROBLEMS], one[REQUESTS]) for one in told] == [(1.0, 1.0), (2.0, 2.0)]
        assert not any("pid=" in series for one in told for series in one)
    assert not folder.exists()
    # Negative control: without it each counts alone.
    assert [counted()[PROBLEMS] for _ in range(2)] == [1.0, 1.0]


def test_each_server_has_an_empty_folder_of_its_own() -> None:
    with shared_counts() as first:
        (first / "counter_1.db").write_bytes(b"")
        with shared_counts() as second:
            assert (first == second, list(second.iterdir()), counts_folder()) == (False, [], second)
        assert counts_folder() == first
    assert counts_folder() is None
