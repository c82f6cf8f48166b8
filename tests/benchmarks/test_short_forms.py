"""No benchmark of speed, and no comparison with peers, is without a short form."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Those that have none yet.
WITHOUT = {
    "speed.engine_recall",  # Needs PostgreSQL
    "speed.fitted_unit_costs",  # Fits what others measured
    "speed.postgres_costs",  # Needs PostgreSQL
    "speed.ray_build",  # Needs a Ray cluster
    "speed.thumbnail_bytes",  # Needs the photos
    "speed.unit_costs",
}


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
    assert scripts - set(re.findall(r'short_form\(\s*"([\w.]+)"', tests)) == WITHOUT
    assert len(scripts) > 10
