"""Seals of a table and notes of checks: damage is found, and remembered until it is made good."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vicinal.indexer.storage.files import FileSeal
from vicinal.indexer.storage.sealed_folder import TableSeals


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "table" / "data").mkdir(parents=True)
    for name in ("a", "b"):
        (tmp_path / "table" / "data" / name).write_bytes(name.encode() * 100)
    return tmp_path / "table"


@pytest.fixture
def files(folder: Path) -> list[Path]:
    return sorted((folder / "data").iterdir())


@pytest.fixture
def sealed(folder: Path, files: list[Path]) -> TableSeals:
    TableSeals(folder).add(files)
    return TableSeals(folder)


@pytest.mark.parametrize("whole", [True, False])
def test_another_byte_is_damage(sealed: TableSeals, files: list[Path], whole: bool) -> None:
    files[1].write_bytes(b"b" * 99 + b"c")
    assert sealed.damaged(files, whole=whole) == files[1]


def test_half_a_line_of_a_crash_hides_no_other(sealed: TableSeals, folder: Path, files: list[Path]) -> None:
    with sealed.path.open("a") as stream:
        stream.write('["data/c", {"n_by')
    (folder / "data" / "d").write_bytes(b"d")
    sealed.add([folder / "data" / "d"])
    (folder / "data" / "d").write_bytes(b"e")
    assert sealed.damaged([*files, folder / "data" / "d"], whole=True) == folder / "data" / "d"


@pytest.mark.parametrize("value", [0, 10, 32, ord("7"), 0xFF])
def test_a_damaged_line_stops_no_healthy_file_and_hides_no_other(
    sealed: TableSeals, files: list[Path], value: int
) -> None:
    """Whichever byte of a line it is, and whatever the disk made of it."""
    whole = sealed.path.read_bytes()
    second = whole.rindex(b"\n", 0, -1) + 1
    for place in range(second, len(whole), 7):
        sealed.path.write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
        assert sealed.damaged(files, whole=True) is None
    # The first line still holds, and the second file gets another one.
    files[0].write_bytes(b"c")
    assert sealed.damaged(files, whole=True) == files[0]
    sealed.path.write_bytes(whole[: second + 30] + b"?" + whole[second + 31 :])
    sealed.add(files)
    files[0].write_bytes(b"a" * 100)
    files[1].write_bytes(b"c")
    assert sealed.damaged(files, whole=True) == files[1]


def test_a_settled_file_is_compared_once_and_again_when_it_was_written(
    sealed: TableSeals, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every thumbnail and every filter reads the table: what fitted is not read again for each."""
    for file in files:
        os.utime(file, (1, 1))
    compared = []
    fits = FileSeal.fits
    monkeypatch.setattr(
        FileSeal, "fits", lambda seal, path, *, whole: compared.append(path) or fits(seal, path, whole=whole)
    )
    for _ in range(3):
        assert sealed.damaged(files, whole=False) is None
    assert compared == files
    files[0].write_bytes(b"a" * 99 + b"b")
    assert sealed.damaged(files, whole=False) == files[0]
