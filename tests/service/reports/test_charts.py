"""Charts: what is drawn stands where a plain computation puts it."""

from __future__ import annotations

import math
import re

import pytest

from vicinal.service.reports.charts import Axis, Chart, log_ticks, round_ticks
from vicinal.service.reports.markup import Element

LEFT, RIGHT, TOP, BOTTOM = 64.0, 448.0, 12.0, 236.0


def chart(*, is_log: bool = False) -> Chart:
    y = Axis(0.001, 1.0, "share", is_log=True) if is_log else Axis(0.0, 0.5, "share")
    return Chart(Axis(0.2, 0.9, "threshold"), y, "rates")


def slow_place(x: float, y: float, *, is_log: bool) -> tuple[float, float]:
    """By hand: the drawing is 384 wide and 224 high, and upside down."""
    x_share = (x - 0.2) / 0.7
    y_share = (math.log10(y) + 3) / 3 if is_log else y / 0.5
    return 64 + 384 * x_share, 236 - 224 * y_share


def points_of(drawn: Element) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.]+),([\d.]+)", drawn.get("d"))]


def layers(drawn: Chart, tag: str, kind: str) -> list[Element]:
    return [one for one in drawn.svg().iter(tag) if kind in one.get("class", "").split()]


def assert_alike(actual: list[tuple[float, float]], expected: list[tuple[float, float]]) -> None:
    assert len(actual) == len(expected)
    assert [value for pair in actual for value in pair] == pytest.approx(
        [value for pair in expected for value in pair], abs=0.051
    )


@pytest.mark.parametrize("is_log", [False, True])
def test_a_line_goes_through_its_points(is_log: bool) -> None:
    drawn = chart(is_log=is_log)
    xs, ys = [0.2, 0.31, 0.77, 0.9], [0.5, 0.1, 0.02, 0.003]
    drawn.line(xs, ys, "s1")
    (line,) = layers(drawn, "path", "line")
    expected = [slow_place(x, y, is_log=is_log) for x, y in zip(xs, ys, strict=True)]
    assert_alike(points_of(line), expected)


def test_a_chart_upside_down_or_of_another_scale_would_be_noticed() -> None:
    wrong = [(x, 248 - y) for x, y in [slow_place(0.5, 0.1, is_log=False)]]
    with pytest.raises(AssertionError):
        assert_alike([chart().at(0.5, 0.1)], wrong)
    with pytest.raises(AssertionError):
        assert_alike([chart(is_log=True).at(0.5, 0.1)], [slow_place(0.5, 0.1, is_log=False)])


def test_a_line_is_broken_where_a_value_is_not_known() -> None:
    drawn = chart()
    drawn.line([0.2, 0.3, 0.4, 0.5, 0.6], [0.1, 0.2, None, 0.3, 0.4], "s1")
    (line,) = layers(drawn, "path", "line")
    assert line.get("d").count("M") == 2
    assert len(points_of(line)) == 4


def test_a_line_of_nothing_known_is_not_drawn() -> None:
    drawn = chart()
    drawn.line([0.2, 0.3], [None, None], "s1")
    assert layers(drawn, "path", "line") == []


def test_a_histogram_stands_on_its_edges() -> None:
    drawn = chart()
    drawn.steps([0.2, 0.4, 0.9], [0.1, 0.25], "s2")
    (area,) = layers(drawn, "path", "area")
    corners = [(0.2, 0.0), (0.2, 0.1), (0.4, 0.1), (0.4, 0.25), (0.9, 0.25), (0.9, 0.0)]
    assert_alike(points_of(area), [slow_place(x, y, is_log=False) for x, y in corners])


def test_bars_and_bands_cover_their_range() -> None:
    drawn = chart()
    drawn.band(0.3, 0.5)
    drawn.bar(0.6, 0.7, 0.25, "s1")
    (band,), (bar,) = layers(drawn, "rect", "band"), layers(drawn, "rect", "bar")
    for rectangle, (left, right, height) in ((band, (0.3, 0.5, 0.5)), (bar, (0.6, 0.7, 0.25))):
        x, y, width, tall = (float(rectangle.get(name)) for name in ("x", "y", "width", "height"))
        assert_alike(
            [(x, y), (x + width, y + tall)],
            [slow_place(left, height, is_log=False), slow_place(right, 0.0, is_log=False)],
        )


def test_an_interval_reaches_from_end_to_end() -> None:
    drawn = chart()
    drawn.interval(0.5, 0.1, 0.3, "s1", shift=5.0)
    upright, *ends = layers(drawn, "line", "interval")
    x, low = slow_place(0.5, 0.1, is_log=False)
    high = slow_place(0.5, 0.3, is_log=False)[1]
    places = [float(upright.get(name)) for name in ("x1", "y1", "x2", "y2")]
    assert places == pytest.approx([x + 5, low, x + 5, high], abs=0.051)
    assert len(ends) == 2


def test_what_lies_beyond_is_drawn_at_the_edge() -> None:
    assert chart().at(0.0, 9.0) == (LEFT, TOP)
    assert chart(is_log=True).at(2.0, 0.0) == (RIGHT, BOTTOM)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 1.0, (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
        (0.05, 0.32, (0.1, 0.2, 0.3)),
        (3.0, 3.0, (3.0,)),
        (-10.0, 15.0, (-10.0, -5.0, 0.0, 5.0, 10.0, 15.0)),
    ],
)
def test_ticks_are_round(low: float, high: float, expected: tuple[float, ...]) -> None:
    assert round_ticks(low, high) == pytest.approx(expected)


def test_logarithmic_ticks_are_powers_of_ten() -> None:
    assert log_ticks(0.001, 1.0) == pytest.approx((0.001, 0.01, 0.1, 1.0))
