"""`vicinal duplicates`: from a folder of photos to a list of what could go, and its removal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.photos import draw_photo, write_album
from tests.service.types import Run
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.reader import GalleryReader


@pytest.fixture
def album(run: Run, tmp_path: Path) -> dict[str, str]:
    """Gallery `album` of 40 photos and their copies; the photo of each copy."""
    origin = write_album(tmp_path / "album")
    run("index", tmp_path / "album", "-g", "album")
    return {f"album/{copy}": f"album/{photo}" for copy, photo in origin.items()}


def found(run: Run, *options: object) -> dict[str, Any]:
    return dict(json.loads(run("duplicates", "-g", "album", "--json", *options).stdout))


def test_the_list_can_name_files_and_what_is_in_it_be_set_aside(
    run: Run, album: dict[str, str], tmp_path: Path
) -> None:
    listed = tmp_path / "delete.txt"
    output = run(
        "duplicates", "-g", "album", "--exact", "--delete-list", listed, "--paths", "--set-aside"
    ).stdout
    paths = [Path(line) for line in listed.read_text(encoding="utf-8").splitlines()]
    assert len(paths) == 10
    assert all(path.is_file() and path.is_absolute() for path in paths)
    assert "Set 10 aside" in output
    view = GalleryReader(Gallery.open(tmp_path / "data/galleries/album")).view()
    assert (view.positions([f"album/{path.name}" for path in paths]) < 0).all()


@pytest.mark.slow
def test_photos_that_are_all_different_have_no_copies(run: Run, tmp_path: Path) -> None:
    """Negative control."""
    (tmp_path / "album").mkdir()
    for seed in range(30):
        draw_photo(seed).save(tmp_path / "album" / f"{seed}.jpg")
    run("index", tmp_path / "album", "-g", "album")
    record = found(run, "--precision", 0.5)
    assert record["groups"] == []
    assert "No photos" in run("duplicates", "-g", "album").stdout or record["n_near"] == 0
