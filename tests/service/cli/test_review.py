"""`vicinal review`: by a script, and its page."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable

import httpx
import pytest

from tests.forks import forked_python
from tests.service.kept_searches import View, keep_searches
from vicinal.service.answering.store import SearchStore
from vicinal.service.measuring.matcher import Matcher

REVIEW = ("review", "-g", "shoes")


@pytest.fixture
def store(cli_environment: None, matcher: Matcher, view: View) -> SearchStore:
    """Twelve kept searches, whose ids are their numbers."""
    keep_searches(matcher, view, 12)
    return SearchStore(matcher.gallery.path)


@pytest.mark.parametrize("said", ["plain", "label", "absent=yes", "colour=red", "unsure="])
def test_what_says_nothing_of_a_search_is_refused(
    fail: Callable[..., str], store: SearchStore, said: str
) -> None:
    line = fail(*REVIEW, "--answer", "0" * 32, said)
    assert f"'{said}' says nothing of a search: say item=ID, label=NAME, absent, unsure or wrong=ID" in line


def test_an_unknown_label_is_one_line_with_the_nearest(fail: Callable[..., str], store: SearchStore) -> None:
    assert "the nearest are 'plain'" in fail(*REVIEW, "--answer", "0" * 32, "label=plane")
    assert "it was not kept, or has gone" in fail(*REVIEW, "--answer", "f" * 32, "absent")


@pytest.mark.slow
def test_its_page_is_for_nobody_else_and_what_is_known_is_said_at_the_end(store: SearchStore) -> None:
    command = [*forked_python(), "-m", "vicinal", *REVIEW, "--no-browser"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stderr is not None
    address = next(
        found[0] for line in process.stderr if (found := re.search(r"http://127\.0\.0\.1:\d+/\S+", line))
    )
    base, _, token = address.partition("/#")[0], *address.partition("token=")[1:]
    asking = "v1/admin/galleries/shoes/answers/next"
    assert httpx.get(address).status_code == 200
    assert httpx.get(f"{base}/{asking}").status_code == 401
    key = httpx.post(f"{base}/label/key", json={"token": token}).raise_for_status().json()["key"]
    with httpx.Client(base_url=f"{base}/", headers={"X-API-Key": key}, timeout=30.0) as client:
        (question,) = client.get(asking).raise_for_status().json()["questions"]
        body = {"search_id": question["search_id"], "absent": True}
        client.post("v1/galleries/shoes/answers", json=body).raise_for_status()
        assert client.get("v1/admin/galleries/boots/searches").status_code == 404
        # What was wrongly matched may be set aside there.
        aside = {"ids": [question["candidates"][0]["id"]], "reason": "two things"}
        assert client.post("v1/galleries/shoes/set-aside", json=aside).json()["removed"] == 1
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert printed.startswith("Of 1 answered search 0 show what the gallery has")
