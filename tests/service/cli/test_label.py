"""`vicinal label`: the page of a local server, whose answers are kept."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.forks import forked_python

pytestmark = pytest.mark.slow

LABELLING = "v1/admin/galleries/shoes/labelling"


def start(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    """The command, and the address that it prints."""
    command = [*forked_python(), "-m", "vicinal", "label", "-g", "shoes", "--no-browser", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"http://127\.0\.0\.1:\d+/\S+", line):
            return process, found[0]
    raise AssertionError(f"no address: exit status {process.wait()}")


def stop(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGINT)
    printed, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    return printed


def keyed(address: str) -> httpx.Client:
    """A client that has opened the page."""
    base, _, token = address.partition("/#")[0], *address.partition("token=")[1:]
    opened = httpx.post(f"{base}/label/key", json={"token": token}).raise_for_status()
    return httpx.Client(base_url=f"{base}/", headers={"X-API-Key": opened.json()["key"]}, timeout=30.0)


def answer(client: httpx.Client, n: int) -> None:
    state = client.get(LABELLING).json()
    for _ in range(n):
        question = state["questions"][0]
        first, second = (one.split("/")[0] for one in question["items"])
        body = {"number": question["number"], "same": first == second}
        state = client.post(f"{LABELLING}/answers", json=body).raise_for_status().json()


def test_a_stopped_session_goes_on_and_ends_as_a_threshold(cli_environment: None, data_dir: Path) -> None:
    process, address = start("--target", "precision=90%")
    assert httpx.get(address).status_code == 200
    with keyed(address) as client:
        answer(client, 5)
    assert stop(process).startswith("5 answers are kept: go on by `vicinal label -g shoes`.")
    process, address = start("--target", "precision=90%")
    with keyed(address) as client:
        answer(client, 40)
        client.post(LABELLING + "/finish").raise_for_status()
    assert "Of 100 matches that are shown, about " in stop(process)


@pytest.mark.parametrize("keys", ["", '{"secret": ["search", "write", "admin"]}'])
def test_nobody_else_on_the_machine_gets_in(
    cli_environment: None, data_dir: Path, monkeypatch: pytest.MonkeyPatch, keys: str
) -> None:
    monkeypatch.setenv("VICINAL_API_KEYS", keys)
    process, address = start()
    base, _, token = address.partition("/#")[0], *address.partition("token=")[1:]
    for key in ("", "secret", token):
        for path in (LABELLING, "v1/galleries", "v1/galleries/shoes", "metrics"):
            assert httpx.get(f"{base}/{path}", headers={"X-API-Key": key}).status_code == 401, path
    with keyed(address) as client:
        assert client.get(LABELLING).status_code == 200
        assert client.get("v1/galleries/other").status_code == 404
        assert client.put("v1/galleries/other?space=clip&dim=3").status_code == 404
        assert client.put("v1/aliases/live", json={"gallery": "shoes"}).status_code == 403
    assert httpx.post(f"{base}/label/key", json={"token": token}).status_code == 404
    stop(process)


def test_a_gallery_that_is_not_there_is_one_line(fail: Callable[..., str]) -> None:
    assert "there is no gallery 'hats'" in fail("label", "-g", "hats", "--no-browser")
