"""What fell against the kept results: ratios of two things that one run measured, never times.

    python -m benchmarks.common.baseline build/kept-results

A time says as much about the machine as about the code. So a result names in `ratios` what may be compared:
numbers whose higher value is better, each of two parts of the same run. Results are compared with a copy of
the kept ones that was made before they were replaced. What fell by more than 15 % is named, and the exit
status is 1.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common.record import RESULTS

__all__ = ["MOST_LOST", "Change", "changes"]

MOST_LOST = 0.15


@dataclass(frozen=True)
class Change:
    """One ratio of one result, before and now.

    Attributes:
        result: Name of the result.
        ratio: Name of the ratio; empty where the whole result cannot be compared.
        kept: Its value in the kept result; None where that has none.
        found: Its value now; None where it was not measured.
        remark: Why it cannot be compared, or what makes it less comparable.
    """

    result: str
    ratio: str = ""
    kept: float | None = None
    found: float | None = None
    remark: str = ""

    @property
    def fell(self) -> bool:
        """Whether it lost more than machines differ by."""
        if self.kept is None or self.found is None:
            return False
        return self.found < (1.0 - MOST_LOST) * self.kept

    def __str__(self) -> str:
        numbers = [
            f"{value:12.4g}" if value is not None else f"{'-':>12}" for value in (self.kept, self.found)
        ]
        change = "" if None in (self.kept, self.found) else f"{self.found / self.kept - 1.0:+.0%}"
        told = "FELL" if self.fell else self.remark
        return f"{self.result:28} {self.ratio:52} {''.join(numbers)} {change:>6} {told}".rstrip()


def changes(kept: Path, results: Path) -> Iterator[Change]:
    """Every ratio of the results that were replaced since a copy of them was kept.

    Args:
        kept: Folder of the copy.
        results: Folder of the results.
    """
    for path in sorted(results.glob("*.json")):
        earlier = kept / path.name
        text = path.read_text(encoding="utf-8")
        if not earlier.exists():
            yield Change(path.stem, remark="no kept result")
            continue
        before = earlier.read_text(encoding="utf-8")
        if before != text:
            yield from _compared(path.stem, json.loads(before), json.loads(text))


def _compared(name: str, before: dict[str, Any], now: dict[str, Any]) -> Iterator[Change]:
    kept, found = before.get("ratios", {}), now.get("ratios", {})
    if not kept or not found:
        which = " and ".join(
            one for one, ratios in (("the kept result", kept), ("this result", found)) if not ratios
        )
        yield Change(name, remark=f"no ratios in {which}")
        return
    machines = [document.get("machine", {}).get("processor", "") for document in (before, now)]
    other = "" if machines[0] == machines[1] else "another processor"
    for ratio in sorted(kept.keys() | found.keys()):
        values = kept.get(ratio), found.get(ratio)
        missing = ["not in the kept result"] * (values[0] is None) + ["not measured"] * (values[1] is None)
        yield Change(name, ratio, *values, remark=", ".join(missing) or other)


def main() -> None:
    """Print what changed, and end with 1 where something fell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("kept", type=Path, help="copy of the results before they were replaced")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if not arguments.kept.is_dir():
        parser.error(f"there is no folder '{arguments.kept}': copy {RESULTS} there before measuring")
    found = list(changes(arguments.kept, arguments.results))
    for one in found:
        print(one)
    fell = [f"{one.result}: {one.ratio}" for one in found if one.fell]
    n_compared = sum(None not in (one.kept, one.found) for one in found)
    print(f"{n_compared} ratios compared, {len(fell)} fell by more than {MOST_LOST:.0%}", *fell, sep="\n  ")
    raise SystemExit(1 if fell else 0)


if __name__ == "__main__":
    main()
