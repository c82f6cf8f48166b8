"""A server follows its home: what other replicas change is there soon, and nothing stops while it is away."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.types import MakeSettings
from vicinal.indexer.errors import HomeError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import remove_items
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.state.state import shared_state, use_database
from vicinal.indexer.storage.home import Mirror
from vicinal.service.errors import RequestError
from vicinal.service.galleries.home import HomeFollower, open_home
from vicinal.service.settings import Settings

pytestmark = pytest.mark.slow


@pytest.fixture
def replicas(
    data_dir: Path, tmp_path: Path, make_settings: MakeSettings, postgres_url: str
) -> Iterator[tuple[Settings, Settings]]:
    """Two replicas of one home, the first of which had the gallery `shoes`."""
    folders = (data_dir, tmp_path / "second")
    first, second = (
        make_settings(one, home=str(tmp_path / "home"), database=postgres_url, run_jobs=False)
        for one in folders
    )
    yield first, second
    for folder in folders:
        if (shared := shared_state(folder)) is not None:
            use_database(folder, None)
            shared.database.close()


def mirror_of(settings: Settings) -> Mirror:
    mirror = open_home(settings)
    assert mirror is not None
    return mirror


def test_a_replica_obeys_the_home_that_its_folder_names(replicas: tuple[Settings, Settings]) -> None:
    mirror = mirror_of(replicas[0])
    settings = replicas[0].model_copy(update={"home": None})
    assert settings.has_home
    assert open_home(settings) is mirror


def test_a_replica_serves_what_it_holds_while_its_home_is_away(
    replicas: tuple[Settings, Settings], tmp_path: Path
) -> None:
    mirror = mirror_of(replicas[0])
    shutil.move(tmp_path / "home", tmp_path / "away")
    assert open_home(replicas[0]) is mirror
    assert len(GalleryReader(Gallery.open(replicas[0].gallery_path("shoes"))).view()) == 60
    with pytest.raises(HomeError):
        mirror.publish({replicas[0].gallery_path("shoes") / "note.json": b"{}"})


def test_what_another_replica_changes_is_followed(replicas: tuple[Settings, Settings]) -> None:
    first, second = map(mirror_of, replicas)
    here, there = (Gallery.open(one.gallery_path("shoes")) for one in replicas)
    changed = threading.Event()
    with HomeFollower(second, changed.set):
        (_, gone), *_ = GalleryReader(here).view().page(None, 1)
        remove_items(GalleryReader(here), [gone["id"]])
        assert changed.wait(60)
        assert len(GalleryReader(there).view()) == 59
    assert second.lag().number == first.lag().number
    assert second.lag().seconds is not None


def test_replicas_need_a_database(tmp_path: Path, make_settings: MakeSettings) -> None:
    with pytest.raises(RequestError, match="set database"):
        open_home(make_settings(tmp_path / "one", home=str(tmp_path / "home")))
