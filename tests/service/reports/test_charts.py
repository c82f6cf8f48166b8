"""Charts: what is drawn stands where a plain computation puts it."""

from __future__ import annotations

import math
import re

import pytest

from vicinal.service.reports.charts import Axis, Chart, Path, log_ticks, round_ticks

LEFT, RIGHT, TOP, BOTTOM = 64.0, 448.0, 12.0, 236.0


def chart(*, is_log: bool = False) -> Chart:
    y = Axis(0.001, 1.0, "share", is_log=True) if is_log else Axis(0.0, 0.5, "share")
    return Chart("rates", Axis(0.2, 0.9, "threshold"), y)


def slow_place(x: float, y: float, *, is_log: bool) -> tuple[float, float]:
    """By hand: the drawing is 384 wide and 224 high, and upside down."""
    x_share = (x - 0.2) / 0.7
    y_share = (math.log10(y) + 3) / 3 if is_log else y / 0.5
    return 64 + 384 * x_share, 236 - 224 * y_share


def points_of(drawn: Path) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.]+),([\d.]+)", drawn.d)]


def assert_alike(actual: list[tuple[float, float]], expected: list[tuple[float, float]]) -> None:
    assert len(actual) == len(expected)
    assert [value for pair in actual for value in pair] == pytest.approx(
        [value for pair in expected for value in pair], abs=0.051
    )


@pytest.mark.parametrize("is_log", [False, True])
def test_a_line_goes_through_its_points(is_log: bool) -> None:
    drawn = chart(is_log=is_log)
    points = [(0.2, 0.5), (0.31, 0.1), (0.77, 0.02), (0.9, 0.003)]
    drawn.line("line s1", points, name="FAR")
    (line,) = drawn.paths
    assert (line.kind, line.name) == ("line s1", "FAR")
    assert_alike(points_of(line), [slow_place(*point, is_log=is_log) for point in points])


def test_a_chart_upside_down_or_of_another_scale_would_be_noticed() -> None:
    wrong = [(x, 248 - y) for x, y in [slow_place(0.5, 0.1, is_log=False)]]
    with pytest.raises(AssertionError):
        assert_alike([chart().at(0.5, 0.1)], wrong)
    with pytest.raises(AssertionError):
        assert_alike([chart(is_log=True).at(0.5, 0.1)], [slow_place(0.5, 0.1, is_log=False)])


def test_a_line_is_broken_where_a_value_is_not_known() -> None:
    drawn = chart()
    drawn.line("line", zip([0.2, 0.3, 0.4, 0.5, 0.6], [0.1, 0.2, None, 0.3, 0.4], strict=True))
    (line,) = drawn.paths
    assert line.d.count("M") == 2
    assert len(points_of(line)) == 4


def test_a_line_of_nothing_known_is_not_drawn() -> None:
    drawn = chart()
    drawn.line("line", [(0.2, None), (0.3, None)])
    assert drawn.paths == []


def test_a_histogram_stands_on_its_edges() -> None:
    drawn = chart()
    drawn.steps("area s2", [0.2, 0.4, 0.9], [0.1, 0.25])
    corners = [(0.2, 0.0), (0.2, 0.1), (0.4, 0.1), (0.4, 0.25), (0.9, 0.25), (0.9, 0.0)]
    assert_alike(points_of(drawn.paths[0]), [slow_place(x, y, is_log=False) for x, y in corners])


def test_a_mark_stands_from_bottom_to_top() -> None:
    drawn = chart()
    drawn.mark(0.4, "threshold")
    (mark,) = drawn.paths
    assert_alike(points_of(mark), [slow_place(0.4, y, is_log=False) for y in (0.0, 0.5)])
    assert mark.legend == "threshold"


def test_an_interval_reaches_from_end_to_end() -> None:
    drawn = chart()
    drawn.interval("s1", 0.5, 0.1, 0.3, shift=5.0)
    x, low = slow_place(0.5, 0.1, is_log=False)
    high = slow_place(0.5, 0.3, is_log=False)[1]
    start = re.match(r"M([\d.]+),([\d.]+) h8 m-8,0 m4,0 V([\d.]+) m-4,0 h8", drawn.paths[0].d)
    assert [float(one) for one in start.groups()] == pytest.approx([x + 5 - 4, low, high], abs=0.051)


def test_a_disc_lies_around_its_place() -> None:
    drawn = chart()
    drawn.dot("s1", (0.5, 0.25), 7.0, name="item")
    (left, middle), *_ = points_of(drawn.paths[0])
    x, y = slow_place(0.5, 0.25, is_log=False)
    assert (left + 7.0, middle) == pytest.approx((x, y), abs=0.051)


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
