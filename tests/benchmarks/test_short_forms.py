"""No benchmark of speed, and no comparison with peers, is without a short form."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_benchmark_of_speed_and_peers_is_run_at_a_tiny_size() -> None:
    scripts = {
        f"{folder}.{path.stem}"
        for folder in ("peers", "speed")
        for path in (ROOT / "benchmarks" / folder).glob("*.py")
        if "def main() " in path.read_text(encoding="utf-8")
    }
    tests = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "tests/benchmarks").glob("*/test_*.py")
    )
    assert scripts - set(re.findall(r'short_form\(\s*"([\w.]+)"', tests)) == set()
    assert len(scripts) > 10
