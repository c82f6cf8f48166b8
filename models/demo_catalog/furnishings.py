"""Drawings of things in a room. Coordinates are in units of the canvas, y downward."""

import numpy as np

from vicinal.calibration.arrays import Floats
from vicinal.models.demo_catalog.easel import Easel, Print, blend, tinted
from vicinal.models.demo_catalog.outlines import (
    blob,
    box,
    disc_from_above,
    ellipse,
    lathe,
    mirrored,
    polygon,
    tube,
    turned,
)
from vicinal.models.demo_catalog.products import RGB, Product

_WHITE: RGB = (246, 245, 240)
_PAGES: RGB = (236, 228, 206)
_INK: RGB = (40, 40, 46)


def book(easel: Easel, p: Product) -> None:
    """A closed book standing half turned, a title plate on its cover."""
    w, top = blend(0.24, 0.32, p.breadth), blend(0.2, 0.1, p.tallness)
    depth = blend(0.03, 0.08, p.detail)
    left, right, low = 0.5 - w, 0.5 + w, 0.88
    easel.flat(_slanted_side(right, top, low, depth), tinted(p.main, 0.6))
    lid = [(left, top), (right, top), (right + depth, top - depth), (left + depth, top - depth)]
    easel.flat(polygon(lid), tinted(p.main, 0.6))
    easel.flat(_slanted_side(right, top + 0.012, low - 0.012, depth), _PAGES)
    for k in (0.3, 0.6):
        x, shift = right + depth * k, depth * k
        easel.flat(_slanted_side(x, top + 0.012 - shift, low - 0.012 - shift, 0.005), tinted(_PAGES, 0.8))
    plate = Print((0.02, blend(-0.2, -0.08, p.detail)), w * 1.35, 0.24, plate=True)
    easel.flat(box(left, top, right, low), None, plate)
    easel.flat(box(left, top, left + 0.05, low), tinted(p.trim, 0.9))


def _slanted_side(x: float, top: float, low: float, depth: float) -> Floats:
    """The right side of a block that recedes upward to the right by `depth`."""
    return polygon([(x, top), (x + depth, top - depth), (x + depth, low - depth), (x, low)])


def chair(easel: Easel, p: Product) -> None:
    """A small upholstered chair."""
    w, top = blend(0.2, 0.27, p.breadth), blend(0.2, 0.08, p.tallness)
    seat, wood = 0.55, tinted(p.trim, 0.9)
    for x, foot in ((0.5 - w * 0.75, 0.84), (0.5 + w * 0.85, 0.84)):
        easel.flat(tube([(x, seat), (x + (x - 0.5) * 0.15, foot)], 0.035, 0.022), tinted(wood, 0.7))
    for side in (-0.72, 0.72):
        easel.flat(tube([(0.5 + side * w, seat), (0.5 + side * w, seat - 0.18)], 0.035), tinted(wood, 0.8))
    round_back = blend(0.03, 0.16, p.detail)
    easel.ball(box(0.5 - w, top, 0.5 + w, seat - 0.08, round_back))
    back, front = (0.95 * w, seat - 0.04), (1.15 * w, seat + 0.09)
    corners = ((-1, back), (1, back), (1, front), (-1, front))
    easel.ball(blob([(0.5 + side * x, y) for side, (x, y) in corners]))
    easel.flat(tube(mirrored([(0.5 - w * 1.14, seat + 0.1), (0.5, seat + 0.125)]), 0.026), wood)
    for side in (-1, 1):
        easel.flat(tube([(0.5 + side * w, seat + 0.11), (0.5 + side * w * 1.22, 0.94)], 0.045, 0.028), wood)


def clock(easel: Easel, p: Product) -> None:
    """A clock with a patterned frame: round, square or eight-cornered, some with alarm bells."""
    r = blend(0.31, 0.38, p.breadth)
    cx, cy = 0.5, 0.52
    if p.detail > 0.6:
        _alarm_bells(easel, p, r)
    sides = 8 if p.tallness > 0.75 else 64
    frame = box(cx - r, cy - r, cx + r, cy + r, 0.07) if p.tallness < 0.35 else ellipse(cx, cy, r, n=sides)
    easel.ball(frame)
    dial = r * blend(0.56, 0.68, p.detail)
    easel.flat(ellipse(cx, cy, dial + 0.012), tinted(p.trim, 0.7))
    easel.flat(ellipse(cx, cy, dial), _WHITE)
    _hour_marks(easel, cx, cy, dial)
    _hand(easel, cx, cy, dial * 0.5, -1.05 + p.breadth, 0.03)
    _hand(easel, cx, cy, dial * 0.78, 0.6 + 3 * p.tallness, 0.02)
    easel.flat(ellipse(cx, cy, 0.02), p.trim)


def _alarm_bells(easel: Easel, p: Product, r: float) -> None:
    for side in (-1, 1):
        easel.flat(tube([(0.5 + side * r * 0.5, 0.75), (0.5 + side * r * 0.8, 0.94)], 0.05), p.trim)
        bell = turned(ellipse(0.5, 0.52 - r * 1.1, 0.11, 0.07), side * 0.62, 0.5, 0.52)
        easel.ball(bell, p.trim)


def _hour_marks(easel: Easel, cx: float, cy: float, dial: float) -> None:
    for hour in range(12):
        length = 0.2 if hour % 3 == 0 else 0.1
        mark = box(cx - 0.007, cy - dial * 0.92, cx + 0.007, cy - dial * (0.92 - length))
        easel.flat(turned(mark, hour * np.pi / 6, cx, cy), _INK)


def _hand(easel: Easel, cx: float, cy: float, length: float, angle: float, width: float) -> None:
    easel.flat(turned(box(cx - width / 2, cy - length, cx + width / 2, cy + 0.03), angle, cx, cy), _INK)


def cushion(easel: Easel, p: Product) -> None:
    """A cushion with piping, some with a button."""
    w, h = blend(0.32, 0.4, p.breadth), blend(0.24, 0.36, p.tallness)
    pull = blend(0.02, 0.045, p.detail)
    easel.flat(_pillow(w + 0.014, h + 0.014, pull), tinted(p.trim, 0.9))
    calm = p.pattern in ("plain", "gradient", "blocks")
    easel.ball(_pillow(w, h, pull), None, Print((0, 0), w * 1.0, h * 0.62) if calm else None)
    if p.detail > 0.5 and not calm:
        easel.ball(ellipse(0.5, 0.52, 0.022), p.trim)


def _pillow(w: float, h: float, pull: float) -> Floats:
    """A rectangle whose sides are drawn in between its corners."""
    t = np.linspace(-1, 1, 24)
    edge = pull * (1 - t * t)
    top = np.stack([0.5 + w * t, 0.52 - h + edge], axis=1)
    right = np.stack([0.5 + w - edge, 0.52 + h * t], axis=1)
    return np.concatenate([top, right, (1.0, 1.04) - top, (1.0, 1.04) - right])


def lamp(easel: Easel, p: Product) -> None:
    """A table lamp; the pattern is on its shade."""
    low, top = blend(0.28, 0.36, p.breadth), 0.1
    high, shade = low * blend(0.4, 0.8, p.detail), blend(0.42, 0.52, 1 - p.tallness)
    if p.detail > 0.45:
        belly = (0.74, blend(0.11, 0.17, p.breadth))
        base = [(shade - 0.02, 0.03), (shade + 0.08, 0.06), belly, (0.85, 0.08), (0.88, 0.09)]
        easel.round(lathe(0.5, base), p.trim)
    else:
        easel.round(box(0.485, shade - 0.02, 0.515, 0.87), p.trim)
        easel.round(lathe(0.5, [(0.85, 0.05), (0.87, 0.17), (0.89, 0.18)]), p.trim)
    easel.flat(disc_from_above(0.5, shade, low), (255, 236, 176))
    easel.round(lathe(0.5, [(top, high), (shade, low)], soft=False))
    easel.flat(disc_from_above(0.5, top, high), tinted(p.main, 0.55))
