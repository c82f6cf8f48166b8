"""What fell against the kept results is named, and nothing else is."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.common import baseline
from benchmarks.common.baseline import Change, changes

Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a result into the folder `kept` or `results`."""

    def into(folder: str, name: str, ratios: dict[str, float] | None, processor: str = "one") -> None:
        document: dict[str, Any] = {"name": name, "measured_at": folder, "machine": {"processor": processor}}
        (tmp_path / folder).mkdir(exist_ok=True)
        text = json.dumps(document if ratios is None else document | {"ratios": ratios})
        (tmp_path / folder / f"{name}.json").write_text(text, encoding="utf-8")

    return into


def found(folder: Path) -> list[Change]:
    return list(changes(folder / "kept", folder / "results"))


def ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Exit status of the command."""
    monkeypatch.setattr(sys, "argv", ["baseline", str(folder / "kept"), "--results", str(folder / "results")])
    with pytest.raises(SystemExit) as end:
        baseline.main()
    return end.value.code


@pytest.mark.parametrize(
    ("now", "fell"), [(2.0, False), (1.71, False), (1.69, True), (0.1, True), (9.0, False)]
)
def test_more_than_15_percent_less_is_a_fall(write: Write, tmp_path: Path, now: float, fell: bool) -> None:
    write("kept", "forms", {"int8 over float32": 2.0})
    write("results", "forms", {"int8 over float32": now})
    assert found(tmp_path) == [Change("forms", "int8 over float32", 2.0, now)]
    assert found(tmp_path)[0].fell == fell


def test_what_fell_is_named_and_the_status_is_1(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write("kept", "forms", {"slower": 2.0, "as fast": 3.0})
    write("results", "forms", {"slower": 1.0, "as fast": 3.0})
    assert ended(tmp_path, monkeypatch) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "FELL" in line] == [line for line in lines if "-50%" in line]
    assert lines[-2:] == ["2 ratios compared, 1 fell by more than 15%", "  forms: slower"]


def test_what_was_not_measured_again_is_left_out(write: Write, tmp_path: Path) -> None:
    write("kept", "forms", {"same": 2.0})
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "forms.json").write_bytes((tmp_path / "kept" / "forms.json").read_bytes())
    assert found(tmp_path) == []


@pytest.mark.parametrize(
    ("kept", "now", "remark"),
    [
        (None, {"a": 1.0}, "no ratios in the kept result"),
        ({"a": 1.0}, None, "no ratios in this result"),
        (None, None, "no ratios in the kept result and this result"),
    ],
)
def test_a_result_without_ratios_says_so(
    write: Write, tmp_path: Path, kept: dict[str, float] | None, now: dict[str, float] | None, remark: str
) -> None:
    write("kept", "old", kept)
    write("results", "old", now)
    assert found(tmp_path) == [Change("old", remark=remark)]


def test_ratios_of_one_side_alone_are_told_and_did_not_fall(write: Write, tmp_path: Path) -> None:
    write("kept", "losses", {"cpu": 2.0, "cuda": 2.0})
    write("results", "losses", {"cpu": 2.0, "more": 5.0})
    by_name = {one.ratio: one for one in found(tmp_path)}
    assert (by_name["cuda"].remark, by_name["more"].remark) == ("not measured", "not in the kept result")
    assert not any(one.fell for one in by_name.values())


def test_another_processor_is_told(write: Write, tmp_path: Path) -> None:
    write("kept", "forms", {"a": 2.0}, "one")
    write("results", "forms", {"a": 2.0}, "another")
    assert found(tmp_path)[0].remark == "another processor"


def test_without_the_copy_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(tmp_path, monkeypatch) == 2
    assert "before measuring" in capsys.readouterr().err
