"""Rules of items over HTTP: what is refused was not written, and what was written before is served."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from fastapi.testclient import TestClient

from tests.service.types import Encode, MakeSettings, View
from vicinal.indexer.item_rules import readable
from vicinal.service.http.app import create_app

SHOES = "/v1/galleries/shoes"
ITEM = f"{SHOES}/items/plain/view 0.png"
REFUSED = "urn:vicinal:problem:item-refused"
JSON = {"content-type": "application/json"}
DEEP = '{"a":' * 33 + "1" + "}" * 33
LARGE = json.dumps({"a": "x" * 65_536})


@pytest.fixture
def client(data_dir: Path, make_settings: MakeSettings) -> Iterator[TestClient]:
    with TestClient(create_app(make_settings(data_dir))) as opened:
        yield opened


@pytest.mark.parametrize(
    "metadata",
    [DEEP, LARGE, '{"a": NaN}', '{"a": 1e999}', '{"a": "\\ud800"}', '{"a": "\\u0000"}', "{" * 5000],
)
def test_a_patch_that_is_refused_changed_nothing(client: TestClient, metadata: str) -> None:
    before = client.get(ITEM).json(), client.get(SHOES).json()["revision"]
    answer = client.patch(ITEM, content=f'{{"label": "other", "metadata": {metadata}}}', headers=JSON)
    assert answer.status_code in (400, 422)
    assert (client.get(ITEM).json(), client.get(SHOES).json()["revision"]) == before


# What ends a line, a text or a header for somebody, with a header that nobody set.
CONTROLS = ["\n", "\0", "\x1b", "\x85", "\u2028", "\r\nX-Set: 1\r\n", "\x7f", "\u2029", "\x9b"]


N_SENT = len(CONTROLS) + 2


def texts(name: str) -> dict[str, list[str]]:
    """Ids and labels, of which one kind holds control characters, but for the first and the last."""
    fields = {"id": [f"i{n}" for n in range(N_SENT)], "label": [f"l{n}" for n in range(N_SENT)]}
    fields[name][1:-1] = [f"x{one}y" for one in CONTROLS]
    return fields


def require_refused_alone(answer: httpx.Response) -> None:
    """The first and the last were added, each other one was refused by name, and no header came of it."""
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert [one["id"] for one in body["added"]] == ["i0", f"i{N_SENT - 1}"]
    for place, (one, control) in enumerate(zip(body["refused"], CONTROLS, strict=True), start=1):
        assert (one["place"], one["type"]) == (place, REFUSED)
        assert f"holds the character U+{ord(control[0]):04X}" in one["reason"]
        assert one["reason"].isprintable()
    assert all("x-set" not in f"{key}{value}".lower() for key, value in answer.headers.items())


@pytest.mark.parametrize("name", ["id", "label"])
def test_images_whose_texts_hold_control_characters_are_refused_by_name_and_alone(
    client: TestClient, view: View, encode: Encode, name: str
) -> None:
    files = [("image", encode(view(50, n))) for n in range(N_SENT)]
    require_refused_alone(client.post(f"{SHOES}/items", files=files, data=texts(name)))


def part(disposition: bytes, content: bytes) -> bytes:
    return b"--b\r\nContent-Disposition: form-data; " + disposition + b"\r\n\r\n" + content + b"\r\n"


def post_named(client: TestClient, photos: list[bytes], names: list[bytes]) -> httpx.Response:
    """Send photos under file names as the bytes say them; their ids are `0`, `1` and so on."""
    parts = [part(b'name="image"; ' + one, photo) for one, photo in zip(names, photos, strict=True)]
    parts += [part(b'name="id"', b"%d" % n) for n in range(len(names))]
    headers = {"content-type": "multipart/form-data; boundary=b"}
    return client.post(f"{SHOES}/items", content=b"".join(parts) + b"--b--\r\n", headers=headers)


@pytest.mark.parametrize("is_coded", [False, True], ids=["filename", "filename*"])
def test_a_file_name_with_control_characters_is_kept_as_it_can_be_read(
    client: TestClient, view: View, encode: Encode, is_coded: bool
) -> None:
    """A photo has its id from elsewhere: what its sender calls it is no reason to refuse it."""
    names = ["a.png", *(f"x{one}y.png" for one in CONTROLS if is_coded or "\r" not in one), "z.png"]
    told = [f"filename*=UTF-8''{quote(one)}" if is_coded else f'filename="{one}"' for one in names]
    photos = [encode(view(50, n)) for n in range(len(names))]
    answer = post_named(client, photos, [one.encode() for one in told])
    assert answer.json()["refused"] == []
    assert all("x-set" not in f"{key}{value}".lower() for key, value in answer.headers.items())
    for number, name in enumerate(names):
        assert client.get(f"{SHOES}/items/{number}").json()["uri"] == readable(name)


def test_a_file_name_that_ends_its_header_adds_nothing(
    client: TestClient, view: View, encode: Encode
) -> None:
    before = client.get(SHOES).json()["revision"]
    answer = post_named(client, [encode(view(50, 0))], [b'filename="x\r\nX-Set: 1\r\ny.png"'])
    assert (answer.status_code, "x-set" in answer.headers) == (400, False)
    assert client.get(SHOES).json()["revision"] == before


def test_a_patch_counts_what_is_there_already(client: TestClient) -> None:
    half = {"metadata": {"a": "x" * 40_000}}
    assert client.patch(ITEM, json=half).status_code == 200
    grown = client.patch(ITEM, json={"metadata": {"b": "x" * 40_000}})
    assert (grown.status_code, grown.json()["type"]) == (422, REFUSED)
    assert [*client.get(ITEM).json()["metadata"]] == ["a"]
    assert client.patch(ITEM, json={"metadata": {"a": None, "b": "x" * 40_000}}).status_code == 200


def test_a_path_that_was_shortened_deletes_no_gallery(client: TestClient, data_dir: Path) -> None:
    """As curl, httpx and browsers send `items/../../other` and `items/..`."""
    client.put("/v1/galleries/other")
    for shortened in ("/v1/galleries/other", "/v1/galleries/shoes", "/v1/galleries/shoes/", "/v1/galleries/"):
        assert client.delete(shortened).status_code in (404, 405, 422)
    assert sorted(path.name for path in (data_dir / "galleries").iterdir() if path.is_dir())[-2:] == [
        "other",
        "shoes",
    ]
