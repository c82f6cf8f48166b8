"""Charts: where lines, areas, bars and intervals stand in a drawing; the templates make SVG of that."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

LEFT, RIGHT, TOP, BOTTOM = 64.0, 448.0, 12.0, 236.0
ASPECT = (RIGHT - LEFT) / (BOTTOM - TOP)

Place = tuple[float, float]


def round_ticks(low: float, high: float, n: int = 5) -> tuple[float, ...]:
    """About n round values from low to high: multiples of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return (low,)
    rough = (high - low) / n
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((power * one for one in (1, 2, 5) if power * one >= rough * (1 - 1e-9)), 10 * power)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple(round(step * number, 12) for number in range(first, last + 1))


def log_ticks(low: float, high: float) -> tuple[float, ...]:
    """Powers of ten from low to high."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    return tuple(10.0**power for power in range(first, last + 1))


@dataclass(frozen=True)
class Axis:
    """Values along one side of a chart, above 0 on a logarithmic one."""

    low: float
    high: float
    label: str
    is_log: bool = False
    written: Callable[[float], str] = "{:g}".format
    ticks: tuple[float, ...] | None = None

    def share(self, value: float) -> float:
        """Place of a value, 0 at the start and 1 at the end; values beyond are drawn at the ends."""
        value = min(max(value, self.low), self.high)
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def texts(self) -> list[tuple[float, str]]:
        """Every value with a tick, and how it is written."""
        chosen = log_ticks if self.is_log else round_ticks
        ticks = chosen(self.low, self.high) if self.ticks is None else self.ticks
        return [(value, self.written(value)) for value in ticks]


class Path(NamedTuple):
    """A line or filled outline; `name` is shown when somebody points at it, `legend` below the chart."""

    kind: str
    d: str
    name: str | None
    legend: str | None


@dataclass
class Chart:
    """Chart; what is drawn first lies below."""

    title: str
    x: Axis
    y: Axis
    paths: list[Path] = field(default_factory=list)
    texts: list[tuple[float, float, str]] = field(default_factory=list)

    def at(self, x: float, y: float) -> Place:
        """Place of a point on the drawing."""
        place = LEFT + (RIGHT - LEFT) * self.x.share(x), BOTTOM - (BOTTOM - TOP) * self.y.share(y)
        return round(place[0], 1), round(place[1], 1)

    def line(
        self,
        kind: str,
        points: Iterable[tuple[float, float | None]],
        *,
        name: str | None = None,
        legend: str | None = None,
    ) -> None:
        """A line through points, or an outline to fill; it is broken where y is None."""
        runs: list[list[Place]] = [[]]
        for x, y in points:
            if y is None:
                runs.append([])
            else:
                runs[-1].append(self.at(x, y))
        d = " ".join("M" + " L".join(f"{x:g},{y:g}" for x, y in run) for run in runs if run)
        if d:
            self.paths.append(Path(kind, d, name, legend))

    def steps(
        self, kind: str, edges: Sequence[float], heights: Sequence[float], *, legend: str | None = None
    ) -> None:
        """A histogram as one outline: height i stands from edge i to edge i + 1."""
        tops = zip(edges, edges[1:], heights, strict=False)
        corners = [corner for left, right, height in tops for corner in ((left, height), (right, height))]
        self.line(kind, [(edges[0], self.y.low), *corners, (edges[-1], self.y.low)], legend=legend)

    def mark(self, x: float, legend: str) -> None:
        """A dashed vertical line."""
        self.line("mark", [(x, self.y.low), (x, self.y.high)], legend=legend)

    def interval(self, kind: str, x: float, low: float, high: float, *, shift: float = 0.0) -> None:
        """An interval along the side, with a stroke at both ends, drawn `shift` beside its place."""
        (place, bottom), (_, top) = self.at(x, low), self.at(x, high)
        end = "h8 m-8,0"
        d = f"M{place + shift - 4:g},{bottom:g} {end} m4,0 V{top:g} m-4,0 {end}"
        self.paths.append(Path(f"interval {kind}", d, None, None))

    def dot(self, kind: str, place: Place, radius: float, *, name: str, legend: str | None = None) -> None:
        """A disc around a place."""
        x, y = self.at(*place)
        half = f"a{radius:.1f},{radius:.1f} 0 1 1"
        d = f"M{x - radius:.1f},{y:g} {half} {2 * radius:.1f},0 {half} {-2 * radius:.1f},0"
        self.paths.append(Path(f"dot {kind}", d, name, legend))

    def write(self, place: Place, text: str) -> None:
        """A text around a place."""
        self.texts.append((*self.at(*place), text))
