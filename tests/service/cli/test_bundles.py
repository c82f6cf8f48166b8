"""Commands take the bundle that a gallery was embedded with, as the server does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import Result

from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources import read_source
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder

Run = Callable[..., Result]


@pytest.fixture
def other(
    gallery: Gallery,
    catalog: Path,
    tmp_path: Path,
    write_bundle: Callable[..., ModelBundle],
    monkeypatch: pytest.MonkeyPatch,
) -> ModelBundle:
    """A bundle below `bundles_dir` that embedded the gallery's active version."""
    bundle = write_bundle(tmp_path / "bundles" / "other", seed=1)
    monkeypatch.setenv("VICINAL_BUNDLES_DIR", str(tmp_path / "bundles"))
    index_items(gallery, read_source(catalog), Embedder(bundle, device="cpu", threads=1), workers=1)
    return bundle


@pytest.fixture
def picture(tmp_path: Path, view: Callable[[int, int], Image.Image]) -> Path:
    path = tmp_path / "new.png"
    view(2, 7).save(path)
    return path


def test_added_images_are_embedded_with_the_version_s_bundle(
    run: Run, other: ModelBundle, picture: Path
) -> None:
    run("gallery", "add", "shoes", picture)
    answer = json.loads(run("search", picture, "-g", "shoes", "--json").stdout)
    best = answer["candidates"][0]
    assert (best["id"], best["similarity"]) == ("new.png", pytest.approx(1.0, abs=1e-6))
