"""Hostile images: a part of them through every way in, none of which is answered by 5xx."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from benchmarks.attacks.hostile_images import corpus
from benchmarks.attacks.image_run import send_all
from tests.service.types import MakeSettings
from vicinal.service.http.serving.server import serving

pytestmark = [
    pytest.mark.slow,
    # Pillow says of some damage that it reads on.
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore:Image.Image.getdata:DeprecationWarning"),
]
EVERY = 7


@pytest.fixture(scope="module")
def images() -> dict[str, bytes]:
    return corpus()


@pytest.fixture(scope="module")
def some(images: dict[str, bytes]) -> dict[str, bytes]:
    """Those of one kind are named alike, so that every seventh is of each."""
    return {name: images[name] for name in sorted(images)[::EVERY]}


@pytest.fixture
def client(data_dir: Path, make_settings: MakeSettings) -> Iterator[httpx.Client]:
    with serving(make_settings(data_dir)) as url, httpx.Client(base_url=url, timeout=60) as opened:
        yield opened


@pytest.mark.parametrize("way", ["search", "items"])
def test_none_of_them_is_an_error_of_the_server(
    client: httpx.Client, some: dict[str, bytes], way: str
) -> None:
    outcomes = send_all(client, some, f"/v1/galleries/shoes/{way}")
    assert outcomes.failed == []
    statuses = {one.split()[0] for one in outcomes.by_status}
    # Some are sound, or the rest would say little.
    assert {"200", "400", "413"} <= statuses <= {"200", "400", "409", "413", "415", "422"}
    assert client.post("/v1/galleries/shoes/search", json={"item_id": "plain/view 0.png"}).status_code == 200


def test_an_error_of_the_server_would_be_noted(
    client: httpx.Client, some: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Negative control."""
    monkeypatch.setattr("vicinal.service.http.search_queue.Search.prepare", lambda *_: 1 / 0)
    one = dict(list(some.items())[:1])
    assert send_all(client, one, "/v1/galleries/shoes/search").failed == list(one)
