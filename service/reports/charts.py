"""Report charts: lines, areas, bars and intervals as inline SVG, in the colors of the page around them.

A chart has a fixed drawing area that the page scales to its column; what it shows is told by CSS classes:
`line`, `area`, `bar`, `interval` and `band` with `s1`, `s2` and so on for the series.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from vicinal.service.reports.markup import Element, element

__all__ = ["Axis", "Chart", "log_ticks", "percent", "round_ticks"]

WIDTH, HEIGHT = 460.0, 280.0
LEFT, RIGHT, TOP, BOTTOM = 64.0, 448.0, 12.0, 236.0

Values = Sequence[float | None]


def percent(rate: float) -> str:
    """A share in [0, 1] for people."""
    return f"{100 * rate:.3g} %"


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
    """Values along one side of a chart.

    Attributes:
        low: Value at the start; above 0 on a logarithmic axis.
        high: Value at the end.
        label: What they are.
        is_log: Whether the axis is logarithmic.
        written: How a value is written at its tick.
        ticks: Values with a tick; round ones when None.
    """

    low: float
    high: float
    label: str
    is_log: bool = False
    written: Callable[[float], str] = "{:g}".format
    ticks: tuple[float, ...] | None = None

    def share(self, value: float) -> float:
        """Where a value lies, 0 at the start and 1 at the end; values beyond are drawn at the ends."""
        value = min(max(value, self.low), self.high)
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    @property
    def ticked(self) -> tuple[float, ...]:
        """Values with a tick."""
        if self.ticks is not None:
            return self.ticks
        return log_ticks(self.low, self.high) if self.is_log else round_ticks(self.low, self.high)


@dataclass
class Chart:
    """One chart; what is drawn first lies below.

    Attributes:
        x: Values along the bottom.
        y: Values along the left side.
        title: What it shows, for those who cannot see it.
    """

    x: Axis
    y: Axis
    title: str
    _layers: list[Element] = field(default_factory=list)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Place of a point on the drawing."""
        return LEFT + (RIGHT - LEFT) * self.x.share(x), BOTTOM - (BOTTOM - TOP) * self.y.share(y)

    def line(self, xs: Sequence[float], ys: Values, series: str, *, name: str | None = None) -> None:
        """A line through points; it is broken where y is None.

        Args:
            xs: Values along the bottom.
            ys: As many values along the side.
            series: CSS classes of the line.
            name: Shown when somebody points at it.
        """
        runs: list[list[str]] = [[]]
        for x, y in zip(xs, ys, strict=True):
            if y is None:
                runs.append([])
            else:
                runs[-1].append(_pair(self.at(x, y)))
        path = " ".join("M" + " L".join(run) for run in runs if run)
        if path:
            hint = None if name is None else element("title", name)
            self._layers.append(element("path", hint, d=path, class_=f"line {series}"))

    def steps(self, edges: Sequence[float], heights: Sequence[float], series: str) -> None:
        """A histogram as one filled outline: height i stands from edge i to edge i + 1."""
        points = [(edges[0], self.y.low)]
        for left, right, height in zip(edges, edges[1:], heights, strict=False):
            points += [(left, height), (right, height)]
        points.append((edges[len(heights)], self.y.low))
        path = "M" + " L".join(_pair(self.at(*point)) for point in points) + " Z"
        self._layers.append(element("path", d=path, class_=f"area {series}"))

    def bar(self, left: float, right: float, height: float, series: str) -> None:
        """A bar from the bottom."""
        (x0, y0), (x1, y1) = self.at(left, self.y.low), self.at(right, height)
        self._layers.append(_rectangle(x0, y1, x1, y0, f"bar {series}"))

    def band(self, low: float, high: float) -> None:
        """A shaded range of x."""
        (x0, y0), (x1, y1) = self.at(low, self.y.low), self.at(high, self.y.high)
        self._layers.append(_rectangle(x0, y1, x1, y0, "band"))

    def mark(self, x: float) -> None:
        """A dashed vertical line."""
        (x0, y0), (_, y1) = self.at(x, self.y.low), self.at(x, self.y.high)
        self._layers.append(_segment(x0, y0, x0, y1, "mark"))

    def interval(self, x: float, low: float, high: float, series: str, *, shift: float = 0.0) -> None:
        """An interval along the side, with a stroke at both ends.

        Args:
            x: Where it stands.
            low: Lower end.
            high: Upper end.
            series: CSS classes.
            shift: How far aside it is drawn, so that two of them can be told apart.
        """
        (x0, y0), (_, y1) = self.at(x, low), self.at(x, high)
        x0 += shift
        self._layers.append(_segment(x0, y0, x0, y1, f"interval {series}"))
        for y in (y0, y1):
            self._layers.append(_segment(x0 - 4, y, x0 + 4, y, f"interval {series}"))

    def svg(self) -> Element:
        """The drawing."""
        return element(
            "svg",
            element("title", self.title),
            self._grid(),
            self._layers,
            _name(self.x.label, f"translate({(LEFT + RIGHT) / 2:g} {HEIGHT - 8:g})"),
            _name(self.y.label, f"translate(12 {(TOP + BOTTOM) / 2:g}) rotate(-90)"),
            viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}",
            role="img",
            class_="chart",
        )

    def _grid(self) -> Element:
        drawn = []
        for tick in self.x.ticked:
            x, y = self.at(tick, self.y.low)
            drawn.append(_segment(x, y, x, y + 4, "tick"))
            drawn.append(element("text", self.x.written(tick), x=_short(x), y=y + 17, text_anchor="middle"))
        for tick in self.y.ticked:
            x, y = self.at(self.x.low, tick)
            drawn.append(_segment(x, y, RIGHT, y, "grid"))
            drawn.append(element("text", self.y.written(tick), x=x - 6, y=_short(y + 4), text_anchor="end"))
        return element("g", drawn, class_="axes")


def _pair(place: tuple[float, float]) -> str:
    return f"{place[0]:.1f},{place[1]:.1f}"


def _short(value: float) -> str:
    return f"{value:.1f}"


def _name(text: str, place: str) -> Element:
    return element("text", text, transform=place, class_="name", text_anchor="middle")


def _segment(x0: float, y0: float, x1: float, y1: float, kind: str) -> Element:
    return element("line", x1=_short(x0), y1=_short(y0), x2=_short(x1), y2=_short(y1), class_=kind)


def _rectangle(x0: float, y0: float, x1: float, y1: float, kind: str) -> Element:
    return element(
        "rect", x=_short(x0), y=_short(y0), width=_short(x1 - x0), height=_short(y1 - y0), class_=kind
    )
