"""Sealed files are never given out when damaged.

Damage of others is found at once in small files, by the full check in large ones, and after a crash.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vicinal.indexer.errors import GalleryError
from vicinal.indexer.storage.files import (
    FileSeal,
    read_sealed_or_refuse,
    write_sealed,
)

SMALL, LARGE = 1000, 5 * 2**20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_sealed(tmp_path / "record.json", '{"n": 1}')
    return tmp_path / "record.json"


def test_a_damaged_file_says_what_to_do(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))
    with pytest.raises(GalleryError, match=r"record\.json' is damaged: ask somebody"):
        read_sealed_or_refuse(path, "ask somebody")


def _file(path: Path, n_bytes: int) -> Path:
    path.write_bytes((np.arange(n_bytes) % 251).astype(np.uint8).tobytes())
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


@pytest.mark.parametrize("place", [0, LARGE - 1, 3 * (LARGE - 4096) // 63 + 100])
def test_a_flipped_bit_in_a_sample_block_of_a_large_file_is_seen_at_once(tmp_path: Path, place: int) -> None:
    path = _file(tmp_path / "file", LARGE)
    seal = FileSeal.of(path)
    _flip(path, place)
    assert not seal.fits(path, whole=False)


def test_a_changed_byte_anywhere_is_seen_by_the_full_check(tmp_path: Path) -> None:
    path, rng = _file(tmp_path / "file", LARGE), np.random.default_rng(3)
    seal = FileSeal.of(path)
    for place in rng.integers(0, LARGE, 6).tolist():
        _flip(path, place)
        assert not seal.fits(path, whole=True)
        _flip(path, place)
    assert seal.fits(path, whole=True)
