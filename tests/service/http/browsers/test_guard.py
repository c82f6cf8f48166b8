"""Names of the server and pages of other sites: what is served, and what is refused before a body is read."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from tests.service.types import MakeSettings
from vicinal.service.errors import RequestError
from vicinal.service.http.app import create_app
from vicinal.service.http.serving.server import serving
from vicinal.service.keys import check_exposure
from vicinal.service.settings import Settings

KEY = {"X-API-Key": "a-good-key"}
SEARCH = "/v1/galleries/shoes/search"
ITEM = {"item_id": "plain/view 0.png"}
SHOP = "https://shop.example"
# What changes something or costs, by one call of each method.
CALLS = [
    ("POST", SEARCH),
    ("POST", f"{SEARCH}/batch"),
    ("POST", "/v1/galleries/shoes/items"),
    ("PUT", "/v1/galleries/boots"),
    ("PATCH", "/v1/galleries/shoes/items/a"),
    ("DELETE", "/v1/galleries/shoes/items/a"),
    ("DELETE", "/v1/galleries/shoes"),
    ("POST", "/v1/galleries/shoes/versions/1/activate"),
    ("POST", "/v1/admin/galleries/shoes/reindex"),
    ("POST", "/v1/admin/galleries/shoes/labelling"),
]
FROM_ELSEWHERE = [
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "null", "Sec-Fetch-Site": "same-origin"},
    {"Origin": "http://localhost:1"},
    {"Origin": ""},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1:{port}"},
    {"Sec-Fetch-Site": "something-new"},
]


@pytest.fixture(scope="module")
def address(calibrated_dir: Path, make_settings: MakeSettings) -> Iterator[str]:
    """A real server without keys."""
    with serving(make_settings(calibrated_dir)) as url:
        yield url


@pytest.fixture(scope="module")
def client_with(calibrated_dir: Path, make_settings: MakeSettings) -> Callable[..., TestClient]:
    """Client of an application with further settings, which is asked for as `localhost`."""

    def make(**changes: object) -> TestClient:
        return TestClient(create_app(make_settings(calibrated_dir, **changes)), base_url="http://localhost")

    return make


def status_of(client: TestClient, host: str, path: str = "/v1/galleries") -> int:
    return client.get(path, headers={"Host": host, **KEY}).status_code


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1.evil.example", "0.0.0.0"])
def test_another_name_of_the_server_is_refused(address: str, host: str) -> None:
    """A page may point its own name at this machine, and would then read every answer."""
    named = host.format(port=urlsplit(address).port)
    with httpx.Client(base_url=address, headers={"Host": named}) as client:
        for path in ("/v1/galleries", "/livez", "/readyz", "/metrics", "/", "/docs", "/nothing"):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["type"]) == (421, "urn:vicinal:problem:misdirected")
            assert "allowed_hosts" in answer.json()["detail"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:{port}", "localhost.", "a.localhost", "127.0.0.1", "127.9.9.9:1", "[::1]:80"],
)
def test_names_of_this_machine_are_served(address: str, host: str) -> None:
    named = host.format(port=urlsplit(address).port)
    assert httpx.get(f"{address}/v1/galleries", headers={"Host": named}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        " ",
        ":80",
        "localhost@evil.example",
        "evil.example@localhost",
        "evil/localhost",
        "[::1",
        "[x]",
        "a b",
    ],
)
def test_what_is_no_name_is_refused(client_with: Callable[..., TestClient], host: str) -> None:
    assert status_of(client_with(), host) == 421


def test_two_names_are_refused(address: str) -> None:
    port = urlsplit(address).port or 0
    with socket.create_connection(("127.0.0.1", port), timeout=60) as there:
        there.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
        assert int(there.recv(65_536).split()[1]) in (400, 421)


def test_the_address_that_was_connected_to_is_served(client_with: Callable[..., TestClient]) -> None:
    """A probe asks by the address of the container, which no setting knows."""
    client = client_with(api_keys={"a-good-key": ("search",)}, allowed_hosts=("search.example",))
    inside = TestClient(client.app, base_url="http://10.2.3.4:8321")
    assert inside.get("/livez").status_code == 200
    assert inside.get("/livez", headers={"Host": "10.2.3.5:8321"}).status_code == 421


def test_names_that_are_set_are_served(client_with: Callable[..., TestClient]) -> None:
    client = client_with(allowed_hosts=("search.example", "*.shop.example"))
    hosts = ("search.example", "SEARCH.example:8443", "a.shop.example", "a.b.shop.example", "localhost")
    assert [status_of(client, host) for host in hosts] == [200] * 5
    others = ("shop.example", "ashop.example", "search.example.evil.example", "x.search.example")
    assert [status_of(client, host) for host in others] == [421] * 4


def test_with_keys_any_name_is_served_until_some_are_set(client_with: Callable[..., TestClient]) -> None:
    keys = {"a-good-key": ("search",)}
    assert status_of(client_with(api_keys=keys), "search.example") == 200
    assert status_of(client_with(api_keys=keys, allowed_hosts=("search.example",)), "evil.example") == 421
    assert status_of(client_with(api_keys=keys, allowed_hosts=("*",)), "evil.example") == 200


@pytest.mark.parametrize("headers", FROM_ELSEWHERE, ids=str)
def test_a_page_of_another_origin_changes_nothing(address: str, headers: dict[str, str]) -> None:
    sent = {name: value.format(port=urlsplit(address).port) for name, value in headers.items()}
    with httpx.Client(base_url=address, headers=sent) as client:
        for method, path in CALLS:
            answer = client.request(method, path)
            assert (answer.status_code, answer.json()["type"]) == (403, "urn:vicinal:problem:cross-site")


def test_a_page_of_another_origin_is_not_read_from(address: str) -> None:
    """Not a byte of the body is waited for."""
    port = urlsplit(address).port or 0
    head = f"POST {SEARCH} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\nOrigin: {SHOP}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=60) as there:
        there.sendall(head.encode())
        assert there.recv(65_536).split()[1] == b"403"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://127.0.0.1:{port}"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1:{port}"},
        # Behind a proxy that gives another port, or takes TLS off.
        {"Sec-Fetch-Site": "same-origin", "Origin": "https://127.0.0.1:8443"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Sec-Fetch-Site": "none"},
    ],
    ids=str,
)
def test_its_own_pages_and_programs_search(address: str, headers: dict[str, str]) -> None:
    """Negative control."""
    sent = {name: value.format(port=urlsplit(address).port) for name, value in headers.items()}
    assert httpx.post(address + SEARCH, json=ITEM, headers=sent).status_code == 200


def test_links_from_other_sites_are_followed(address: str) -> None:
    sent = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert [httpx.get(address + path, headers=sent).status_code for path in ("/", "/docs")] == [200, 200]


def preflight(client: TestClient, origin: str, method: str = "POST") -> httpx.Response:
    asked = {"Origin": origin, "Access-Control-Request-Method": method}
    return client.options(
        SEARCH, headers=asked | {"Access-Control-Request-Headers": "x-api-key, content-type"}
    )


def test_no_other_page_is_told_that_it_may(client_with: Callable[..., TestClient]) -> None:
    client = client_with()
    answers = [preflight(client, SHOP), client.get("/v1/galleries", headers={"Origin": SHOP})]
    assert [one.headers.get("access-control-allow-origin") for one in answers] == [None, None]
    assert answers[0].status_code == 405


def test_a_page_of_a_configured_origin_may(client_with: Callable[..., TestClient]) -> None:
    client = client_with(cors_origins=(SHOP,), api_keys={"a-good-key": ("search", "write")})
    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"):
        asked = preflight(client, SHOP, method)
        assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (200, SHOP)
    sent = {"Origin": SHOP, "Sec-Fetch-Site": "cross-site"}
    found = client.post(SEARCH, json=ITEM, headers=sent | KEY)
    assert (found.status_code, found.headers["access-control-allow-origin"]) == (200, SHOP)
    # It reads why it is refused, and when to come again.
    refused = client.post(SEARCH, json=ITEM, headers=sent)
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, SHOP)
    assert "Retry-After" in refused.headers["access-control-expose-headers"]


@pytest.mark.parametrize(
    "origin", ["https://evil.example", f"{SHOP}.evil.example", "http://shop.example", f"{SHOP}:8443", "null"]
)
def test_a_page_of_another_than_the_configured_origin_may_not(
    client_with: Callable[..., TestClient], origin: str
) -> None:
    client = client_with(cors_origins=(SHOP,))
    asked = preflight(client, origin)
    assert (asked.status_code, "access-control-allow-origin" in asked.headers) == (400, False)
    sent = {"Origin": origin, "Sec-Fetch-Site": "cross-site"}
    assert client.post(SEARCH, json=ITEM, headers=sent).status_code == 403


def test_any_origin_may_with_keys_only(client_with: Callable[..., TestClient]) -> None:
    client = client_with(cors_origins=("*",), api_keys={"a-good-key": ("search",)})
    sent = {"Origin": "https://any.example", "Sec-Fetch-Site": "cross-site"}
    assert client.post(SEARCH, json=ITEM, headers=sent | KEY).status_code == 200
    with pytest.raises(RequestError, match="lets every site change"):
        check_exposure(Settings(cors_origins=("*",)))


@pytest.mark.parametrize(
    "fields",
    [
        {"allowed_hosts": ["https://search.example"]},
        {"allowed_hosts": ["search.example:80"]},
        {"allowed_hosts": ["Search.example"]},
        {"allowed_hosts": [""]},
        {"allowed_hosts": ["a.*.example"]},
        {"cors_origins": ["shop.example"]},
        {"cors_origins": ["https://shop.example/"]},
        {"cors_origins": ["https://Shop.example"]},
        {"cors_origins": ["null"]},
        {"trusted_proxies": ["proxy"]},
        {"trusted_proxies": ["*"]},
    ],
    ids=str,
)
def test_settings_that_would_match_nothing_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate(fields)
