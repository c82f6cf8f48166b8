"""A server follows its home: what other replicas change is there soon, and it says how far it is behind."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.service.types import MakeSettings
from tests.waiting import wait_until
from vicinal.indexer.errors import HomeError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.storage.gallery_names import aliases, set_alias
from vicinal.indexer.storage.home import Mirror
from vicinal.service.errors import RequestError
from vicinal.service.galleries.home import HomeFollower, HomeState, home_state, open_home
from vicinal.service.http.app import create_app
from vicinal.service.local_gallery import open_gallery
from vicinal.service.settings import Settings

pytestmark = pytest.mark.slow

# Nobody asks it here.
REDIS = "redis://127.0.0.1:1/0"


@pytest.fixture
def replicas(data_dir: Path, tmp_path: Path, make_settings: MakeSettings) -> tuple[Settings, Settings]:
    """Two replicas of one home, the first of which had the gallery `shoes`."""
    folders = (data_dir, tmp_path / "second")
    first, second = (
        make_settings(one, home=str(tmp_path / "home"), redis_url=REDIS, run_jobs=False) for one in folders
    )
    return first, second


def mirror_of(settings: Settings) -> Mirror:
    mirror = open_home(settings, None)
    assert mirror is not None
    return mirror


def test_a_home_without_redis_is_refused(replicas: tuple[Settings, Settings]) -> None:
    with pytest.raises(RequestError, match="share their jobs: set redis_url"):
        open_home(replicas[0].model_copy(update={"redis_url": None}), None)


def test_a_folder_without_a_home_has_none(make_settings: MakeSettings, tmp_path: Path) -> None:
    settings = make_settings(tmp_path)
    assert not settings.has_home
    assert open_home(settings, None) is None


def test_a_replica_obeys_the_home_that_its_folder_names(replicas: tuple[Settings, Settings]) -> None:
    mirror = mirror_of(replicas[0])
    settings = replicas[0].model_copy(update={"home": None})
    assert settings.has_home
    assert open_home(settings, None) is mirror


def test_a_replica_serves_what_it_holds_while_its_home_is_away(
    replicas: tuple[Settings, Settings], tmp_path: Path
) -> None:
    mirror = mirror_of(replicas[0])
    shutil.move(tmp_path / "home", tmp_path / "away")
    assert open_home(replicas[0], None) is mirror
    assert len(GalleryReader(Gallery.open(replicas[0].gallery_path("shoes"))).view()) == 60
    with pytest.raises(HomeError):
        set_alias(replicas[0].galleries_path, "boots", "shoes")


def test_what_another_replica_changes_is_followed(replicas: tuple[Settings, Settings]) -> None:
    first, second = map(mirror_of, replicas)
    changed = threading.Event()
    with HomeFollower(second, None, changed.set):
        set_alias(replicas[0].galleries_path, "boots", "shoes")
        assert changed.wait(60)
        assert aliases(replicas[1].galleries_path) == {"boots": "shoes"}
    assert second.lag().number == first.lag().number


def test_one_process_of_a_replica_follows(
    replicas: tuple[Settings, Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, pulls, pull = mirror_of(replicas[0]), list[str](), Mirror.pull

    def noted(self: Mirror, **options: bool) -> int:
        pulls.append(threading.current_thread().name)
        return pull(self, **options)

    monkeypatch.setattr(Mirror, "pull", noted)
    first, second = HomeFollower(mirror, None), HomeFollower(mirror, None)
    first.name, second.name = "first", "second"
    with second:
        wait_until(lambda: "second" in pulls)
        with first:
            n_before = len(pulls)
            wait_until(lambda: len(pulls) > n_before + 2)
            assert "first" not in pulls
            second.__exit__()
            wait_until(lambda: "first" in pulls)


@pytest.mark.parametrize(
    ("seconds", "entries", "says"),
    [
        (0.5, 0, None),
        (90.0, 3, "replica ab is 3 entries and 90 seconds behind its home"),
        (None, None, "replica ab is an unknown number of entries behind its home"),
    ],
)
def test_a_replica_says_how_far_it_is_behind(
    seconds: float | None, entries: int | None, says: str | None
) -> None:
    problem = HomeState("ab", 7, entries, seconds).problem
    assert problem is None if says is None else says in str(problem)


def test_readiness_and_metrics_tell_of_the_home(
    replicas: tuple[Settings, Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = TestClient(create_app(replicas[0]))
    mirror = mirror_of(replicas[0])
    body = client.get("/readyz").json()
    assert body["home"]["replica"] == mirror.replica
    assert body["home"]["home"] == mirror.home
    assert not body["degraded"]
    monkeypatch.setattr("vicinal.service.galleries.home._LATE_SECONDS", 0.0)
    assert "behind its home" in client.get("/readyz").json()["degraded"][0]
    assert client.get("/readyz").status_code == 200
    metrics = client.get("/metrics").text
    assert "vicinal_home_behind_seconds" in metrics
    assert "vicinal_home_lost_races_total" in metrics
    assert "vicinal_home_fetched_bytes_total" in metrics


def test_a_store_that_was_found_away_is_not_asked_for_each_change(
    replicas: tuple[Settings, Settings], tmp_path: Path
) -> None:
    mirror = mirror_of(replicas[0])
    shutil.move(tmp_path / "home", tmp_path / "away")
    with pytest.raises(HomeError):
        mirror.pull()
    shutil.move(tmp_path / "away", tmp_path / "home")
    with pytest.raises(HomeError, match="is it mounted"):
        set_alias(replicas[0].galleries_path, "boots", "shoes")
    mirror.pull()
    set_alias(replicas[0].galleries_path, "boots", "shoes")


def test_entries_behind_are_those_that_redis_tells_of(replicas: tuple[Settings, Settings]) -> None:
    mirror = mirror_of(replicas[0])

    class Link:
        def ask(self, question: Callable[[object], object]) -> object:
            del question
            return mirror.lag().number + 2.0

    assert home_state(mirror, Link()).entries_behind == 2  # type: ignore[arg-type]


def test_a_program_of_ones_own_joins_the_home(replicas: tuple[Settings, Settings]) -> None:
    mirror_of(replicas[0])
    second = replicas[1].model_dump(include={"data_dir", "bundle", "home", "redis_url", "device"})
    assert len(open_gallery("shoes", **second)) == 60
