"""Seals: damage is found at once in small files, by the full check in large ones, and after a crash."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from vicinal.indexer.storage.seals import FileSeal, TableSeals

SMALL, LARGE = 1000, 5 * 2**20


def _file(path: Path, n_bytes: int) -> Path:
    path.write_bytes(bytes(i % 251 for i in range(n_bytes)))
    return path


def _flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("n_bytes", [0, 1, SMALL, LARGE])
def test_an_untouched_file_fits_its_seal(tmp_path: Path, n_bytes: int) -> None:
    path = _file(tmp_path / "file", n_bytes)
    assert FileSeal.of(path).fits(path, whole=False)
    assert FileSeal.of(path).fits(path, whole=True)


@pytest.mark.parametrize("place", [0, SMALL // 2, SMALL - 1])
def test_a_flipped_bit_of_a_small_file_is_seen_at_once(tmp_path: Path, place: int) -> None:
    path = _file(tmp_path / "file", SMALL)
    seal = FileSeal.of(path)
    _flip(path, place)
    assert not seal.fits(path, whole=False)


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, LARGE - 1, 3 * (LARGE - 4096) // 63 + 100])
def test_a_flipped_bit_in_a_sample_block_of_a_large_file_is_seen_at_once(tmp_path: Path, place: int) -> None:
    path = _file(tmp_path / "file", LARGE)
    seal = FileSeal.of(path)
    _flip(path, place)
    assert not seal.fits(path, whole=False)


def test_a_flipped_bit_between_the_blocks_is_left_to_the_full_check(tmp_path: Path) -> None:
    path = _file(tmp_path / "file", LARGE)
    seal = FileSeal.of(path)
    _flip(path, 50_000)
    assert seal.fits(path, whole=False)
    assert not seal.fits(path, whole=True)


@pytest.mark.slow
@pytest.mark.parametrize("change", [b"", b"x" * (LARGE + 1)])
def test_another_size_is_seen_at_once(tmp_path: Path, change: bytes) -> None:
    path = _file(tmp_path / "file", LARGE)
    seal = FileSeal.of(path)
    path.write_bytes(change)
    assert not seal.fits(path, whole=False)


def test_a_missing_file_fits_no_seal(tmp_path: Path) -> None:
    seal = FileSeal.of(_file(tmp_path / "file", SMALL))
    assert not seal.fits(tmp_path / "absent", whole=False)
    assert not seal.fits(tmp_path / "absent", whole=True)


def test_a_changed_byte_anywhere_is_seen_by_the_full_check(tmp_path: Path) -> None:
    path, rng = _file(tmp_path / "file", LARGE), np.random.default_rng(3)
    seal = FileSeal.of(path)
    for place in rng.integers(0, LARGE, 20).tolist():
        _flip(path, place)
        assert not seal.fits(path, whole=True)
        _flip(path, place)
    assert seal.fits(path, whole=True)


@pytest.mark.parametrize("n_bytes", [0, 1, 2**20 - 1, 2**20, 2**20 + 1, 3 * 2**20 + 5])
def test_a_check_tells_how_much_it_has_read(tmp_path: Path, n_bytes: int) -> None:
    path, read = _file(tmp_path / "file", n_bytes), list[int]()
    seal = FileSeal.of(path)
    assert seal.fits(path, whole=True, on_read=read.append)
    assert (sum(read), len(seal.blocks)) == (n_bytes, 16 * len(read))


def test_a_check_ends_at_the_first_damaged_block(tmp_path: Path) -> None:
    path, read = _file(tmp_path / "file", 4 * 2**20), list[int]()
    seal = FileSeal.of(path)
    _flip(path, 2 * 2**20 + 7)
    assert not seal.fits(path, whole=True, on_read=read.append)
    assert read == [2**20, 2**20]


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


def test_whole_files_are_not_damaged(sealed: TableSeals, files: list[Path]) -> None:
    assert sealed.damaged(files, whole=True) is None


@pytest.mark.parametrize("whole", [True, False])
def test_another_byte_is_damage(sealed: TableSeals, files: list[Path], whole: bool) -> None:
    files[1].write_bytes(b"b" * 99 + b"c")
    assert sealed.damaged(files, whole=whole) == files[1]


def test_a_missing_file_is_damage(sealed: TableSeals, files: list[Path]) -> None:
    files[0].unlink()
    assert sealed.damaged(files, whole=False) == files[0]


def test_a_file_keeps_the_seal_that_it_got_first(sealed: TableSeals, files: list[Path]) -> None:
    files[0].write_bytes(b"something else")
    sealed.add(files)
    assert sealed.damaged(files, whole=True) == files[0]


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


def test_seals_go_with_their_files(sealed: TableSeals, files: list[Path]) -> None:
    files[0].unlink()
    sealed.forget_removed()
    assert sealed.damaged(files, whole=True) is None
    assert sealed.path.read_text().count("data/") == 1


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
