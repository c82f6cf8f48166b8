"""Integrity: damage that opening does not see is found, and nothing damaged is searched once it was."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tests.service.types import MakeSettings
from vicinal.indexer.errors import DamagedGalleryError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import remove_items
from vicinal.indexer.jobs.compaction import compact
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.storage import files
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.galleries.open_galleries import OpenGalleries

DERIVED = (
    "embeddings.npy",
    "initial.index",
    "items.arrow",
    "neighbor_ids.npy",
    "neighbor_similarities.npy",
    "sequences.npy",
)


@pytest.fixture(scope="module")
def large_dir(tmp_path_factory: pytest.TempPathFactory, base_dir: Path) -> Iterator[Path]:
    """Data folder whose gallery's files all count as large: opening compares 256 bytes of each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_SMALL_BYTES", 0)
        patch.setattr(files, "_BLOCK_BYTES", 128)
        patch.setattr(files, "_N_BLOCKS", 2)
        root = tmp_path_factory.mktemp("large") / "data"
        shutil.copytree(base_dir, root)
        gallery = Gallery(root / "galleries" / "shoes")
        # The table was sealed with samples of another size.
        (gallery.path / "items.seals").unlink()
        table = gallery.table
        table.seal(table.latest())
        for number in range(2):
            reader = GalleryReader(gallery)
            remove_items(reader, [f"plain/view {number}.png"])
            compact(reader)
        yield root


@pytest.fixture
def folder(tmp_path: Path, large_dir: Path) -> Path:
    """A copy of that gallery."""
    shutil.copytree(large_dir, tmp_path / "data")
    return tmp_path / "data" / "galleries" / "shoes"


@pytest.fixture
def opened(folder: Path, make_settings: MakeSettings) -> Callable[..., OpenGalleries]:
    """A server's galleries, as of a process that has just started."""

    def galleries(**settings: float) -> OpenGalleries:
        return OpenGalleries(ServedBundles(make_settings(folder.parents[1], **settings)))

    return galleries


def found(galleries: OpenGalleries) -> list[tuple[str, float]]:
    answer = galleries.matcher("shoes").search(item_ids=["x_y/view 0.png"], include_candidates=True)[0]
    return [(one.id, one.score) for one in (*answer.matches, *(answer.candidates or ()))]


def found_whole(galleries: OpenGalleries) -> list[tuple[str, float]]:
    """What is found before anything is damaged; no check goes on behind that would mend what comes."""
    expected = found(galleries)
    galleries.wait()
    return expected


def first_search(galleries: OpenGalleries) -> None:
    """A search that begins the check, and may come after its end."""
    with suppress(DamagedGalleryError):
        found(galleries)


def damage(path: Path, place: int | None = None) -> None:
    """Change a byte between the samples, in place, as a disk does."""
    content = path.read_bytes()
    place = len(content) // 2 if place is None else place
    with path.open("r+b") as stream:
        stream.seek(place % len(content))
        stream.write(bytes([content[place] ^ 0x41]))


def version_of(folder: Path) -> Path:
    active = Gallery(folder).active_version
    return folder / "versions" / str(active)


def state(galleries: OpenGalleries) -> tuple[str, float]:
    files = galleries.states()[0].files
    return files.state, files.checked_share


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_damage_at_any_place_never_decides_once_it_was_found(
    folder: Path, opened: Callable[..., OpenGalleries], seed: int
) -> None:
    expected, rng = found_whole(opened()), np.random.default_rng(seed)
    path = version_of(folder) / DERIVED[seed % len(DERIVED)]
    for place in rng.integers(0, path.stat().st_size, 3):
        damage(path, int(place))
    galleries = opened()
    # Whatever it says; from the end of the check on it is right.
    first_search(galleries)
    galleries.wait()
    assert found(galleries) == expected
    galleries.wait()
    assert state(galleries) == ("whole", 1.0)


@pytest.mark.parametrize("pattern", ["data/*.lance", "_deletions/*"])
def test_a_gallery_whose_table_is_damaged_is_not_searched(
    folder: Path, opened: Callable[..., OpenGalleries], pattern: str
) -> None:
    table = Gallery(folder).table
    active = Gallery(folder).activation
    assert active is not None
    names = [name for name in table.files(active.revision) if Path(name).match(pattern)]
    path = folder / "items.lance" / names[0]
    intact = path.read_bytes()
    galleries = opened()
    expected = found(galleries)
    galleries.wait()
    damage(path)
    galleries = opened()
    galleries.states()
    galleries.wait()
    with pytest.raises(DamagedGalleryError, match=r"missing or damaged: bring it back from a backup"):
        found(galleries)
    assert (state(galleries)[0], galleries.states()[0].problem is None) == ("damaged", False)
    # The next process knows, before it has read anything.
    with pytest.raises(DamagedGalleryError):
        found_whole(opened())
    path.write_bytes(intact)
    galleries.states()
    galleries.wait()
    assert (state(galleries)[0], found(galleries)) == ("whole", expected)


def test_what_cannot_be_made_again_says_how_to_go_on(
    folder: Path, opened: Callable[..., OpenGalleries]
) -> None:
    """And the version before, which is whole, answers when it is put in force."""
    gallery = Gallery(folder)
    active = gallery.activation
    assert active is not None
    before, present = gallery.versions()[-2:]
    damage(folder / "versions" / str(present) / "embeddings.npy")
    damage(folder / "items.lance" / "_refs" / "tags" / f"version-{present}.json", -9)
    galleries = opened()
    galleries.states()
    galleries.wait()
    with pytest.raises(
        DamagedGalleryError, match=r"embeddings\.npy' is missing or damaged, and it cannot be"
    ) as told:
        found(galleries)
    assert "`vicinal gallery activate shoes VERSION`" in str(told.value)
    gallery.pointer.activate(before)
    assert found(galleries)
    galleries.wait()
    assert state(galleries) == ("whole", 1.0)


@pytest.mark.slow
def test_nothing_is_searched_between_the_find_and_the_mend(
    folder: Path, opened: Callable[..., OpenGalleries], monkeypatch: pytest.MonkeyPatch
) -> None:
    mending, go_on = threading.Event(), threading.Event()
    repair = Gallery.repair

    def wait(gallery: Gallery, version: int) -> object:
        mending.set()
        assert go_on.wait(30)
        return repair(gallery, version)

    expected = found_whole(opened())
    damage(version_of(folder) / "embeddings.npy")
    galleries, other = opened(), opened()
    monkeypatch.setattr(Gallery, "repair", wait)
    first_search(other)
    first_search(galleries)
    assert mending.wait(30)
    for process in (galleries, other):
        with pytest.raises(DamagedGalleryError, match=r"embeddings\.npy' is missing or damaged"):
            found(process)
    go_on.set()
    galleries.wait()
    other.wait()
    assert [found(process) for process in (galleries, other)] == [expected, expected]
