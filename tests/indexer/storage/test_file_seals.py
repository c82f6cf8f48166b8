"""Seals of the table's files: remembered through crashes, compared byte by byte, forgotten with the files."""

from __future__ import annotations

from pathlib import Path

import pytest

from vicinal.indexer.storage.file_seals import FileSeals


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
def sealed(folder: Path, files: list[Path]) -> FileSeals:
    FileSeals(folder).add(files)
    return FileSeals(folder)


def test_whole_files_are_not_damaged(sealed: FileSeals, files: list[Path]) -> None:
    assert sealed.damaged(files, whole=True) is None


@pytest.mark.parametrize("whole", [True, False])
def test_another_byte_is_damage(sealed: FileSeals, files: list[Path], whole: bool) -> None:
    files[1].write_bytes(b"b" * 99 + b"c")
    assert sealed.damaged(files, whole=whole) == files[1]


def test_a_missing_file_is_damage(sealed: FileSeals, files: list[Path]) -> None:
    files[0].unlink()
    assert sealed.damaged(files, whole=False) == files[0]


def test_a_file_keeps_the_seal_that_it_got_first(sealed: FileSeals, files: list[Path]) -> None:
    files[0].write_bytes(b"something else")
    sealed.add(files)
    assert sealed.damaged(files, whole=True) == files[0]


def test_half_a_line_of_a_crash_hides_no_other(sealed: FileSeals, folder: Path, files: list[Path]) -> None:
    with sealed.path.open("a") as stream:
        stream.write('["data/c", {"n_by')
    (folder / "data" / "d").write_bytes(b"d")
    sealed.add([folder / "data" / "d"])
    (folder / "data" / "d").write_bytes(b"e")
    assert sealed.damaged([*files, folder / "data" / "d"], whole=True) == folder / "data" / "d"


def test_seals_go_with_their_files(sealed: FileSeals, files: list[Path]) -> None:
    files[0].unlink()
    sealed.forget_removed()
    assert sealed.damaged(files, whole=True) is None
    assert sealed.path.read_text().count("data/") == 1
