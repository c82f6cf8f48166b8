"""Meters of time and memory for parts of a computation that are compared with each other."""

from __future__ import annotations

import multiprocessing
import re
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["Memory", "Peak", "Times", "in_fresh_process", "interleaved", "peak_of"]

_SECONDS_BETWEEN_LOOKS = 0.05


@dataclass(frozen=True)
class Times:
    """Seconds of one part, one number a repetition.

    Attributes:
        busy: What ratios are made of: CPU time of the process, which hardly sees what else the machine does;
            on an accelerator the wall time up to the end of its work.
        wall: Wall time.
    """

    busy: list[float]
    wall: list[float]

    def over(self, other: Times) -> dict[str, Any]:
        """Ratios to another part, repetition by repetition."""
        ratios = [own / its for own, its in zip(self.busy, other.busy, strict=True)]
        walls = [own / its for own, its in zip(self.wall, other.wall, strict=True)]
        return {
            "ratio": round(statistics.median(ratios), 4),
            "ratio_range": [round(min(ratios), 4), round(max(ratios), 4)],
            "wall_ratio": round(statistics.median(walls), 4),
        }

    def row(self) -> dict[str, Any]:
        """Medians in milliseconds, and every repetition."""
        return {
            "milliseconds": round(1e3 * statistics.median(self.busy), 3),
            "wall_milliseconds": round(1e3 * statistics.median(self.wall), 3),
            "raw_milliseconds": [round(1e3 * seconds, 3) for seconds in self.busy],
        }


@dataclass(frozen=True)
class Peak:
    """Memory of one part in bytes.

    Attributes:
        before: In use before it: resident memory of the process, or memory allocated on the accelerator.
        highest: High-water mark while it ran.
    """

    before: int
    highest: int

    @property
    def extra(self) -> int:
        """What the part needed on top."""
        return self.highest - self.before


def interleaved(
    parts: Mapping[str, Callable[[], object]], device: torch.device, *, repetitions: int, warm_up: bool = True
) -> dict[str, Times]:
    """Time parts in turns, so that whatever else happens on the machine meets all of them.

    Args:
        parts: What to run, by name.
        device: Where the work is done.
        repetitions: Turns that count.
        warm_up: Run each part once before, uncounted.
    """
    times = {name: Times([], []) for name in parts}
    for turn in range(repetitions + warm_up):
        for name, run in parts.items():
            busy, wall = _seconds(run, device)
            if turn >= warm_up:
                times[name].busy.append(busy)
                times[name].wall.append(wall)
    return times


def peak_of(run: Callable[[], object], device: torch.device | None = None) -> Peak:
    """Memory in use before a part and at most while it runs.

    Args:
        run: The part.
        device: Where the work is done; the processor when None.
    """
    if device is not None and device.type == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        return Peak(before, torch.cuda.max_memory_allocated(device))
    # 5 sets the high-water mark of the process back to what it holds now (proc(5)).
    Path("/proc/self/clear_refs").write_text("5")
    before = _resident("VmRSS")
    run()
    return Peak(before, _resident("VmHWM"))


class Memory:
    """Most memory that this process holds while the context lasts, looked at all the time.

    Attributes:
        anonymous: Its own, in bytes.
        resident: With the pages of mapped files, which the system takes back when it needs them.
    """

    def __init__(self) -> None:
        self.anonymous = self.resident = 0
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._watched, daemon=True)

    def __enter__(self) -> Memory:
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watch.join()
        self._look()

    def as_json(self) -> dict[str, int]:
        """Both, by name."""
        return {"anonymous": self.anonymous, "resident": self.resident}

    def _watched(self) -> None:
        while not self._over.wait(_SECONDS_BETWEEN_LOOKS):
            self._look()

    def _look(self) -> None:
        self.anonymous = max(self.anonymous, _resident("RssAnon"))
        self.resident = max(self.resident, _resident("VmRSS"))


def in_fresh_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """Result of a function of a module in a process of its own: no memory is left over from anything else."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def _seconds(run: Callable[[], object], device: torch.device) -> tuple[float, float]:
    _wait_for(device)
    busy, wall = time.process_time(), time.perf_counter()
    run()
    _wait_for(device)
    busy, wall = time.process_time() - busy, time.perf_counter() - wall
    return (busy if device.type == "cpu" else wall), wall


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)


def _resident(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"/proc/self/status does not name {name}: memory is measured on Linux only")
    return 1024 * int(found[1])
