"""Files: sealed ones are read again only after they were replaced, and never given out when damaged."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from vicinal.indexer.errors import GalleryError
from vicinal.indexer.storage.files import (
    SealedFile,
    broken_files,
    make_folder,
    making_in,
    read_sealed,
    read_sealed_or_refuse,
    remove_half_made,
    write_atomically,
    write_sealed,
)
from vicinal.models.configs.sealed_json import BrokenSealError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_sealed(tmp_path / "record.json", '{"n": 1}')
    return tmp_path / "record.json"


def settled(path: Path, at: float = 1e9) -> None:
    """As if it had been written a while ago."""
    os.utime(path, (at, at))


def test_a_replaced_file_is_read_again_however_soon(path: Path) -> None:
    file = SealedFile(path, json.loads)
    for n in range(300):
        write_sealed(path, json.dumps({"n": n}), durable=False)
        assert file.read() == {"n": n}


def test_a_settled_file_is_read_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settled(path)
    file = SealedFile(path, json.loads)
    first = file.read()
    monkeypatch.setattr(Path, "read_bytes", lambda _path: pytest.fail("it was read"))
    assert file.read() is first


def test_a_young_file_is_understood_once(path: Path) -> None:
    """What a caller holds stays the same object, although the bytes are compared again."""
    parsed: list[bytes] = []
    file = SealedFile(path, lambda content: parsed.append(content) or json.loads(content))
    assert file.read() is file.read()
    assert len(parsed) == 1


def test_a_file_of_the_same_size_and_time_is_told_by_its_inode(path: Path) -> None:
    settled(path)
    file = SealedFile(path, json.loads)
    assert file.read() == {"n": 1}
    other = path.with_name("other.json")
    write_sealed(other, '{"n": 2}')
    settled(other)
    other.replace(path)
    assert file.read() == {"n": 2}


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    for read in (read_sealed, SealedFile(tmp_path / "record.json", json.loads).read):
        with pytest.raises(FileNotFoundError):
            read(*([tmp_path / "record.json"] if read is read_sealed else []))  # type: ignore[operator]


def test_a_damaged_file_says_what_to_do(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))
    with pytest.raises(BrokenSealError):
        SealedFile(path, json.loads).read()
    with pytest.raises(GalleryError, match=r"record\.json' is damaged: ask somebody"):
        read_sealed_or_refuse(path, "ask somebody")


@pytest.mark.parametrize("error", [KeyError("a"), TypeError("b"), ValueError("c"), AttributeError("d")])
def test_what_says_something_else_than_expected_counts_as_damaged(path: Path, error: Exception) -> None:
    def refuse(_content: bytes) -> Any:
        raise error

    with pytest.raises(BrokenSealError, match="something else than expected"):
        SealedFile(path, refuse).read()


def test_broken_files_are_found_wherever_they_lie(tmp_path: Path) -> None:
    for name in ("a.json", "deep/er/b.json", "staging/job/c.json", "items.lance/data/d.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write_sealed(tmp_path / name, '{"n": 1}')
    assert list(broken_files(tmp_path)) == []
    for path in tmp_path.rglob("*.json"):
        write_atomically(path, b"{}")
    # What is staged goes with its job, and Lance looks after its own files.
    assert list(broken_files(tmp_path)) == [tmp_path / "a.json", tmp_path / "deep/er/b.json"]


HOLDING = """
import sys, time
from pathlib import Path
from vicinal.indexer.storage.files import making_in
with making_in(Path(sys.argv[1])):
    (Path(sys.argv[1]) / "3.abc.partial").mkdir()
    print("there", flush=True)
    time.sleep(600)
"""


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
