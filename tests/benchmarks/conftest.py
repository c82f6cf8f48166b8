"""Short forms of benchmarks: that they run, on so little that how fast says nothing."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.common import record


@pytest.fixture
def short_form(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Runs a benchmark's `main` with some options, and gives the result that it would have kept."""

    def run(benchmark: str, *options: object) -> dict[str, Any]:
        module = importlib.import_module(f"benchmarks.{benchmark}")
        kept = tmp_path / "results"
        monkeypatch.setattr(record, "RESULTS", kept)
        monkeypatch.setattr(sys, "argv", [benchmark, *map(str, options)])
        module.main()
        found = list(kept.glob("*.json")) if kept.exists() else []
        return json.loads(found[0].read_text(encoding="utf-8")) if found else {}

    return run
