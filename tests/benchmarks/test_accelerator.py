"""The run for a lent accelerator: every part runs on a processor, and says why where it cannot on a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from benchmarks import accelerator  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PARTS = (
    "machine",
    "limits",
    "tests",
    "search",
    "neighbors",
    "pairs",
    "embedding",
    "gallery",
    "refinement",
    "loss",
)


def ran(*options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.accelerator", "--small", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_every_part_runs_on_a_processor(tmp_path: Path) -> None:
    found = ran("--device", "cpu", "--output", str(tmp_path / "found.json"))
    assert json.loads((tmp_path / "found.json").read_text()) == found
    assert set(PARTS) < found.keys()
    assert {name: found[name] for name in PARTS if "failed" in found[name]} == {}
    assert [name for name in PARTS if "left_out" in found[name]] == ["tests"]
    assert found["refinement"]["gated"]["items_per_second"] > 0
    assert found["gallery"]["largest_difference"] < 1e-6


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_what_is_not_there_is_left_out_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(device: str, sizes: accelerator.Sizes) -> dict[str, Any]:
        raise RuntimeError("CUDA error 719\n  unspecified launch failure")

    parts = [one for one in accelerator.PARTS if one.__name__ != "tests"]
    monkeypatch.setattr(accelerator, "PARTS", (broken, *parts))
    found = accelerator.measured("cuda", accelerator.SMALL)
    assert found["limits"]["left_out"] == "torch finds no GPU"
    left_out = "search", "neighbors", "pairs", "embedding", "gallery"
    assert all("without" in found[name]["left_out"] for name in left_out)
    assert found["broken"]["failed"] == "RuntimeError: CUDA error 719 unspecified launch failure"
