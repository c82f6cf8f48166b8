"""What a browser may do with an answer: headers on all, and pages whose policy names their own parts."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.service.types import MakeSettings
from vicinal.service.http.app import create_app
from vicinal.service.http.routes.operations import html_page

SEARCH = "/v1/galleries/shoes/search"
WANTED = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
ANSWERS = [
    ("GET", "/", 200),
    ("GET", "/label", 200),
    ("GET", "/review", 200),
    ("GET", "/page/older/main.js", 404),
    ("GET", "/docs", 200),
    ("GET", "/docs/swagger-ui.css", 200),
    ("GET", "/docs/nothing", 404),
    ("GET", "/livez", 200),
    ("GET", "/metrics", 200),
    ("GET", "/openapi.json", 200),
    ("GET", "/v1/galleries", 200),
    ("GET", "/v1/galleries/shoes/thumbnails/plain/view 0.png", 200),
    ("GET", "/v1/galleries/none", 404),
    ("GET", "/nothing", 404),
    ("POST", "/v1/galleries", 405),
    ("POST", SEARCH, 422),
]


@pytest.fixture
def client(calibrated_dir: Path, make_settings: MakeSettings) -> TestClient:
    return TestClient(create_app(make_settings(calibrated_dir)), raise_server_exceptions=False)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path", "status"), ANSWERS)
def test_every_answer_has_the_headers(client: TestClient, method: str, path: str, status: int) -> None:
    answer = client.request(method, path)
    assert answer.status_code == status
    assert {name: answer.headers.get(name) for name in WANTED} == WANTED
    policy = answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize(
    ("headers", "settings", "status"),
    [
        ({}, {"api_keys": {"key": ("search",)}}, 401),
        ({"Host": "evil.example"}, {}, 421),
        ({"Origin": "https://evil.example"}, {}, 403),
        ({"Content-Length": "999999999999"}, {}, 413),
    ],
)
def test_refusals_before_the_body_have_them(
    calibrated_dir: Path,
    make_settings: MakeSettings,
    headers: dict[str, str],
    settings: dict[str, object],
    status: int,
) -> None:
    refused = TestClient(create_app(make_settings(calibrated_dir, **settings))).post(SEARCH, headers=headers)
    assert refused.status_code == status
    assert {name: refused.headers.get(name) for name in WANTED} == WANTED


def test_an_unexpected_error_has_them(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vicinal.service.measuring.matcher.Matcher.search", lambda *_, **__: 1 / 0)
    answer = client.post(SEARCH, json={"item_id": "plain/view 0.png"})
    assert answer.status_code == 500
    assert {name: answer.headers.get(name) for name in WANTED} == WANTED


def test_a_page_names_its_own_parts_by_their_hashes() -> None:
    html = "<style>\na{}</style><script>1</script><script src='x'></script><script>2\n</script>"
    policy = html_page(html, shipped=html, img="'self' data:").headers["content-security-policy"]
    hashes = ["sha256-" + base64.b64encode(hashlib.sha256(one).digest()).decode() for one in (b"1", b"2\n")]
    assert f"script-src '{hashes[0]}' '{hashes[1]}'" in policy
    assert "img-src 'self' data:" in policy
    assert policy.startswith("default-src 'none'; ")


def test_a_page_without_scripts_runs_none() -> None:
    assert "script-src" not in html_page("<p>", shipped="<p>").headers["content-security-policy"]


@pytest.mark.parametrize("smuggled", ["<script>alert(1)</script>", "<style>*{background:red}</style>"])
def test_what_came_with_a_value_may_not_run(smuggled: str) -> None:
    """Should a template ever fail to escape one."""
    shipped = "<style>a{}</style><script>1</script>"
    policies = [
        html_page(html, shipped=shipped).headers["content-security-policy"]
        for html in (shipped, shipped + smuggled, smuggled + shipped)
    ]
    assert len(set(policies)) == 1
    assert policies[0].count("sha256-") == 2
