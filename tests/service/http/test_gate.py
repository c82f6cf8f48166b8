"""What a stranger sends costs nothing: keys, rates and sizes are looked at before a body is read."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.service.types import MakeSettings
from vicinal.indexer.storage.gallery_names import set_alias
from vicinal.service.http import request_bodies
from vicinal.service.http.app import create_app
from vicinal.service.http.serving.server import serving

GOOD = "a-good-key"
SEARCH = "/v1/galleries/shoes/search"
FORM = "multipart/form-data; boundary=x"
# Calls of each kind with a body; the item's path stands for itself.
CALLS = [
    ("POST", SEARCH),
    ("POST", f"{SEARCH}/batch"),
    ("POST", "/v1/galleries/shoes/items"),
    ("PATCH", "/v1/galleries/shoes/items/plain/view 0.png".replace(" ", "%20")),
    ("PUT", "/v1/aliases/shop"),
    ("POST", "/v1/admin/galleries/shoes/reindex"),
    ("POST", "/v1/admin/galleries/shoes/calibrations"),
    ("POST", "/v1/nothing/here"),
]


@pytest.fixture(scope="module")
def address(calibrated_dir: Path, make_settings: MakeSettings) -> Iterator[str]:
    """A real server with one key for searching."""
    with serving(make_settings(calibrated_dir, api_keys={GOOD: ("search",)})) as url:
        yield url


def answer_to(
    address: str, method: str, path: str, *, seconds: float = 60.0, **headers: str
) -> tuple[int, bytes]:
    """Status and body of what is answered to the head of a request whose body never comes."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Length: 262144000"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    with socket.create_connection((urlsplit(address).hostname, urlsplit(address).port), seconds) as there:
        there.sendall("\r\n".join([*lines, "", ""]).encode())
        received = b""
        while not received.endswith(b"}"):
            received += there.recv(65_536)
    return int(received.split()[1]), received


@pytest.mark.parametrize(("method", "path"), CALLS)
@pytest.mark.parametrize("kind", ["application/json", FORM])
def test_without_a_key_not_a_byte_of_the_body_is_waited_for(
    address: str, method: str, path: str, kind: str
) -> None:
    status, received = answer_to(address, method, path, Content_Type=kind)
    assert (status, b"unauthorized" in received) == (401, True)
    assert b"www-authenticate: Bearer" in received


@pytest.mark.slow
def test_without_the_scope_not_a_byte_of_the_body_is_waited_for(address: str) -> None:
    key = {"X_API_Key": GOOD, "Content_Type": "application/json"}
    assert answer_to(address, "POST", "/v1/admin/galleries/shoes/reindex", **key)[0] == 403
    assert answer_to(address, "POST", "/v1/galleries/shoes/items", **key)[0] == 403
    # Negative control: this one is waited for.
    with pytest.raises(TimeoutError):
        answer_to(address, "POST", SEARCH, seconds=1.0, **key)


@pytest.mark.slow
def test_beyond_the_rate_not_a_byte_of_the_body_is_waited_for(
    calibrated_dir: Path, make_settings: MakeSettings
) -> None:
    with serving(make_settings(calibrated_dir, rate_limit="1/hour")) as url:
        assert httpx.get(f"{url}/v1/galleries").status_code == 200
        status, received = answer_to(url, "POST", SEARCH, Content_Type="application/json")
    assert (status, b"too-many-requests" in received, b"retry-after" in received.lower()) == (429, True, True)


@pytest.mark.parametrize("path", ["/v1/nothing", "/v1/galleries/shoes/nothing", "/v1/admin", "/v1/"])
def test_what_is_not_there_needs_a_key_too(address: str, path: str) -> None:
    assert httpx.get(address + path).status_code == 401
    assert httpx.get(address + path, headers={"X-API-Key": GOOD}).status_code == 404
    assert httpx.delete(address + SEARCH, headers={"X-API-Key": GOOD}).status_code == 405


def test_an_application_in_another_one_is_guarded_too(data_dir: Path, make_settings: MakeSettings) -> None:
    set_alias(data_dir / "galleries", "shop", "shoes")
    inner = create_app(make_settings(data_dir, api_keys={GOOD: ("search",)}))
    client, key = TestClient(Starlette(routes=[Mount("/pictures", inner)])), {"X-API-Key": GOOD}
    for path in ("/pictures/v1/galleries", "/pictures/v1/galleries/shop", "/pictures/v1/nothing"):
        assert client.get(path).status_code == 401
    assert client.get("/pictures/v1/galleries/shop", headers=key).json()["name"] == "shoes"
    assert client.get("/pictures/v1/nothing", headers=key).status_code == 404
    assert client.put("/pictures/v1/galleries/boots", headers=key).status_code == 403
    assert client.get("/pictures/livez").status_code == 200


@pytest.mark.parametrize("path", ["//v1/galleries", "/v1//galleries", "/V1/galleries", "/v1/../v1/galleries"])
def test_no_spelling_of_an_address_goes_around(address: str, path: str) -> None:
    with httpx.Client(base_url=address) as client:
        status = client.send(httpx.Request("GET", httpx.URL(address, raw_path=path.encode()))).status_code
    assert status in (401, 404)
    assert httpx.get(f"{address}/v1/galleries").status_code == 401


def test_brackets_are_not_parsed(address: str) -> None:
    """A body of 8 MiB would become 330 MB of lists, and hold up everybody else meanwhile."""
    brackets = b"[" + b"[]," * (8 * 2**20 // 3) + b"[]]"
    answer = httpx.post(
        f"{address}{SEARCH}/batch",
        content=b'{"queries":' + brackets + b"}",
        headers={"X-API-Key": GOOD, "Content-Type": "application/json"},
        timeout=30,
    )
    assert (answer.status_code, answer.json()["type"]) == (413, "urn:vicinal:problem:body-too-large")
    assert "more than 2,500,000 values" in answer.json()["detail"]


@pytest.mark.parametrize("length", ["declared", "not declared"])
def test_a_call_that_takes_little_takes_little(
    calibrated_dir: Path, make_settings: MakeSettings, length: str
) -> None:
    client = TestClient(create_app(make_settings(calibrated_dir)))
    large = json.dumps({"gallery": "x" * request_bodies._SMALL_BODY}).encode()
    content = large if length == "declared" else iter([large])
    answer = client.put("/v1/aliases/shop", content=content, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["type"]) == (413, "urn:vicinal:problem:body-too-large")
    assert "4,194,304 bytes" in answer.json()["detail"]


def test_pictures_may_hold_any_byte(calibrated_dir: Path, make_settings: MakeSettings) -> None:
    """Negative control: what is counted in JSON is nothing in a form."""
    picture = b"," * (request_bodies.MOST_VALUES + 10)
    body = (
        b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n'
        + picture
        + b"\r\n--x--\r\n"
    )
    client = TestClient(create_app(make_settings(calibrated_dir)))
    for content in (body, iter([body])):
        answer = client.post(SEARCH, content=content, headers={"Content-Type": FORM})
        assert (answer.status_code, answer.json()["type"]) == (400, "urn:vicinal:problem:not-an-image")
