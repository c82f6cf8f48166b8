"""Source addition: all that can be added is, and what is there stays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.indexer.pictures import write_picture
from vicinal.indexer import EmbeddingSource, Gallery, SourceItem, index_items
from vicinal.indexer.errors import BuildError, ItemExistsError
from vicinal.indexer.jobs.embedding_run import RunOptions
from vicinal.indexer.jobs.source_addition import LiveAddition, add_embeddings, add_source
from vicinal.indexer.reader import GalleryReader
from vicinal.models.bundle import ModelBundle, space_manifest
from vicinal.models.embedder import Embedder, SpaceEmbedder


@pytest.fixture(scope="module")
def embedder(tiny_bundle: ModelBundle) -> Embedder:
    return Embedder(tiny_bundle, device="cpu", threads=1, batch_size=2)


def pictures(root: Path, seeds: range) -> list[SourceItem]:
    """Items `0`, `1` and so on, whatever they show."""
    return [SourceItem(str(i), write_picture(root / f"{seed}.png", seed)) for i, seed in enumerate(seeds)]


@pytest.fixture
def reader(tmp_path: Path, embedder: Embedder) -> GalleryReader:
    """A gallery of the items `0`, `1` and `2`."""
    gallery = Gallery(tmp_path / "galleries" / "shoes")
    index_items(gallery, pictures(tmp_path / "first", range(3)), embedder, workers=1)
    return GalleryReader(gallery)


def uris(reader: GalleryReader) -> dict[str, str]:
    return {item["id"]: Path(item["uri"]).parent.name for _, item in reader.view().page(None, 100)}


def counts(done: LiveAddition) -> dict[str, int]:
    fields = {name: getattr(done, f"n_{name}") for name in ("added", "replaced", "skipped", "unchanged")}
    return {name: count for name, count in fields.items() if count}


def test_other_images_of_taken_ids_stop_all_of_them(
    reader: GalleryReader, embedder: Embedder, tmp_path: Path
) -> None:
    before, revision = uris(reader), reader.view().revision
    with pytest.raises(ItemExistsError, match="3 ids belong to other images: '0', '1', '2'; ") as caught:
        add_source(reader, pictures(tmp_path / "second", range(10, 15)), embedder)
    assert caught.value.item_ids == ["0", "1", "2"]
    assert (uris(reader), reader.view().revision) == (before, revision)


def test_what_is_there_is_not_embedded_again(
    reader: GalleryReader, embedder: Embedder, tmp_path: Path
) -> None:
    seen: list[tuple[int, int]] = []
    images = pictures(tmp_path / "again", range(4))
    done = add_source(reader, images, embedder, on_progress=lambda _, *place: seen.append(place))
    assert (counts(done), seen[-1]) == ({"unchanged": 3, "added": 1}, (1, 1))
    done = add_source(reader, images, embedder, on_progress=lambda _, *place: seen.append(place))
    assert (counts(done), seen[-1]) == ({"unchanged": 4}, (0, 0))


def test_a_run_that_was_broken_off_is_completed_by_the_same_call(
    reader: GalleryReader, embedder: Embedder, tmp_path: Path
) -> None:
    images = [SourceItem(f"new {one.id}", one.path) for one in pictures(tmp_path / "new", range(10, 16))]
    images[4].path.write_bytes(b"words")
    strict = RunOptions(max_failures=0, rows_per_commit=1)
    with pytest.raises(BuildError):
        add_source(reader, images, embedder, options=strict)
    n_there = len(reader.view()) - 3
    assert 0 < n_there < 5
    done = add_source(reader, images, embedder)
    assert counts(done) == {"unchanged": n_there, "added": 5 - n_there}
    assert [one.id for one in done.failures] == ["new 4"]


@pytest.mark.parametrize("conflict", ["error", "skip", "replace"])
def test_an_id_that_is_taken_while_the_run_lasts_is_not_lost(
    reader: GalleryReader, embedder: Embedder, tmp_path: Path, conflict: str
) -> None:
    """Somebody else adds another image under `new 1` after the first look at the gallery."""
    mine, theirs = (
        [SourceItem(f"new {one.id}", one.path) for one in pictures(tmp_path / name, seeds)]
        for name, seeds in (("mine", range(10, 14)), ("theirs", range(20, 24)))
    )
    others = iter([theirs[1:2]])

    def add_theirs(*_: object) -> None:
        for items in others:
            add_source(GalleryReader(Gallery(reader.gallery.path)), items, embedder)

    done = add_source(reader, mine, embedder, conflict=conflict, on_progress=add_theirs)  # type: ignore[arg-type]
    expected = {
        "error": {"added": 3},
        "skip": {"added": 3, "skipped": 1},
        "replace": {"added": 3, "replaced": 1},
    }
    assert counts(done) == expected[conflict]
    assert [one.id for one in done.failures] == (["new 1"] if conflict == "error" else [])
    assert uris(reader)["new 1"] == ("mine" if conflict == "replace" else "theirs")


def ready(path: Path, n: int, *, seed: int = 0) -> EmbeddingSource:
    vectors = np.random.default_rng(seed).normal(size=(n, 8)).astype(np.float32)
    np.savez(path, embeddings=vectors, ids=[f"it's {i}" for i in range(n)])
    return EmbeddingSource.open(path)


@pytest.fixture
def clips(tmp_path: Path) -> GalleryReader:
    """A gallery of 20 ready embeddings."""
    gallery = Gallery(tmp_path / "galleries" / "clips")
    space = SpaceEmbedder(ModelBundle(gallery.space_path, space_manifest("clip", 8)), "clips")
    index_items(gallery, ready(tmp_path / "first.npz", 20), space)
    return GalleryReader(gallery)


def test_embeddings_that_are_there_are_unchanged_and_others_added(
    clips: GalleryReader, tmp_path: Path
) -> None:
    space = space_manifest("clip", 8)
    seen: list[tuple[str, int, int]] = []
    done = add_embeddings(
        clips, ready(tmp_path / "a.npz", 600), space, on_progress=lambda *step: seen.append(step)
    )
    # Drawn row by row, so that the first 20 are those that are there.
    assert counts(done) == {"added": 580, "unchanged": 20}
    assert seen == [("embed", 256, 600), ("embed", 512, 600), ("embed", 600, 600)]
    assert len(clips.view()) == 600


def test_rows_that_cannot_be_used_are_left_out_and_named(clips: GalleryReader, tmp_path: Path) -> None:
    vectors = np.random.default_rng(5).normal(size=(300, 8)).astype(np.float32)
    vectors[[7, 299]] = np.nan
    names = [f"new {i}" for i in range(300)]
    names[280] = "new\n280"
    np.savez(tmp_path / "a.npz", embeddings=vectors, ids=names)
    seen: list[tuple[str, int, int]] = []
    source, space = EmbeddingSource.open(tmp_path / "a.npz"), space_manifest("clip", 8)
    done = add_embeddings(clips, source, space, on_progress=lambda *step: seen.append(step))
    assert ([one.id for one in done.failures], done.n_added) == (["new 7", "row 281", "new 299"], 297)
    assert (seen[-1], len(clips.view())) == (("embed", 297, 297), 317)
