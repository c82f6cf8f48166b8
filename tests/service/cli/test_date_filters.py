"""Dates of a table from the file to the answer: the day of a time is the one that is written there."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.service.types import Encode, MakeSettings, Run, View
from vicinal.service.http.app import create_app

TAKEN = {
    "ahead": "2026-01-31T00:30+02:00",
    "behind": "2026-01-31T23:30-05:00",
    "utc": "2026-01-31T12:00:00Z",
    "bare": "2026-01-31 08:15",
    "day": "2026-01-31",
    "before": "2026-01-30T23:59:59Z",
    "after": "2026-02-01T00:30+02:00",
    "none": "",
    "german": "31.01.2026",
}
ON_THE_DAY = {"ahead", "behind", "utc", "bare", "day"}


@pytest.mark.slow
def test_a_date_finds_the_day_that_a_table_says_whatever_its_zone(
    run: Run, tmp_path: Path, view: View, encode: Encode, make_settings: MakeSettings
) -> None:
    rows = [(f"{name}.png", name, taken) for name, taken in TAKEN.items()]
    for number, (path, *_) in enumerate(rows):
        view(number, 0).save(tmp_path / path)
    with (tmp_path / "list.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([("path", "id", "taken"), *rows])
    run("index", tmp_path / "list.csv", "-g", "dated")
    view(0, 1).save(tmp_path / "query.png")
    expected = {
        "metadata.taken = DATE '2026-01-31'": ON_THE_DAY,
        "metadata.taken >= DATE '2026-01-31'": ON_THE_DAY | {"after"},
        "metadata.taken < DATE '2026-01-31'": {"before"},
        "metadata.taken IN (DATE '2026-01-30', DATE '2026-02-01')": {"before", "after"},
        "metadata.taken BETWEEN DATE '2026-01-30' AND DATE '2026-01-31'": ON_THE_DAY | {"before"},
    }
    with TestClient(create_app(make_settings(tmp_path / "data"))) as client:
        for text, ids in expected.items():
            said = run(
                "search", tmp_path / "query.png", "-g", "dated", "--filter", text, "--limit", 20, "--json"
            )
            answer = client.post(
                "/v1/galleries/dated/search",
                files={"image": encode(view(0, 1))},
                data={"filter": text, "limit": "20"},
            )
            assert ids_in(json.loads(said.stdout)) == ids_in(answer.json()) == ids, text
        held = client.get("/v1/galleries/dated/items/ahead").json()["metadata"]
    assert held == {"taken": "2026-01-31T00:30+02:00"}


def ids_in(answer: object) -> set[str]:
    one = answer[0] if isinstance(answer, list) else answer
    assert isinstance(one, dict)
    return {candidate["id"] for candidate in one["candidates"]}
