"""The list of rows in which Vicinal is not first, and the picture, of the results that are kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

pytest.importorskip("matplotlib")

from benchmarks.peers import report
from benchmarks.peers.report import Row, draw_search, rows


def test_a_row_is_compared_by_the_best_way_of_vicinal() -> None:
    behind = Row("search", {"Vicinal, slow": 9.0, "Vicinal, quick": 3.0, "other": 2.0})
    assert (behind.fastest, behind.times_as_long) == ("other", 1.5)
    assert Row("search", {"Vicinal": 2.0, "other": 3.0}).times_as_long == 1.0


def test_kept_results_have_rows_of_every_kind() -> None:
    kinds = {row.work.partition(",")[0] for row in rows()}
    assert kinds >= {"search", "contextual re-ranking", "calibration", "embedding"}
    assert all(len(row.costs) > 1 for row in rows())


def test_what_is_behind_is_listed_worst_first(
    short_form: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    made = [
        Row("near", {"Vicinal": 3.0, "a": 2.0}),
        Row("first", {"Vicinal": 1.0, "a": 2.0}),
        Row("far", {"Vicinal": 9.0, "b": 1.0}),
    ]
    monkeypatch.setattr(report, "rows", lambda: iter(made))
    monkeypatch.setattr(report, "_PICTURE", tmp_path / "picture.png")
    short_form("peers.report")
    assert capsys.readouterr().out.splitlines() == [
        "Vicinal is not first in:",
        "  far: 9.00 times as long as b",
        "  near: 1.50 times as long as a",
    ]


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    draw_search(tmp_path / "picture.png")
    with Image.open(tmp_path / "picture.png") as image:
        assert image.size == (1100, 462)
