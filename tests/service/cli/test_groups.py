"""Commands that decide by group: calibrate, search, compare and the thresholds of groups."""

from __future__ import annotations

import json
from pathlib import Path

from tests.service.types import Run

QUERY = Path("plain") / "view 0.png"


def search(run: Run, catalog: Path, *options: str) -> dict:
    return json.loads(run("search", catalog / QUERY, "-g", "shoes", "--json", *options).stdout)


def test_groups_are_calibrated_and_searched_by_their_own_threshold(
    run: Run, data_dir: Path, catalog: Path
) -> None:
    record = json.loads(run("calibrate", "-g", "shoes", "--group-by", "label", "--json").stdout)
    assert record["pipeline"]["group"]["by"] == "label"
    assert record["evidence"]["metric"]["chosen"] in ("cosine", "lda")
    answer = search(run, catalog, "--group-by", "label")
    assert answer["threshold"]["calibration"] == record["id"]
    assert [one["group"] for one in answer["groups"]] == ["plain"]
    by_photo = search(run, catalog)
    assert (by_photo["groups"], by_photo["threshold"]["value"]) == (None, None)
    text = run("search", catalog / QUERY, "-g", "shoes", "--group-by", "label").stdout
    assert "1 matching group at threshold" in text
    assert "plain/view 0.png" in text


def test_a_threshold_of_groups_is_set_by_hand_and_taken_back(run: Run, data_dir: Path, catalog: Path) -> None:
    first = json.loads(
        run("calibrate", "-g", "shoes", "--group-by", "label", "--metric", "lda", "--json").stdout
    )
    run("calibration", "set", "0.99", "-g", "shoes", "--group-by", "label")
    answer = search(run, catalog, "--group-by", "label")
    assert (answer["threshold"]["value"], answer["threshold"]["source"]) == (0.99, "by_hand")
    # By hand too the form is the one that was in force.
    assert "group=lda" in answer["pipeline"]
    run("calibration", "rollback", "-g", "shoes", "--group-by", "label")
    assert search(run, catalog, "--group-by", "label")["threshold"]["calibration"] == first["id"]
