"""Seals: a damaged byte is found at once in small files, and by the full check in large ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from vicinal.indexer.storage import seals
from vicinal.indexer.storage.seals import is_checked_since_boot, is_intact, is_whole, note_checked, seal_of

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
    assert is_intact(path, seal_of(path))
    assert is_whole(path, seal_of(path))


@pytest.mark.parametrize("place", [0, SMALL // 2, SMALL - 1])
def test_a_flipped_bit_of_a_small_file_is_seen_at_once(tmp_path: Path, place: int) -> None:
    path = _file(tmp_path / "file", SMALL)
    seal = seal_of(path)
    _flip(path, place)
    assert not is_intact(path, seal)


@pytest.mark.parametrize("place", [0, LARGE - 1, 3 * (LARGE - 4096) // 63 + 100])
def test_a_flipped_bit_in_a_sample_block_of_a_large_file_is_seen_at_once(tmp_path: Path, place: int) -> None:
    path = _file(tmp_path / "file", LARGE)
    seal = seal_of(path)
    _flip(path, place)
    assert not is_intact(path, seal)


def test_a_flipped_bit_between_the_blocks_is_left_to_the_full_check(tmp_path: Path) -> None:
    path = _file(tmp_path / "file", LARGE)
    seal = seal_of(path)
    _flip(path, 50_000)
    assert is_intact(path, seal)
    assert not is_whole(path, seal)


@pytest.mark.parametrize("change", [b"", b"x" * (LARGE + 1)])
def test_another_size_is_seen_at_once(tmp_path: Path, change: bytes) -> None:
    path = _file(tmp_path / "file", LARGE)
    seal = seal_of(path)
    path.write_bytes(change)
    assert not is_intact(path, seal)


def test_a_missing_file_fits_no_seal(tmp_path: Path) -> None:
    seal = seal_of(_file(tmp_path / "file", SMALL))
    assert not is_intact(tmp_path / "absent", seal)
    assert not is_whole(tmp_path / "absent", seal)


def test_a_check_holds_until_the_machine_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "boot_id").write_text("monday\n")
    monkeypatch.setattr(seals, "_BOOT_ID", tmp_path / "boot_id")
    marker = tmp_path / "checked"
    assert not is_checked_since_boot(marker)
    note_checked(marker)
    assert is_checked_since_boot(marker)
    (tmp_path / "boot_id").write_text("tuesday\n")
    assert not is_checked_since_boot(marker)


def test_where_the_system_names_no_start_nothing_counts_as_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seals, "_BOOT_ID", tmp_path / "absent")
    note_checked(tmp_path / "checked")
    assert not is_checked_since_boot(tmp_path / "checked")
