"""Raw results: what was measured, on what machine, with which versions, from which commit."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = ["RESULTS", "percentiles", "save_result"]

RESULTS = Path(__file__).parents[1] / "results"
_PACKAGES = ("vicinal", "numpy", "faiss-cpu", "onnxruntime", "pylance", "pillow", "torch")


def save_result(name: str, result: dict[str, Any]) -> Path:
    """Write one raw result with its circumstances; an earlier result of the same name is replaced."""
    document = {
        "name": name,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "system": platform.platform(),
            "python": platform.python_version(),
        },
        "versions": {package: found for package in _PACKAGES if (found := _version(package))},
        **result,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return path


def percentiles(values: list[float]) -> dict[str, float]:
    """Median, 90th and 99th percentile, rounded to microseconds for times in milliseconds."""
    ranked = sorted(values)
    return {
        name: round(ranked[min(len(ranked) - 1, int(share * len(ranked)))], 3)
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
    }


def _commit() -> str:
    """Commit of these sources, wherever they are run from; a copy without its `.git` has none."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "unknown"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
