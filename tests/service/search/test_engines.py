"""Answers over an engine: those over Faiss bit for bit, whatever is asked and whatever has changed since."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.indexer.engines.fakes import ExactEngine
from vicinal.indexer.engines.vectors import FetchedVectors
from vicinal.indexer.errors import EngineError
from vicinal.indexer.jobs.changes import Patch, patch_items
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources.embeddings import EmbeddingSource
from vicinal.indexer.storage.home.places import VECTORS
from vicinal.models.bundle import ModelBundle
from vicinal.models.configs.sealed_json import sealed, unsealed
from vicinal.service.local_gallery import LocalGallery, open_gallery
from vicinal.service.search.answers import Answer

N, DIM = 240, 12
OWN = ("gallery", "milliseconds")
FILTERS = (
    None,
    "label LIKE 'label 1%'",
    "metadata.price < 50 AND NOT metadata.color = 'red'",
    "metadata.price BETWEEN 10 AND 90 OR metadata.color IS NULL",
    "metadata.day >= DATE '2026-03-01' AND id != 'item 7'",
    "metadata.color IN ('red', 'blue', 3) OR label IS NULL",
)
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"rerank": "off"},
    {"rerank": "contextual", "refine": "off"},
    {"refine": "both", "rerank": "contextual"},
    {"refine": "gallery"},
    {"group_by": "label", "refine": "off"},
    {"group_by": "label", "refine": "both"},
)


def drawn(rng: np.random.Generator, n: int, first: int = 0) -> EmbeddingSource:
    """Items around some directions, some without a label, a price or a color."""
    centers = np.random.default_rng(7).normal(size=(N // 8, DIM))
    kinds = rng.integers(0, len(centers), n)
    vectors = centers[kinds] + 0.3 * rng.normal(size=(n, DIM))
    colors = rng.choice(["red", "blue", "green", ""], n)
    metadata = [
        {
            "price": round(float(rng.uniform(0, 100)), 2),
            "day": f"2026-0{rng.integers(1, 7)}-1{rng.integers(10)}",
        }
        | ({"color": str(color)} if color else {})
        for color in colors
    ]
    return EmbeddingSource.of_arrays(
        vectors.astype(np.float32),
        [f"item {first + i}" for i in range(n)],
        labels=[None if rng.random() < 0.1 else f"label {kind}" for kind in kinds],
        metadata=metadata,
    )


@pytest.fixture(scope="module")
def exactly() -> Iterator[None]:
    """Candidates of an engine that are all there: then nothing may differ. And few rows are few."""
    patch = pytest.MonkeyPatch()
    patch.setattr("vicinal.indexer.engines.source.measured_candidates", lambda *_: ((N, N), (1.0, 1.0)))
    patch.setattr("vicinal.indexer.views.view._FEW_SELECTED", 5)
    yield
    patch.undo()


@pytest.fixture(params=["exact", pytest.param("milvus", marks=pytest.mark.slow)])
def galleries(
    request: pytest.FixtureRequest, tmp_path: Path, refined_space: Callable[..., ModelBundle]
) -> Iterator[tuple[LocalGallery, LocalGallery]]:
    """The same refined items, of which Faiss compares all, and an engine, one in memory or Milvus itself,
    finds candidates.
    """
    bundle, both = refined_space("clip", DIM, sides="both"), list[LocalGallery]()
    is_real = request.param == "milvus"
    url = request.getfixturevalue("milvus_server").url if is_real else "http://nowhere"
    for index in ("Flat", "milvus"):
        where = {"data_dir": tmp_path / "data", "bundle": bundle.path, "milvus_url": url}
        gallery = open_gallery(index.lower(), **where)
        if not is_real:
            gallery.bundles.engine._opened = ExactEngine()  # type: ignore[assignment]
        gallery.index(drawn(np.random.default_rng(0), N), space="clip", index=index)
        both.append(gallery)
    yield both[0], both[1]
    prefix = both[1].gallery.tables.prefix
    both[1].delete()
    with both[1].bundles.engine.asking() as asked:
        assert asked.names(prefix) == []
    for one in both:
        one.bundles.engine.close()


def answers(gallery: LocalGallery, seed: int) -> list[Any]:
    """Answers to queries, with all options and some filters that a seed draws."""
    rng, found = np.random.default_rng([seed, 3]), []
    queries = rng.normal(size=(3, DIM)).astype(np.float32)
    live = [one["id"] for _, one in gallery.matcher.view.page(None, 500)]
    for options in OPTIONS:
        for filter in rng.choice(len(FILTERS), 2, replace=False):
            asked = {**options, "filter": FILTERS[filter], "limit": 12, "threshold": 0.2}
            found += gallery.search_many(queries, **asked)
            found.append(gallery.search(item=str(rng.choice(live)), **asked))
    return [told(answer) for answer in found]


def told(answer: Answer) -> dict[str, str]:
    """All that an answer says but for its name and times; of numbers every bit."""
    return {name: repr(value) for name, value in vars(answer).items() if name not in OWN}


@pytest.mark.usefixtures("exactly")
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_answers_are_those_over_faiss(galleries: tuple[LocalGallery, LocalGallery], seed: int) -> None:
    faiss, engine = galleries
    assert engine.matcher.snapshot.index.device == "milvus"
    assert answers(engine, seed) == answers(faiss, seed)
    changed = np.random.default_rng([seed, 5])
    removed = [f"item {i}" for i in changed.choice(N, 25, replace=False)]
    left = sorted({f"item {i}" for i in range(N)} - set(removed))
    patches = {
        str(one): Patch(label="label 11", metadata={"price": 1, "color": "red"})
        for one in changed.choice(left, 30, replace=False)
    }
    for gallery in galleries:
        gallery.remove(removed)
        gallery.add(drawn(np.random.default_rng([seed, 1]), 20, first=N))
        patch_items(gallery._reader, patches)
    assert answers(engine, seed + 10) == answers(faiss, seed + 10)


@pytest.mark.usefixtures("exactly")
def test_a_machine_need_not_hold_the_vectors_that_an_engine_has(
    galleries: tuple[LocalGallery, LocalGallery],
) -> None:
    _, gallery = galleries
    expected = answers(gallery, 5)
    for name in VECTORS:
        for path in gallery.gallery.path.rglob(name):
            path.unlink()
    gallery._reader = GalleryReader(gallery.gallery)
    assert isinstance(gallery.matcher.snapshot.embeddings, FetchedVectors)
    assert answers(gallery, 5) == expected
    gallery.add(drawn(np.random.default_rng(1), 20, first=N))
    gallery.index(index="milvus")
    assert isinstance(gallery.matcher.snapshot.embeddings, np.ndarray)


@pytest.mark.parametrize(
    ("index", "advice"),
    [("postgres", "'milvus' or 'auto'"), ("over-milvus", "calibrate_threshold")],
)
def test_a_version_of_an_index_that_went_says_what_to_do_and_is_made_anew(
    tmp_path: Path, index: str, advice: str
) -> None:
    gallery = open_gallery("old", data_dir=tmp_path / "data")
    gallery.index(drawn(np.random.default_rng(0), N), space="clip", index="Flat")
    query = np.eye(1, DIM, dtype=np.float32)[0]
    expected = gallery.search(query, threshold=0.2).matches
    path = gallery.gallery.snapshot_path(1) / "snapshot.json"
    path.write_bytes(sealed(json.dumps(json.loads(unsealed(path.read_bytes())) | {"index": index})))
    old = open_gallery("old", data_dir=tmp_path / "data")
    with pytest.raises(EngineError, match=advice):
        old.search(query)
    with pytest.raises(EngineError, match=advice):
        old.index(index=index)
    old.index(index="auto")
    assert old.search(query, threshold=0.2).matches == expected


@pytest.mark.parametrize("kind", ["milvus", "SQ8", "auto"])
def test_the_index_of_a_gallery_stays_until_another_is_named(tmp_path: Path, kind: str) -> None:
    rng, gallery = np.random.default_rng(0), open_gallery("kept", data_dir=tmp_path / "data")
    gallery.bundles.engine._opened = ExactEngine()  # type: ignore[assignment]
    first = gallery.index(drawn(rng, N), space="clip", index=kind)
    expected = "Flat" if kind == "auto" else first.index
    assert gallery.index(drawn(rng, 8, N), space="clip").index == expected
    assert not gallery.index(drawn(np.random.default_rng(0), N), space="clip").is_new
    assert gallery.index().index == expected
    named = gallery.index(drawn(rng, 8, N + 8), space="clip", index="auto")
    assert named.index == "Flat"
