"""Raw results name the commit of the sources that were measured."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks.common import record
from tests.programs import absence

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason=absence("git"))


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def repository(folder: Path, message: str) -> str:
    """A repository with one commit; its short name."""
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    identity = ("-c", "user.name=somebody", "-c", "user.email=somebody@example.com")
    git(folder, *identity, "commit", "--quiet", "--allow-empty", "--message", message)
    return git(folder, "rev-parse", "--short", "HEAD")


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of the module alone, with which results are saved here."""
    folder = tmp_path / "sources"
    (folder / "benchmarks" / "common").mkdir(parents=True)
    copied = shutil.copy(Path(record.__file__), folder / "benchmarks" / "common")
    monkeypatch.setattr(record, "__file__", str(copied))
    monkeypatch.setattr(record, "RESULTS", tmp_path / "results")
    # A temporary folder can lie inside of a repository.
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    return folder


def saved_commit() -> str:
    commit: str = json.loads(record.save_result("one", {"value": 1}).read_text(encoding="utf-8"))["commit"]
    return commit


def test_the_commit_is_that_of_the_sources_wherever_one_stands(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = repository(sources, "own")
    (tmp_path / "elsewhere").mkdir()
    other = repository(tmp_path / "elsewhere", "other")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert saved_commit() == own
    assert own != other


def test_a_copy_of_the_files_has_no_commit(sources: Path) -> None:
    """Negative control: nothing is taken from the folder that the tests run in."""
    assert sources.is_dir()
    assert saved_commit() == "unknown"


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(n) for n in range(100, 0, -1)]
    assert record.percentiles(values) == {"p50": 51.0, "p90": 91.0, "p99": 100.0}
    assert record.percentiles([3.0]) == {"p50": 3.0, "p90": 3.0, "p99": 3.0}
