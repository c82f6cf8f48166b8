"""`vicinal label`: the page of a local server, whose answers are kept."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from typer.testing import Result

pytestmark = pytest.mark.slow

Run = Callable[..., Result]
LABELLING = "v1/admin/galleries/shoes/labelling"


def start(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    """The command, and the address that it prints."""
    command = [sys.executable, "-m", "vicinal", "label", "-g", "shoes", "--no-browser", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"http://127\.0\.0\.1:\d+/\S+", line):
            return process, found[0]
    raise AssertionError(f"no address: exit status {process.wait()}")


def stop(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    return printed


def answer(base: str, n: int) -> None:
    with httpx.Client(base_url=base, timeout=30.0) as client:
        state = client.get(LABELLING).json()
        for _ in range(n):
            question = state["questions"][0]
            first, second = (one.split("/")[0] for one in question["items"])
            body = {"number": question["number"], "same": first == second}
            state = client.post(f"{LABELLING}/answers", json=body).raise_for_status().json()


def test_a_stopped_session_goes_on_and_ends_as_a_threshold(cli_environment: None, data_dir: Path) -> None:
    process, address = start("--target", "precision=90%")
    base = address.partition("/label")[0] + "/"
    assert httpx.get(address).status_code == 200
    answer(base, 5)
    assert stop(process).startswith("5 answers are kept: go on by `vicinal label -g shoes`.")
    process, address = start("--target", "precision=90%")
    base = address.partition("/label")[0] + "/"
    answer(base, 40)
    httpx.post(base + LABELLING + "/finish", timeout=30.0).raise_for_status()
    assert "Of 100 matches that are shown, about " in stop(process)


def test_the_page_needs_no_key_on_its_own_machine(
    cli_environment: None, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VICINAL_API_KEYS", '{"secret": ["admin"]}')
    process, address = start()
    assert httpx.get(address.partition("/label")[0] + "/" + LABELLING).status_code == 200
    stop(process)


def test_a_gallery_that_is_not_there_is_one_line(fail: Callable[..., str]) -> None:
    assert "there is no gallery 'hats'" in fail("label", "-g", "hats", "--no-browser")


def test_an_unlabelled_gallery_is_told_of_it(fail: Callable[..., str], run: Run, catalog: Path) -> None:
    one = next(catalog.rglob("*.png")).parent
    run("index", one, "--gallery", "bare")
    assert "without any by `vicinal label`" in fail("calibrate", "-g", "bare")
