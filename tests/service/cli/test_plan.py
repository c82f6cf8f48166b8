"""`vicinal plan`: the same figures for a person and for a script."""

from __future__ import annotations

import json

from tests.service.types import Fail, Run
from vicinal.service.operations.plan import Plan, Request
from vicinal.service.operations.plan import run as planned

WISH = ("--items", 10_000_000, "--dim", 512, "--qps", 200)


def test_the_text_says_what_the_json_says(run: Run) -> None:
    found = Plan.model_validate(json.loads(run("plan", *WISH, "--spare", 1, "--json").stdout))
    assert found == planned(Request(items=10_000_000, dim=512, qps=200, spare=1))
    lines = run("plan", *WISH, "--spare", 1).stdout.splitlines()
    for figure in found.figures:
        line = next(one for one in lines if one.strip().startswith(f"{figure.name} "))
        assert figure.span in line
        assert ("not measured, by formula" in line) != figure.is_measured
    assert [one.removeprefix("limit: ") for one in lines if one.startswith("limit: ")] == list(found.limits)
    assert f"{found.replicas} replicas of {found.processes} processes" in lines[1]


def test_no_gallery_and_no_server_is_needed(run: Run) -> None:
    assert run("plan", "--items", 1000, "--dim", 128, "--qps", 1).stdout.startswith("1,000 items")


def test_an_impossible_wish_is_one_line(fail: Fail) -> None:
    said = fail("plan", "--items", 3_000_000_000, "--dim", 512, "--qps", 1)
    assert said.startswith("vicinal: a gallery holds at most 2,147,483,647 items")
