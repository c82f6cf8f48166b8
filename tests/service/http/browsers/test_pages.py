"""What a browser may do with an answer: headers on all, and the script that the documentation may run."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.service.types import MakeSettings
from vicinal.service.http.app import create_app

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


def test_the_documentation_runs_its_own_script_alone(client: TestClient) -> None:
    answer = client.get("/docs")
    (own,) = re.findall("<script>(.*?)</script>", answer.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(own.encode()).digest()).decode()
    policy = answer.headers["content-security-policy"]
    assert f"script-src 'self' 'sha256-{digest}'; style-src 'self';" in policy
    assert policy.startswith("default-src 'none'; ")
