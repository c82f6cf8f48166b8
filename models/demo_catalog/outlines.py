"""Outlines of product parts: closed polygons of shape (n, 2), x and y in units of the canvas, y downward."""

from collections.abc import Sequence

import numpy as np

from vicinal.calibration.arrays import Floats

Points = Sequence[tuple[float, float]]

_STEPS = 8
_TILT = 0.13  # height of a circle seen from slightly above, relative to its width


def polygon(points: Points) -> Floats:
    """The straight-edged outline through `points`."""
    return np.asarray(points, dtype=np.float64)


def mirrored(points: Points, cx: float = 0.5) -> Points:
    """`points` that end on the upright axis at `cx`, and their mirror images in reverse order."""
    return [*points, *((2 * cx - x, y) for x, y in reversed(points[:-1]))]


def ellipse(cx: float, cy: float, rx: float, ry: float | None = None, *, n: int = 64) -> Floats:
    """An ellipse around (cx, cy); a circle where `ry` is left out, a regular polygon where `n` is small."""
    angle = np.arange(n) * (2 * np.pi / n) - np.pi / 2
    return np.stack([cx + rx * np.cos(angle), cy + (rx if ry is None else ry) * np.sin(angle)], axis=1)


def disc_from_above(cx: float, cy: float, r: float) -> Floats:
    """A horizontal disc, such as the opening of a mug, seen at the tilt that `lathe` assumes."""
    return ellipse(cx, cy, r, r * _TILT)


def box(x0: float, y0: float, x1: float, y1: float, r: float = 0.0) -> Floats:
    """A rectangle with corners rounded by radius `r`."""
    if r <= 0:
        return polygon([(x0, y0), (x1, y0), (x1, y1), (x0, y1)])
    corners = [(x1 - r, y0 + r, -90), (x1 - r, y1 - r, 0), (x0 + r, y1 - r, 90), (x0 + r, y0 + r, 180)]
    arcs = [_arc(x, y, r, r, start, start + 90) for x, y, start in corners]
    return np.concatenate(arcs)


def lathe(cx: float, profile: Points, *, soft: bool = True) -> Floats:
    """A turned body from (y, radius) pairs, top to bottom, with the bulging lower edge of a round foot."""
    side = _spline(profile) if soft else polygon(profile)
    y, r = side[:, 0], np.maximum(side[:, 1], 0.0)
    right, left = np.stack([cx + r, y], axis=1), np.stack([cx - r, y], axis=1)[::-1]
    foot = _arc(cx, y[-1], r[-1], r[-1] * _TILT, 0, 180)
    return np.concatenate([right, foot, left])


def tube(points: Points, width: float, end_width: float | None = None) -> Floats:
    """A smooth stroke through `points`, `width` wide at its start and `end_width` at its end."""
    line = _spline(points)
    along = np.gradient(line, axis=0)
    normal = np.stack([-along[:, 1], along[:, 0]], axis=1)
    normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-9)
    half = np.linspace(width, width if end_width is None else end_width, len(line))[:, None] / 2
    return np.concatenate([line + normal * half, (line - normal * half)[::-1]])


def blob(points: Points) -> Floats:
    """The smooth closed outline through `points`."""
    return _spline([*points[-1:], *points, *points[:2]])[_STEPS:-_STEPS]


def turned(outline: Floats, angle: float, cx: float, cy: float) -> Floats:
    """`outline` rotated by `angle` radians about (cx, cy), clockwise on the picture."""
    cos, sin = np.cos(angle), np.sin(angle)
    return np.asarray((outline - (cx, cy)) @ np.array([[cos, sin], [-sin, cos]]) + (cx, cy))


def _arc(cx: float, cy: float, rx: float, ry: float, start: float, stop: float) -> Floats:
    angle = np.radians(np.linspace(start, stop, 2 * _STEPS))
    return np.stack([cx + rx * np.cos(angle), cy + ry * np.sin(angle)], axis=1)


def _spline(points: Points) -> Floats:
    """Catmull-Rom curve through all points, _STEPS samples for each span, ends included."""
    p = np.asarray(points, dtype=np.float64)
    p = np.concatenate([2 * p[:1] - p[1:2], p, 2 * p[-1:] - p[-2:-1]])
    t = (np.arange(_STEPS) / _STEPS)[None, :, None]
    a, b, c, d = (p[i : len(p) - 3 + i, None] for i in range(4))
    curve = b + 0.5 * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)))
    return np.concatenate([curve.reshape(-1, 2), p[-2:-1]])
