"""Processors that a process may use: those that it is bound to, and no more than its control groups allow."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.source_tree import ROOT
from vicinal.models import runtime
from vicinal.models.runtime import usable_processors

V1 = "cpu.cfs_quota_us", "cpu.cfs_period_us"
Files = dict[str, str]
CASES: dict[str, tuple[str, Files, int]] = {
    "no groups": ("", {}, 8),
    "no limit": ("0::/\n", {"cpu.max": "max 100000\n"}, 8),
    "two and a half": ("0::/\n", {"cpu.max": "250000 100000\n"}, 3),
    "the smallest of all": ("0::/a/b\n", {"a/cpu.max": "400000 100000", "a/b/cpu.max": "300000 100000"}, 3),
    "a path of the machine": ("0::/docker/0123\n", {"cpu.max": "200000 100000"}, 2),
    "version 1": (
        "4:cpu,cpuacct:/\n",
        {f"cpu,cpuacct/{V1[0]}": "200000", f"cpu,cpuacct/{V1[1]}": "100000"},
        2,
    ),
    "nonsense": ("0::/\n", {"cpu.max": "much 0\n"}, 8),
    "no period": ("0::/\n", {"cpu.max": "100000 0\n"}, 8),
}


@pytest.mark.parametrize(("groups", "files", "expected"), CASES.values(), ids=CASES.keys())
def test_a_quota_bounds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: str, files: Files, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    for name, content in {
        "proc/self/cgroup": groups,
        **{f"sys/fs/cgroup/{n}": c for n, c in files.items()},
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    assert usable_processors(tmp_path) == expected


def test_a_machine_without_control_groups_has_those_that_it_is_bound_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    assert usable_processors(tmp_path) == 2


@pytest.mark.slow
def test_a_process_that_is_bound_to_one_processor_uses_one() -> None:
    one = min(os.sched_getaffinity(0))
    code = (
        f"import os; os.sched_setaffinity(0, {{{one}}})\n"
        "from vicinal.models.runtime import usable_processors\n"
        "from vicinal.indexer.graph.vector_index import n_threads\n"
        "print(usable_processors(), n_threads())"
    )
    environment = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, text=True, capture_output=True, check=True
    )
    assert found.stdout.split() == ["1", "1"]


def test_nobody_else_counts_processors() -> None:
    """Python's own count is that of the machine, which a container has a share of."""
    counting = re.compile(r"sched_getaffinity|process_cpu_count|ThreadPoolExecutor\(\)")
    own = Path(runtime.__file__).resolve()
    for package in ("calibration", "models", "refine", "indexer", "service"):
        for file in (ROOT / package).rglob("*.py"):
            if file.resolve() != own:
                assert not counting.search(file.read_text(encoding="utf-8")), file
