"""A gallery from a program: what the commands do, as methods."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import vicinal
from vicinal.indexer.errors import (
    GalleryNotFoundError,
    SourceError,
)
from vicinal.models.bundle import ModelBundle
from vicinal.models.errors import EmbeddingError
from vicinal.service.errors import RequestError

N_THINGS, N_VIEWS, DIM = 20, 5, 16


@pytest.fixture
def shop(data_dir: Path, tiny_bundle: ModelBundle) -> vicinal.LocalGallery:
    """The gallery of the fixtures, of images."""
    return vicinal.open_gallery("shoes", data_dir=data_dir, bundle=tiny_bundle.path, device="cpu", threads=1)


def arrays(n_things: int = N_THINGS, seed: int = 0) -> vicinal.EmbeddingSource:
    rng = np.random.default_rng(seed)
    things = np.repeat(np.arange(n_things), N_VIEWS)
    centers = np.random.default_rng(99).normal(size=(n_things, DIM))
    return vicinal.EmbeddingSource.of_arrays(
        centers[things] + 0.3 * rng.normal(size=(len(things), DIM)),
        [f"item {number}" for number in range(len(things))],
        labels=[f"thing {thing}" for thing in things],
        metadata=[{"price": int(thing)} if thing else {} for thing in things],
    )


@pytest.fixture
def clips(tmp_path: Path) -> vicinal.LocalGallery:
    """A new gallery of ready embeddings."""
    opened = vicinal.open_gallery("clips", data_dir=tmp_path / "elsewhere")
    opened.index(arrays(), space="made-up")
    return opened


def test_a_gallery_that_is_not_there_is_made_by_its_first_index(
    tmp_path: Path, catalog: Path, tiny_bundle: ModelBundle
) -> None:
    new = vicinal.open_gallery("new", data_dir=str(tmp_path), bundle=str(tiny_bundle.path))
    assert (new.exists, len(new), list(tmp_path.iterdir())) == (False, 0, [])
    with pytest.raises(GalleryNotFoundError, match="there is no gallery 'new'"):
        new.search("some.png")
    made = new.index(catalog)
    assert (made.version, made.n_items, len(new), new.exists) == (1, len(new), made.n_items, True)
    assert "'new' at" in repr(new)


def test_any_kind_of_picture_finds_the_same(
    shop: vicinal.LocalGallery,
    view: Callable[[int, int], Image.Image],
    encode: Callable[..., bytes],
    tmp_path: Path,
) -> None:
    picture = view(1, 9)
    encoded = encode(picture)
    (tmp_path / "query.png").write_bytes(encoded)
    queries: list[Any] = [picture, encoded, tmp_path / "query.png", str(tmp_path / "query.png")]
    alone = [shop.search(query, include_candidates=True) for query in queries]
    together = shop.search_many(queries, include_candidates=True)
    assert len({one.candidates[0].id for one in [*alone, *together]}) == 1
    assert alone[0].candidates == alone[3].candidates == together[2].candidates


def test_an_embedding_is_a_query_as_a_list_or_as_an_array(clips: vicinal.LocalGallery) -> None:
    vectors = np.asarray(clips.matcher.snapshot.embeddings)[:3]
    one = clips.search(vectors[0], limit=2, threshold=0.5)
    assert one.matches[0].id == "item 0"
    assert clips.search(vectors[0].tolist(), limit=2, threshold=0.5).matches == one.matches
    assert [each.matches[0].id for each in clips.search_many(vectors, threshold=0.5)] == [
        "item 0",
        "item 1",
        "item 2",
    ]
    with pytest.raises(EmbeddingError):
        clips.search([1.0, 2.0])


@pytest.mark.slow
def test_items_come_out_with_their_embeddings_as_they_are_now(clips: vicinal.LocalGallery) -> None:
    clips.remove(["item 0"])
    clips.add(vicinal.EmbeddingSource.of_arrays(np.eye(DIM)[:1], ["new"], metadata=[{"price": 3}]))
    records, embeddings = clips.items()
    assert [one["id"] for one in records] == [*(f"item {i}" for i in range(1, len(clips))), "new"]
    assert (records[-1]["label"], records[-1]["metadata"]) == (None, {"price": 3})
    assert (embeddings.shape, embeddings.dtype) == ((len(clips), DIM), np.float32)
    assert embeddings[-1].tolist() == np.eye(DIM)[0].tolist()


def test_what_is_added_is_found_at_once_and_what_is_removed_is_not(
    shop: vicinal.LocalGallery, view: Callable[[int, int], Image.Image], tmp_path: Path
) -> None:
    n_before = len(shop)
    view(3, 77).save(tmp_path / "new.png")
    done = shop.add(tmp_path / "new.png")
    assert (done.n_added, len(shop)) == (1, n_before + 1)
    best = shop.search(tmp_path / "new.png", include_candidates=True, limit=1)
    (added,) = [*best.matches, *best.candidates][:1]
    assert added.similarity == pytest.approx(1.0, abs=1e-5)
    assert shop.remove([added.id]) == 1
    assert len(shop) == n_before
    assert shop.index(tmp_path / "new.png").left_out == [added.id]
    assert shop.index(tmp_path / "new.png", restore=True).counts == {"added": 1}
    shop.remove([added.id])
    assert shop.add(tmp_path / "new.png").n_added == 1


def test_embeddings_of_arrays_are_items_with_labels_and_metadata(clips: vicinal.LocalGallery) -> None:
    items = clips.matcher.view.items(range(len(clips)))
    assert len(clips) == N_THINGS * N_VIEWS
    assert (items[7]["id"], items[7]["label"], items[7]["metadata"]) == ("item 7", "thing 1", {"price": 1})
    assert items[0]["metadata"] == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ids": ["a"]}, "1 values of id for 2 embeddings"),
        ({"ids": ["a", "a"]}, "has the id 'a' of row 1"),
        ({"ids": ["a", "b"], "labels": ["x"]}, "1 values of label"),
        ({"ids": ["a", "b"], "metadata": [{}]}, "1 values of metadata"),
        ({"ids": ["a", "b"], "metadata": [{"label": 1}, {}]}, "has the key 'label'"),
        ({"ids": ["a", "b"], "metadata": [{"price": 1}, {"price": "two"}]}, "of mixed kinds"),
        ({"ids": ["a", ""]}, "has no id"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        vicinal.EmbeddingSource.of_arrays(np.eye(2), **given)


@pytest.mark.parametrize("option", ["asked", "embedded", "without", "images", "limits"])
def test_only_options_of_a_search_are_taken(clips: vicinal.LocalGallery, option: str) -> None:
    for search in (clips.search, clips.search_many):
        with pytest.raises(RequestError, match=f"there is no option '{option}'"):
            search(np.ones((1, 2)), **{option: 5})
