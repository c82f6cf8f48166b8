"""Files: what processes left half made goes when they are dead, and nobody looks into what is made."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vicinal.indexer.disk import paths_below
from vicinal.indexer.storage.files import make_folder, making_in, remove_half_made

HOLDING = """
import sys, time
from pathlib import Path
from vicinal.indexer.storage.files import making_in
with making_in(Path(sys.argv[1])):
    (Path(sys.argv[1]) / "3.abc.partial").mkdir()
    print("there", flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_what_is_half_made_goes_when_its_process_is_dead(tmp_path: Path) -> None:
    for name in ("whole", "notes.json.partial"):
        (tmp_path / name).touch()
    (tmp_path / "link.partial").symlink_to(tmp_path)
    (tmp_path / ".shoes.abc.deleted").mkdir()
    with subprocess.Popen([sys.executable, "-c", HOLDING, tmp_path], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        remove_half_made(tmp_path)
        assert (tmp_path / "3.abc.partial").is_dir()
        process.kill()
    remove_half_made(tmp_path)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["link.partial", "notes.json.partial", "whole"]


def test_where_nothing_can_be_held_what_is_a_day_old_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(9, "Bad file descriptor")

    monkeypatch.setattr("fcntl.flock", refuse)
    for name, age in (("old.partial", 25), ("young.partial", 1)):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - age * 3600,) * 2)
    with making_in(tmp_path):
        remove_half_made(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["young.partial"]


@pytest.mark.parametrize("umask", [0o022, 0o002, 0o000])
def test_nobody_else_looks_into_folders_that_are_made(tmp_path: Path, umask: int) -> None:
    tmp_path.chmod(0o755)
    before = os.umask(umask)
    try:
        make_folder(tmp_path / "data" / "galleries" / "shoes")
    finally:
        os.umask(before)
    made = [tmp_path / name for name in ("data", "data/galleries", "data/galleries/shoes")]
    assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o700] * 3
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


def test_a_folder_that_is_renamed_while_others_are_walked_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged, walk = tmp_path / "1.partial", Path.rglob
    staged.mkdir()
    (staged / "1.index").touch()

    def renaming(folder: Path, pattern: str) -> Iterator[Path]:
        if staged.exists():
            staged.rename(tmp_path / "1")
            # As the walk does that has read the old name.
            os.scandir(staged)
        return walk(folder, pattern)

    monkeypatch.setattr(Path, "rglob", renaming)
    assert paths_below(tmp_path, "*.index") == [tmp_path / "1" / "1.index"]
