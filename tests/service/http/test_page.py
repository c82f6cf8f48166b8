"""The page over HTTP: one shell at its addresses, and files of one version alone."""

from __future__ import annotations

import gzip
import os
import re
import shutil
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from vicinal.service.http import page_files

STATIC = Path(page_files.__file__).resolve().parents[1] / "static"
POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; script-src 'self'; "
    "style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)


def first(client: TestClient) -> str:
    """Address of the script that the shell begins with."""
    found = re.search(r'src="(page/[0-9a-f]{12}/main\.js)"', client.get("/").text)
    assert found is not None
    return f"/{found[1]}"


def test_one_shell_stands_at_all_addresses(client: TestClient) -> None:
    shells = [client.get(path) for path in ("/", "/label?gallery=shoes", "/review")]
    assert len({one.text for one in shells}) == 1
    assert [one.headers["content-security-policy"] for one in shells] == [POLICY] * 3
    assert [one.headers["cache-control"] for one in shells] == ["no-cache"] * 3


def test_the_shell_has_no_script_and_style_of_its_own_and_loads_nothing_from_elsewhere(
    client: TestClient,
) -> None:
    shell = client.get("/").text
    named = re.findall(r'(?:src|href)="([^"]+)"', shell)
    assert {one.partition("/")[0] for one in named} == {"page", "data:,"}
    assert "<style" not in shell
    assert re.findall(r"<script[^>]*>[^<]", shell) == []
    assert {client.get(f"/{one}").status_code for one in named if one != "data:,"} == {200}


def test_files_come_packed_and_may_be_kept(client: TestClient) -> None:
    packed = client.get(first(client))
    plain = client.get(first(client), headers={"Accept-Encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.content == plain.content == page_files.page_files().files["main.js"].content
    assert "immutable" in plain.headers["cache-control"]
    assert plain.headers["vary"] == "Accept-Encoding"
    assert plain.headers["content-type"].startswith("text/javascript")


@pytest.mark.parametrize(
    "path",
    [
        "index.html",
        "docs.html",
        "../settings.py",
        "%2e%2e/settings.py",
        "lib",
        "",
        "/etc/passwd",
    ],
)
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    assert client.get(first(client).replace("main.js", path)).status_code in (404, 405)


def test_files_of_another_version_are_refused(client: TestClient) -> None:
    answer = client.get("/page/0123456789ab/main.js")
    assert (answer.status_code, answer.json()["detail"]) == (
        404,
        "this page is of an older version: reload it",
    )


def test_a_changed_file_has_another_address_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "static"
    shutil.copytree(STATIC, folder)
    before = page_files.page_files(folder)
    assert page_files.page_files(folder) is before
    changed = folder / "lib" / "text.js"
    changed.write_text(changed.read_text(encoding="utf-8") + "export const more = 1;\n", encoding="utf-8")
    os.utime(changed, ns=(1, 1))
    after = page_files.page_files(folder)
    assert after.digest != before.digest
    assert after.digest in after.shell
    assert b"const more = 1;" in gzip.decompress(after.files["main.js"].packed)
