"""Galleries and items over HTTP."""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from tests.service.types import MakeSettings
from vicinal.models.bundle import ModelBundle
from vicinal.service.galleries.open_galleries import OpenGalleries
from vicinal.service.http.app import create_app
from vicinal.service.measuring.matcher import Matcher

SHOES = "/v1/galleries/shoes"


def item_ids(client: TestClient, **params: object) -> tuple[list[str], str | None]:
    body = client.get(f"{SHOES}/items", params=params).json()
    return [item["id"] for item in body["items"]], body["next"]


def all_ids(client: TestClient) -> list[str]:
    return item_ids(client, size=1000)[0]


def test_a_gallery_says_what_it_holds(client: TestClient, tiny_bundle: ModelBundle) -> None:
    body = client.get(SHOES).json()
    assert (body["name"], body["n_items"], body["n_labels"], body["dim"]) == ("shoes", 60, 10, 24)
    assert (body["bundle"], body["bundle_name"]) == (tiny_bundle.fingerprint, "tiny")


def test_the_list_holds_every_gallery(client: TestClient) -> None:
    body = client.get("/v1/galleries").json()
    assert body["galleries"] == [client.get(SHOES).json()]


@pytest.mark.parametrize("size", [1, 7, 30, 59, 60, 61])
def test_pages_follow_each_other_without_gap_or_repeat(client: TestClient, size: int) -> None:
    seen, after, n_pages = [], None, 0
    while n_pages == 0 or after is not None:
        ids, after = item_ids(client, size=size, **({"after": after} if after else {}))
        seen += ids
        n_pages += 1
    assert seen == all_ids(client)
    assert n_pages == -(-60 // size)


def test_every_item_and_its_picture_are_found_by_id(client: TestClient) -> None:
    """The ids hold slashes, spaces, quotes, percent and plus signs, and letters beyond ASCII."""
    for item_id in all_ids(client)[::6]:
        item = client.get(f"{SHOES}/items/{quote(item_id)}")
        assert item.json()["id"] == item_id
        picture = client.get(f"{SHOES}/thumbnails/{quote(item_id, safe='')}")
        assert picture.headers["content-type"] == "image/jpeg"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1/galleries/boots", "gallery-not-found"),
        ("/v1/galleries/shoes%0A", "gallery-not-found"),
        ("/v1/galleries/%2e%2e", "gallery-not-found"),
        ("/v1/galleries/boots/items", "gallery-not-found"),
        (f"{SHOES}/items/gone", "item-not-found"),
        (f"{SHOES}/thumbnails/gone", "item-not-found"),
        (f"{SHOES}/thumbnails/' OR 1=1 --", "item-not-found"),
    ],
)
def test_what_is_not_there_is_a_problem_of_its_own_kind(client: TestClient, path: str, kind: str) -> None:
    response = client.get(path)
    assert response.status_code == 404
    assert response.json()["type"] == f"urn:vicinal:problem:{kind}"


def test_a_gallery_that_is_deleted_while_it_is_read_is_not_there(
    data_dir: Path, make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher = OpenGalleries.matcher

    def deleted_meanwhile(galleries: OpenGalleries, name: str) -> Matcher:
        found = matcher(galleries, name)
        found.gallery.delete()
        return found

    monkeypatch.setattr(OpenGalleries, "matcher", deleted_meanwhile)
    path = f"{SHOES}/thumbnails/plain/view 0.png"
    answer = TestClient(create_app(make_settings(data_dir))).get(path)
    assert (answer.status_code, answer.json()["type"]) == (404, "urn:vicinal:problem:gallery-not-found")


def test_a_gallery_says_in_short_what_to_expect_of_it(client: TestClient) -> None:
    body = client.get(SHOES).json()
    assert (body["standing"]["word"], body["takes"]) == ("unsure", "images")
    # Ten labels leave wide open how many are found.
    assert "Review" in body["standing"]["sentence"]
    assert body["promise_in_short"].startswith("Of 100 matches ")
    assert datetime.fromisoformat(body["changed_at"]).tzinfo is not None


def test_the_storage_of_a_gallery_is_the_sum_of_its_parts(
    calibrated_base: Path, tmp_path: Path, make_settings: MakeSettings
) -> None:
    copy = Path(shutil.copytree(calibrated_base, tmp_path / "copy"))
    body = TestClient(create_app(make_settings(copy))).get(f"{SHOES}/storage").json()
    parts = [body[f"{one}_bytes"] for one in ("table", "versions", "calibrations", "searches", "other")]
    files = [one for one in (copy / "galleries" / "shoes").rglob("*") if one.is_file()]
    assert sum(parts) == body["bytes"] == sum(one.stat().st_size for one in files)
    assert min(parts[:3]) > 0
    assert body["free_bytes"] > 0
