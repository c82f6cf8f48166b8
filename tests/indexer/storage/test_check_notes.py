"""Notes of checks: who opened the files before one began need not look, and damage is not forgotten."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from vicinal.indexer.errors import DamagedGalleryError
from vicinal.indexer.storage import files
from vicinal.indexer.storage.files import CheckNotes, Damage


@pytest.fixture
def notes(tmp_path: Path) -> CheckNotes:
    return CheckNotes(tmp_path)


@pytest.fixture
def damage(tmp_path: Path) -> Damage:
    (tmp_path / "embeddings.npy").write_bytes(b"damaged")
    return Damage.of(DamagedGalleryError("it is damaged", tmp_path / "embeddings.npy"))


def test_a_check_counts_for_who_opened_the_files_before_it_began(notes: CheckNotes) -> None:
    before = time.monotonic_ns()
    assert not notes.is_checked_since(before)
    notes.note_whole(time.monotonic_ns())
    after = time.monotonic_ns()
    assert (notes.is_checked_since(before), notes.is_checked_since(after)) == (True, False)


def test_a_check_counts_until_the_machine_starts_again(
    notes: CheckNotes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "boot_id").write_text("monday\n")
    monkeypatch.setattr(files, "_BOOT_ID", tmp_path / "boot_id")
    notes.note_whole(5)
    assert notes.is_checked_since(3)
    (tmp_path / "boot_id").write_text("tuesday\n")
    assert not notes.is_checked_since(3)


def test_what_was_found_is_known_to_every_process_until_it_is_whole(
    notes: CheckNotes, damage: Damage
) -> None:
    assert notes.damage() is None
    notes.note_damage(damage)
    assert CheckNotes(notes.folder).damage() == damage
    assert str(damage.error) == "it is damaged"
    notes.note_whole(5)
    assert notes.damage() is None


def test_a_file_that_was_brought_back_may_be_whole(damage: Damage) -> None:
    assert not damage.may_be_mended
    damage.file.write_bytes(b"brought back")
    assert damage.may_be_mended


def test_a_note_of_damage_that_is_damaged_still_says_so(notes: CheckNotes, damage: Damage) -> None:
    notes.note_damage(damage)
    (notes.folder / "damaged.json").write_text("{")
    found = notes.damage()
    assert found is not None
    assert "damaged.json' is damaged" in found.problem
    assert found.may_be_mended
