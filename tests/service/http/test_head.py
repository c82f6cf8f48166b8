"""HEAD is answered as GET is, without a body, and a slash too many leads to the address without it."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from tests.service.types import MakeSettings
from vicinal.service.http.app import create_app

SHOES = "/v1/galleries/shoes"
PLACES = {
    "/livez": 200,
    "/readyz": 200,
    "/metrics": 200,
    "/": 200,
    "/docs": 200,
    "/openapi.json": 200,
    "/v1/galleries": 200,
    SHOES: 200,
    f"{SHOES}/items": 200,
    f"{SHOES}/items/plain/view 0.png": 200,
    f"{SHOES}/thumbnails/plain/view 0.png": 200,
    "/v1/jobs": 200,
    "/v1/galleries/boots": 404,
    f"{SHOES}/items/none": 404,
    f"{SHOES}?nosuch=1": 422,
    "/nosuch": 404,
    f"{SHOES}/search": 405,
}


def test_head_is_answered_as_get_is_without_a_body(client: TestClient) -> None:
    for place, status in PLACES.items():
        got, head = client.get(place), client.head(place)
        assert (got.status_code, head.status_code, head.content) == (status, status, b""), place
        changing = {"x-request-id"} | ({"content-length"} if place in ("/metrics", "/readyz") else set())
        told = [{k: v for k, v in one.headers.items() if k not in changing} for one in (got, head)]
        assert told[0] == told[1], place


def test_head_needs_the_key_that_get_needs(calibrated_dir: Path, make_settings: MakeSettings) -> None:
    client = TestClient(create_app(make_settings(calibrated_dir, api_keys={"a-good-key": ("search",)})))
    assert client.head(SHOES).status_code == 401
    assert client.head("/metrics").status_code == 401
    assert client.head("/v1/jobs", headers={"X-API-Key": "a-good-key"}).status_code == 403
    assert client.head(SHOES, headers={"X-API-Key": "a-good-key"}).status_code == 200


def test_who_asks_for_a_method_that_is_none_is_told_of_head(server_url: str) -> None:
    answer = httpx.put(f"{server_url}/livez")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


SLASHES = {
    "/livez/": "/livez",
    "/v1/galleries/": "/v1/galleries",
    f"{SHOES}/?a=b&c=%20d": f"{SHOES}?a=b&c=%20d",
    "/v1/galleries/gr%C3%B6%C3%9Fe%2042/": "/v1/galleries/gr%C3%B6%C3%9Fe%2042",
    "/v1/jobs/": "/v1/jobs",
    f"{SHOES}/search/": f"{SHOES}/search",
    # An item may end in a slash; without a name there is none.
    f"{SHOES}/items/": f"{SHOES}/items",
    f"{SHOES}/items/?size=1": f"{SHOES}/items?size=1",
    f"{SHOES}/items/delete/": f"{SHOES}/items/delete",
    f"{SHOES}/item/?id=a%2Fb": f"{SHOES}/item?id=a%2Fb",
}


@pytest.mark.slow
@pytest.mark.parametrize("place", SLASHES)
def test_a_slash_too_many_leads_to_the_address_without(server_url: str, place: str) -> None:
    """Whatever the server is called from outside: neither a host nor a scheme is named."""
    method = "POST" if "search" in place or "delete" in place else "GET"
    asked = httpx.URL(server_url + place)
    answer = httpx.request(method, asked, headers={"Host": "127.0.0.1", "X-Forwarded-Host": "evil.example"})
    assert answer.status_code == 307
    assert answer.headers["location"].startswith("../")
    assert str(asked.join(answer.headers["location"])) == server_url + SLASHES[place]
    # Below a folder of a proxy, too.
    outside = httpx.URL(f"https://shop.example/pictures{place}").join(answer.headers["location"])
    assert str(outside) == f"https://shop.example/pictures{SLASHES[place]}"


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
def test_no_item_without_an_id_is_changed(client: TestClient, method: str) -> None:
    places = ("items/", "items", "thumbnails/")
    assert [client.request(method, f"{SHOES}/{one}").status_code for one in places] == [404, 405, 404]


@pytest.mark.parametrize("place", ["//evil.example/", "/nosuch/", "/v1/galleries//", "//livez/", "/livez//"])
def test_no_other_address_leads_anywhere(server_url: str, place: str) -> None:
    with httpx.Client(base_url=server_url) as client:
        answer = client.send(httpx.Request("GET", httpx.URL(server_url, raw_path=place.encode())))
    assert answer.status_code == 404
    assert "location" not in answer.headers
