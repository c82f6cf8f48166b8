"""`vicinal duplicates`: from a folder of photos to a list of what could go, and its removal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

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


def held(tmp_path: Path, gallery: str = "album") -> set[str]:
    view = GalleryReader(Gallery.open(tmp_path / "data" / "galleries" / gallery)).view()
    return {item["id"] for item in view.items(view.positions_of_sequences(view.sequences(live(view))))}


def live(view: Any) -> np.ndarray:
    positions = np.arange(view.n_positions)
    return positions[~view.is_dead(positions)]


@pytest.mark.slow
def test_from_photos_to_a_list_to_their_removal(run: Run, album: dict[str, str], tmp_path: Path) -> None:
    listed = tmp_path / "delete.txt"
    output = run("duplicates", "-g", "album", "--delete-list", listed).stdout
    gone = set(listed.read_text(encoding="utf-8").splitlines())
    assert gone <= set(album)
    assert len(gone) >= 0.9 * len(album)
    assert "Nothing was deleted" in output
    assert "most pixels, then most bytes" in output
    assert len(held(tmp_path)) == 80
    run("gallery", "remove", "album", "--from", listed)
    assert held(tmp_path) == {*album, *album.values()} - gone


@pytest.mark.slow
def test_each_copy_stands_with_its_photo_and_says_what_was_done(run: Run, album: dict[str, str]) -> None:
    record = found(run)
    wrong = {"rotated": "rotated by", "mixed": "", "recompressed": "recompressed"}
    for group in record["groups"]:
        for copy in group["copies"]:
            assert album[copy["id"]] == group["kept"]["id"]
            made = copy["id"].removesuffix(".jpg").rpartition(" ")[2]
            assert wrong.get(made, made) in " ".join(copy["kinds"])
    assert record["n_exact"] == 10
    assert record["n_bytes"] == sum(one["n_bytes"] for group in record["groups"] for one in group["copies"])


def test_the_list_can_name_files(run: Run, album: dict[str, str], tmp_path: Path) -> None:
    listed = tmp_path / "delete.txt"
    run("duplicates", "-g", "album", "--exact", "--delete-list", listed, "--paths")
    paths = [Path(line) for line in listed.read_text(encoding="utf-8").splitlines()]
    assert len(paths) == 10
    assert all(path.is_file() and path.is_absolute() for path in paths)


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


def test_ready_embeddings_have_exact_copies_only(run: Run, tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(12, 8)).astype(np.float32)
    vectors[11] = vectors[3]
    vectors[10] = vectors[2] * 1.001 + 1e-4
    rows = {"id": [f"item {i}" for i in range(12)], "embedding": list(vectors)}
    parquet.write_table(pa.table(rows), tmp_path / "clip.parquet")
    run("index", tmp_path / "clip.parquet", "-g", "album", "--space", "clip-vit-b32")
    record = found(run)
    assert [[copy["id"] for copy in group["copies"]] for group in record["groups"]] == [["item 3"]]
    assert "holds ready embeddings and no pictures" in record["sentence"]
    output = run("duplicates", "-g", "album").stdout
    assert output.startswith(
        "1 of 12 items of gallery album could go: 1 exact copy and 0 changed in 1 group, "
    )
    assert "photo" not in output
