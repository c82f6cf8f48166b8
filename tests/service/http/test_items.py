"""Items over HTTP: added, replaced, patched and removed, and seen by the next search."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from tests.service.types import Encode, MakeSettings, View
from vicinal.service.http.app import create_app
from vicinal.service.http.state import state_of

SHOES = "/v1/galleries/shoes"
ITEMS = f"{SHOES}/items"
TAKEN = "plain/view 0.png"


@pytest.fixture
def client(data_dir: Path, make_settings: MakeSettings) -> Iterator[TestClient]:
    app = create_app(make_settings(data_dir, max_image_bytes=300_000, max_batch=4))
    with TestClient(app) as opened:
        yield opened
    state_of(app).galleries.maintenance.wait()


@pytest.fixture
def picture(view: View, encode: Encode) -> Callable[..., tuple[str, bytes, str]]:
    """A file part with the view of a label that the gallery lacks, or has."""

    def make(label: int = 50, number: int = 0, name: str = "new.png") -> tuple[str, bytes, str]:
        return name, encode(view(label, number)), "image/png"

    return make


Picture = Callable[..., tuple[str, bytes, str]]


def add(client: TestClient, *files: tuple[str, bytes, str], **fields: object) -> Any:
    return client.post(ITEMS, files=[("image", file) for file in files], data=fields)


def found(client: TestClient, file: tuple[str, bytes, str], **options: object) -> list[dict[str, Any]]:
    response = client.post(f"{SHOES}/search", files={"image": file}, data={"limit": 100, **options})
    return list(response.json()["candidates"])


def n_items(client: TestClient) -> int:
    return int(client.get(SHOES).json()["n_items"])


def test_an_added_image_is_found_by_the_next_search(client: TestClient, picture: Picture) -> None:
    body = add(client, picture(), id="mine", label="boots", metadata='{"price": 9.5}').json()
    added = {"place": 0, "id": "mine", "filename": "new.png", "replaced": False}
    assert (body["added"], body["refused"]) == ([added], [])
    best = found(client, picture())[0]
    assert (best["id"], best["label"], best["metadata"]) == ("mine", "boots", {"price": 9.5})
    assert best["similarity"] == pytest.approx(1.0, abs=1e-6)


def test_without_an_id_the_digest_of_the_file_is_the_id(client: TestClient, picture: Picture) -> None:
    files = picture(50), picture(51)
    added = add(client, *files).json()["added"]
    assert [one["id"] for one in added] == [hashlib.sha256(file[1]).hexdigest()[:32] for file in files]
    assert [(one["place"], one["filename"]) for one in added] == [(0, "new.png"), (1, "new.png")]
    assert client.get(f"{ITEMS}/{added[1]['id']}").json()["uri"] == "new.png"
    assert n_items(client) == 62


@pytest.mark.parametrize("ids", [{}, {"id": ["a", "b"]}])
def test_a_request_whose_answer_was_lost_can_be_sent_again(
    client: TestClient, picture: Picture, ids: dict[str, object]
) -> None:
    files = picture(50), picture(51)
    first = add(client, *files, **ids).json()
    again = add(client, *files, **ids)
    assert again.status_code == 200
    expected = [{name: one[name] for name in ("place", "id", "filename")} for one in first["added"]]
    assert (again.json()["added"], again.json()["unchanged"]) == ([], expected)
    assert (again.json()["revision"], n_items(client)) == (first["revision"], 62)


def test_another_image_of_an_id_is_a_conflict_that_changes_nothing(
    client: TestClient, picture: Picture
) -> None:
    before = client.get(SHOES).json()
    response = add(client, picture(), id=TAKEN)
    assert (response.status_code, response.headers["content-type"]) == (409, "application/problem+json")
    problem = response.json()
    assert (problem["type"], problem["id"]) == ("urn:vicinal:problem:item-exists", TAKEN)
    assert f"another image has the id '{TAKEN}'" in problem["detail"]
    assert client.get(SHOES).json() == before
    assert found(client, picture())[0]["id"] != TAKEN


def test_an_image_of_the_same_id_replaces_the_item_on_request(client: TestClient, picture: Picture) -> None:
    body = add(client, picture(), id=TAKEN, on_conflict="replace").json()
    assert body["added"] == [{"place": 0, "id": TAKEN, "filename": "new.png", "replaced": True}]
    assert n_items(client) == 60
    assert found(client, picture())[0]["id"] == "plain/view 0.png"


def test_an_image_that_cannot_be_used_takes_no_other_with_it(
    client: TestClient, picture: Picture, encode: Encode
) -> None:
    broken, huge = ("broken.jpg", b"words", "image/jpeg"), ("huge.png", b"x" * 300_001, "image/png")
    blank = ("blank.png", encode(Image.new("RGB", (40, 40), "white")), "image/png")
    body = add(client, picture(name="good.png"), broken, huge, blank).json()
    assert [one["filename"] for one in body["added"]] == ["good.png"]
    assert [(one["filename"], one["type"].rpartition(":")[2]) for one in body["refused"]] == [
        ("broken.jpg", "not-an-image"),
        ("huge.png", "image-too-large"),
        ("blank.png", "image-blank"),
    ]
    assert n_items(client) == 61


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"id": ["a", "b", "c"]}, "3 fields 'id' for 2 items"),
        ({"id": "a"}, "one id for 2 images"),
        ({"id": ["a", ""]}, "0 characters"),
        ({"id": ["a", "x" * 1025]}, "1025 characters"),
        ({"metadata": "{"}, "not JSON"),
        ({"metadata": "[1]"}, "no JSON object"),
        ({"metadata": '{"a": NaN}'}, "NaN"),
        ({"labels": "boots"}, "unknown fields ['labels']"),
        ({"on_conflict": "overwrite"}, "expected one of error, replace, skip"),
        ({"on_conflict": ["skip", "replace"]}, "expected one of error, replace, skip"),
    ],
)
def test_wrong_fields_are_refused_with_the_reason(
    client: TestClient, picture: Picture, fields: dict[str, object], reason: str
) -> None:
    response = add(client, picture(), picture(51), **fields)
    assert response.status_code == 422
    assert reason in response.json()["detail"]
    assert n_items(client) == 60


def test_more_images_than_a_batch_are_refused(client: TestClient, picture: Picture) -> None:
    response = add(client, *[picture()] * 5)
    assert response.status_code in (400, 422)
    assert "4" in response.json()["detail"]


def test_a_patch_changes_what_it_names(client: TestClient, picture: Picture) -> None:
    add(client, picture(), id="mine", label="boots", metadata='{"price": 1, "size": 42}')
    body = client.patch(f"{ITEMS}/mine", json={"metadata": {"price": None, "color": "red"}}).json()
    assert (body["label"], body["metadata"]) == ("boots", {"size": 42, "color": "red"})
    assert client.patch(f"{ITEMS}/mine", json={"label": None}).json()["label"] is None
    assert found(client, picture())[0]["metadata"] == {"size": 42, "color": "red"}


def test_a_removed_item_is_gone(client: TestClient, view: View, encode: Encode) -> None:
    file = ("a.png", encode(view(6, 0)), "image/png")
    assert found(client, file)[0]["id"] == "plain/view 0.png"
    assert client.delete(f"{ITEMS}/plain/view 0.png").status_code == 204
    assert "plain/view 0.png" not in {one["id"] for one in found(client, file)}
    for path in ("items", "thumbnails"):
        assert client.get(f"{SHOES}/{path}/plain/view 0.png").status_code == 404
    response = client.post(f"{SHOES}/search", json={"item_id": "plain/view 0.png"})
    assert response.json()["type"].endswith("item-not-found")


@pytest.mark.parametrize(
    ("filename", "item_id", "noted"),
    [
        ("/srv/photos/private.png", "mine", "private.png"),
        ("../../private.png", "mine", "private.png"),
        ("https://example.com/private.png", "mine", "private.png"),
        ("new.png", "/srv/photos/private.png", "new.png"),
        ("new.png", "mine", "new.png"),
    ],
)
def test_no_name_of_an_upload_leads_to_a_file_of_the_server(
    client: TestClient, encode: Encode, view: View, filename: str, item_id: str, noted: str
) -> None:
    """Whoever indexes the gallery anew would read it."""
    files = {"image": (filename, encode(view(50, 0)))}
    answer = client.post(f"{SHOES}/items", files=files, data={"id": item_id})
    if answer.status_code == 200:
        gallery = state_of(client.app).galleries.gallery("shoes")
        rows = gallery.table.columns(gallery.activation.revision, ["id", "uri"]).to_pylist()
        assert {one["id"]: one["uri"] for one in rows}[item_id] == noted


def test_items_that_fulfil_a_filter_are_listed(client: TestClient) -> None:
    asked = {"filter": "label = 'plain'", "size": 4}
    body = client.get(ITEMS, params=asked).json()
    own = [one for one in client.get(ITEMS, params={"size": 1000}).json()["items"] if one["label"] == "plain"]
    assert (body["items"], body["n_items"]) == (own[:4], len(own))
    assert client.get(ITEMS, params={**asked, "after": body["next"]}).json()["items"] == own[4:8]
    assert client.get(ITEMS, params={**asked, "at": 1}).json()["items"] == own[1:5]
    assert client.get(ITEMS, params={"filter": "label ="}).status_code == 422
