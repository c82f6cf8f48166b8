"""Open galleries: one matcher a version, swapped when another becomes active."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.damaged_rows import damage_document
from tests.service.types import MakeSettings
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources import read_source, source_name
from vicinal.indexer.state import Rows, State
from vicinal.models.embedder import Embedder
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.galleries.open_galleries import OpenGalleries
from vicinal.service.http.app import create_app
from vicinal.service.http.state import state_of


def index_half(gallery: Gallery, catalog: Path, embedder: Embedder) -> None:
    """Make a version of the first thirty items alone."""
    items, name = read_source(catalog)[:30], source_name(catalog)
    index_items(gallery, items, embedder, source=name, delete=True, workers=1)


@pytest.fixture
def galleries(data_dir: Path, make_settings: MakeSettings) -> OpenGalleries:
    return OpenGalleries(ServedBundles(make_settings(data_dir)))


@pytest.mark.parametrize("n_searches", [1, 3])
def test_a_search_reads_no_small_file_and_no_row_that_was_not_changed(
    calibrated_base: Path,
    tmp_path: Path,
    make_settings: MakeSettings,
    monkeypatch: pytest.MonkeyPatch,
    n_searches: int,
) -> None:
    """Pointer, pipeline and calibration are read again after a change of rows."""
    copy = Path(shutil.copytree(calibrated_base, tmp_path / "copy"))
    client = TestClient(create_app(make_settings(copy)))
    query = {"item_id": "plain/view 0.png"}
    gallery = copy / "galleries" / "shoes"
    # As if it had been written a while ago.
    os.utime(gallery / "gallery.db", (1e9, 1e9))
    assert client.post("/v1/galleries/shoes/search", json=query).status_code == 200
    state_of(client.app).galleries.wait()  # type: ignore[arg-type]
    read, asked = read_files(monkeypatch), transactions(monkeypatch, copy)
    for _ in range(n_searches):
        client.post("/v1/galleries/shoes/search", json=query)
    assert not [path for path in read if gallery in path.parents]
    assert asked == []
    damage_document(gallery, "calibration", content="another")
    asked.clear()
    client.post("/v1/galleries/shoes/search", json=query)
    assert not [path for path in read if gallery in path.parents]
    assert {*asked} == {gallery}


def transactions(monkeypatch: pytest.MonkeyPatch, data_dir: Path) -> list[Path]:
    """Folders in a data folder whose rows are read from now on; threads of other tests may be at theirs."""
    asked, reading = [], State.reading

    def counting(state: State) -> AbstractContextManager[Rows]:
        asked.extend([state.folder] if data_dir in state.folder.parents else [])
        return reading(state)

    monkeypatch.setattr(State, "reading", counting)
    return asked


def read_files(monkeypatch: pytest.MonkeyPatch) -> Counter[Path]:
    """How often each file is read as a whole from now on."""
    read: Counter[Path] = Counter()

    def count(method: str) -> None:
        wrapped = getattr(Path, method)

        def counting(path: Path, *arguments: Any, **options: Any) -> Any:
            read[path] += 1
            return wrapped(path, *arguments, **options)

        monkeypatch.setattr(Path, method, counting)

    count("read_bytes")
    count("read_text")
    return read


def test_the_check_of_reads_counts_every_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control."""
    (tmp_path / "a").write_text("a")
    read = read_files(monkeypatch)
    (tmp_path / "a").read_text()
    (tmp_path / "a").read_bytes()
    assert read == {tmp_path / "a": 2}


@pytest.mark.slow
def test_requests_at_the_same_time_share_one_matcher(galleries: OpenGalleries) -> None:
    with ThreadPoolExecutor(8) as pool:
        matchers = list(pool.map(galleries.matcher, ["shoes"] * 16))
    assert len({id(matcher) for matcher in matchers}) == 1


def test_a_new_version_is_searched_from_the_next_request_on(
    galleries: OpenGalleries, gallery: Gallery, catalog: Path
) -> None:
    before = galleries.matcher("shoes")
    index_half(gallery, catalog, galleries.own.embedder)
    after = galleries.matcher("shoes")
    assert (len(before.snapshot), len(after.snapshot)) == (60, 30)


def test_a_matcher_that_a_request_holds_keeps_its_version(
    galleries: OpenGalleries, gallery: Gallery, catalog: Path
) -> None:
    held = galleries.matcher("shoes")
    expected = held.search(item_ids=["plain/view 0.png"])[0].candidates
    index_half(gallery, catalog, galleries.own.embedder)
    assert held.search(item_ids=["plain/view 0.png"])[0].candidates == expected


def test_a_gallery_that_was_deleted_and_made_anew_is_not_taken_for_the_old_one(
    galleries: OpenGalleries, gallery: Gallery, catalog: Path
) -> None:
    old = galleries.matcher("shoes")
    gallery.delete()
    index_half(gallery, catalog, galleries.own.embedder)
    new = galleries.matcher("shoes")
    assert new.snapshot.manifest.version == old.snapshot.manifest.version
    assert (len(old.snapshot), len(new.snapshot)) == (60, 30)
