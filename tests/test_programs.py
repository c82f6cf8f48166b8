"""Tests that need a program which is missing say so at the end, with the command that brings it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.programs import missing_programs, program
from tests.service.redis_server import RedisServer

ROOT = Path(__file__).resolve().parents[1]


def skips_of(*calls: Callable[[], object]) -> list[str]:
    reasons = []
    for call in calls:
        with pytest.raises(pytest.skip.Exception) as skipped:
            call()
        reasons.append(f"Skipped: {skipped.value}")
    return reasons


@pytest.mark.parametrize(
    ("names", "packages"),
    [
        (["redis-server"], "redis-server"),
        (["node", "node"], "nodejs"),
        (["promtool", "prometheus"], "prometheus"),
        (["chromium", "systemd-analyze", "g++"], "chromium g++ systemd"),
    ],
)
def test_missing_programs_are_one_line_with_their_command(
    names: list[str], packages: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "apt-get").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    line = missing_programs(skips_of(*(lambda name=name: program(name) for name in names)))
    assert line is not None
    assert line.startswith(f"{len(names)} skipped for want of ")
    assert all(name in line.partition(":")[0] for name in names)
    assert line.endswith(f"apt-get install -y {packages}")
    monkeypatch.setenv("PATH", "")
    assert "apt-get" not in (missing_programs(["Skipped: node is not installed (package nodejs)"]) or "")


def test_nothing_is_said_of_other_skips() -> None:
    assert missing_programs(["Skipped: needs torch", "this Faiss has no GPU"]) is None


def test_a_fixture_that_needs_redis_says_which_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (reason,) = skips_of(lambda: RedisServer(tmp_path / "redis"))
    assert reason.endswith("redis-server is not installed (package redis-server)")


@pytest.mark.slow
def test_the_last_line_of_a_run_names_what_is_missing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "1", "tests/service/test_redis_link.py"],
        cwd=ROOT,
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "skipped for want of redis-server" in done.stdout.rstrip().splitlines()[-1]
