"""Short forms of load and soak: nothing fails, nothing is lost, and what would count is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.common.server_process import running_server
from benchmarks.load.searches import of_kind, ready_gallery
from benchmarks.load.soak import growth, is_steady, soak
from vicinal.models.bundle import default_bundle_path
from vicinal.service.demo import prepare_demo
from vicinal.service.settings import Settings


@pytest.mark.slow
def test_a_server_under_more_load_than_it_can_answer_turns_away_and_loses_nothing(tmp_path: Path) -> None:
    requests = ready_gallery(tmp_path / "data", 2_000)
    with running_server(tmp_path / "data", default_bundle_path(), {"VICINAL_LOG_LEVEL": "warning"}) as (
        url,
        _,
    ):
        seen = of_kind(int(url.rpartition(":")[2]), requests, 1.5, 0.05, clients=(1, 8))
    for one in (*seen["closed"].values(), seen["half"], seen["three_times"]):
        assert one["dropped"] == 0
        assert set(one["statuses"]) <= {"200", "429"}
        # How soon it is answered is measured, not tested.
        assert set(one["livez"]) <= {"200"}
    assert seen["best"] > 0


@pytest.mark.slow
def test_everything_at_once_fails_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each change comes early, however little of its time the machine leaves to it.
    monkeypatch.setattr("benchmarks.load.soak._ROUND_SECONDS", 0.1)
    monkeypatch.setattr("benchmarks.load.soak._N_KEPT_ROUNDS", 1)
    prepare_demo(tmp_path, Settings(bundle=default_bundle_path()), lambda *_: None)
    result = soak(tmp_path / "data", tmp_path / "catalog", minutes=0.2, settled=0.05, rate=5.0)
    assert result["failures"] == []
    # On a busy machine some wait too long.
    assert {"200"} <= set(result["searches"]["statuses"]) <= {"200", "429"}
    assert result["searches"]["dropped"] == 0
    assert min(result["changes"][name] for name in ("add", "patch", "delete", "compact")) > 0


def samples(**grown: float) -> list[dict[str, float]]:
    """A minute of samples; some numbers grow by as much in that time."""
    steady = {"resident": 400.0, "anonymous": 200.0, "threads": 40.0, "handles": 60.0}
    return [
        {"seconds": float(at), **{name: n + grown.get(name, 0.0) * at / 60 for name, n in steady.items()}}
        for at in range(61)
    ]


def outcome(**grown: float) -> dict[str, Any]:
    searches = {"statuses": {"200": {}}}
    return {"growth": growth(samples(**grown), 10.0), "n_failures": 0, "searches": searches}


def test_what_stays_is_steady() -> None:
    assert is_steady(outcome())
    # A twentieth of the memory within the half of the time is too much, less is not.
    assert is_steady(outcome(resident=20.0))


@pytest.mark.parametrize("grown", [{"resident": 80.0}, {"threads": 4.0}, {"handles": 4.0}])
def test_what_grows_is_not(grown: dict[str, float]) -> None:
    assert not is_steady(outcome(**grown))


@pytest.mark.parametrize("change", [{"n_failures": 1}, {"searches": {"statuses": {"200": {}, "503": {}}}}])
def test_what_fails_is_not(change: dict[str, Any]) -> None:
    assert not is_steady(outcome() | change)
