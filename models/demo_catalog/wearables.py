"""Drawings of things that people wear or carry. Coordinates are in units of the canvas, y downward."""

import numpy as np

from vicinal.calibration.arrays import Floats
from vicinal.models.demo_catalog.easel import Easel, Print, blend, tinted
from vicinal.models.demo_catalog.outlines import blob, box, ellipse, mirrored, polygon, tube, turned
from vicinal.models.demo_catalog.products import RGB, Product

_STEEL: RGB = (198, 202, 208)
_WHITE: RGB = (246, 245, 240)
_INK: RGB = (40, 40, 46)


def backpack(easel: Easel, p: Product) -> None:
    """A rucksack: straps at both sides, a front pocket with the print."""
    w, top = blend(0.24, 0.32, p.breadth), blend(0.26, 0.16, p.tallness)
    loop = tube([(0.43, top + 0.03), (0.45, top - 0.07), (0.55, top - 0.07), (0.57, top + 0.03)], 0.03)
    easel.flat(loop, p.trim)
    for side in (-1, 1):
        seam, x = 0.5 + side * (w - 0.02), 0.5 + side * (w + 0.07)
        easel.flat(tube([(seam, top + 0.2), (x, 0.55), (seam, 0.82)], 0.05), tinted(p.trim, 0.85))
    easel.ball(box(0.5 - w, top, 0.5 + w, 0.9, blend(0.12, 0.2, p.detail)))
    easel.flat(tube(mirrored([(0.5 - w * 0.75, top + 0.19), (0.5, top + 0.16)]), 0.016), p.trim)
    pocket = blend(0.52, 0.6, p.tallness)
    front = box(0.5 - w * 0.78, pocket, 0.5 + w * 0.78, 0.86, 0.05)
    easel.ball(front, tinted(p.main, 0.8), Print((0, 0.03), w * 1.1, 0.15))
    easel.flat(box(0.5 - w * 0.7, pocket + 0.03, 0.5 + w * 0.7, pocket + 0.046), p.trim)
    if p.detail > 0.5:
        for x in (0.5 - w * 0.45, 0.5 + w * 0.45):
            easel.flat(box(x - 0.02, pocket - 0.1, x + 0.02, pocket + 0.07, 0.01), p.trim)


def headphones(easel: Easel, p: Product) -> None:
    """Headphones from the front; the pattern is on band and cups."""
    w, top = blend(0.26, 0.33, p.breadth), blend(0.2, 0.12, p.tallness)
    cup_w, cup_h = blend(0.08, 0.115, p.detail), blend(0.13, 0.19, p.tallness)
    half = [(0.5 - w, 0.62), (0.5 - w * 0.96, top + 0.2), (0.5 - w * 0.55, top + 0.04), (0.5, top)]
    arch = mirrored(half)
    easel.flat(tube(arch, 0.085))
    inner = [(0.5 + (x - 0.5) * 0.84, y + 0.06) for x, y in arch[1:-1]]
    easel.flat(tube(inner, 0.035), tinted(p.trim, 0.8))
    for side in (-1, 1):
        cx = 0.5 + side * w
        easel.ball(ellipse(cx - side * cup_w * 0.75, 0.66, cup_w * 0.75, cup_h * 1.02), tinted(p.trim, 0.75))
        easel.ball(ellipse(cx, 0.66, cup_w, cup_h))
        easel.flat(ellipse(cx + side * 0.01, 0.66, cup_w * 0.4, cup_h * 0.4), p.trim)


def sneaker(easel: Easel, p: Product) -> None:
    """A shoe from the side; `tallness` raises the ankle."""
    ankle, sole = blend(0.4, 0.24, p.tallness), blend(0.045, 0.085, p.breadth)
    low = 0.78
    heel = [(0.1, low), (0.1, 0.55), (0.12, ankle + 0.04), (0.2, ankle)]
    tongue = [(0.36, ankle - 0.01), (0.44, ankle + 0.1), (0.6, 0.5)]
    easel.flat(blob([*heel, *tongue, (0.78, 0.57), (0.9, 0.66), (0.93, low)]))
    collar = tube([(0.36, ankle), (0.44, ankle + 0.1), (0.58, 0.5), (0.66, 0.54)], 0.075)
    easel.flat(collar, tinted(p.main, 0.72))
    if p.detail > 0.4:
        easel.flat(blob([(0.74, low), (0.76, 0.64), (0.84, 0.61), (0.91, 0.68), (0.94, low)]), p.trim)
    easel.flat(tube([(0.13, ankle + 0.06), (0.12, 0.6), (0.14, 0.74)], 0.06), p.trim)
    rubber = _WHITE if sum(p.trim) > 620 else tinted(p.trim, 1.1)
    easel.flat(box(0.07, low - 0.03, 0.95, low + sole, 0.035), rubber)
    easel.flat(box(0.08, low + sole * 0.6, 0.94, low + sole + 0.012, 0.012), tinted(p.accent, 0.8))
    easel.flat(ellipse(0.3, 0.62, 0.09, 0.075), _WHITE, Print((0, 0), 0.15, 0.09))
    _laces(easel, ankle)


def _laces(easel: Easel, ankle: float) -> None:
    for k in range(4):
        t = k / 3
        x, y = blend(0.4, 0.61, t), blend(ankle + 0.08, 0.52, t)
        easel.flat(tube([(x - 0.045, y + 0.05), (x + 0.035, y - 0.02)], 0.018), _WHITE)


def tshirt(easel: Easel, p: Product) -> None:
    """A shirt laid flat, the print on its chest; sleeves of the trim color where `detail` is large."""
    w, low = blend(0.2, 0.26, p.breadth), blend(0.78, 0.92, p.tallness)
    sleeve = blend(0.34, 0.5, p.detail)
    easel.flat(ellipse(0.5, 0.14, 0.1, 0.045), tinted(p.main, 0.55))
    for side in (-1, 1):
        arm = ((-0.03, 0.15), (0.06, 0.19), (0.19, sleeve - 0.05), (0.06, sleeve), (-0.04, 0.33))
        outline = polygon([(0.5 + side * (w + x), y) for x, y in arm])
        easel.flat(outline, tinted(p.trim, 0.95) if p.detail > 0.6 else None)
    neck = [(0.4, 0.12), (0.43, 0.17), (0.5, 0.195), (0.57, 0.17), (0.6, 0.12)]
    right, left = ([(0.5 + s * w, 0.155), (0.5 + s * w, 0.36), (0.5 + s * w * 0.97, low)] for s in (1, -1))
    easel.flat(polygon([*neck, *right, *reversed(left)]), None, Print((0, -0.1), w * 1.3, 0.19))
    easel.flat(tube(neck, 0.022), p.trim)
    for side in (-1, 1):
        easel.flat(tube([(0.5 + side * w, 0.36), (0.5 + side * w * 0.99, 0.24)], 0.007), tinted(p.main, 0.6))


def umbrella(easel: Easel, p: Product) -> None:
    """An open umbrella with a hooked handle and four or six panels."""
    w, top = blend(0.36, 0.43, p.breadth), blend(0.2, 0.12, p.tallness)
    rim = 0.5
    easel.flat(tube([(0.5, top - 0.06), (0.5, top + 0.02)], 0.016), p.trim)
    handle = [(0.5, rim - 0.05), (0.5, 0.86), (0.47, 0.925), (0.42, 0.925), (0.395, 0.87)]
    easel.flat(tube(handle[:2], 0.02), _STEEL)
    easel.flat(tube([(0.5, 0.76), *handle[1:]], 0.04), p.trim)
    panels = 4 if p.detail < 0.5 else 6
    t = np.linspace(-1, 1, 61)
    dome = np.stack([0.5 + w * np.sin(t * np.pi / 2), rim - (rim - top) * np.cos(t * np.pi / 2)], axis=1)
    scallop = np.stack([0.5 - w * t, rim - 0.06 * np.abs(np.sin((t + 1) / 2 * np.pi * panels))], axis=1)
    easel.round(np.concatenate([dome, scallop]))
    for k in range(1, panels):
        x = (2 * k / panels - 1) * w
        rib = tube([(0.5, top), (0.5 + x * 0.72, blend(top, rim, 0.4)), (0.5 + x, rim)], 0.007)
        easel.flat(rib, tinted(p.main, 0.55))


def watch(easel: Easel, p: Product) -> None:
    """A wristwatch, round or square; the pattern is on its strap."""
    strap, r = blend(0.085, 0.12, p.breadth), blend(0.17, 0.23, p.tallness)
    cx, cy = 0.5, 0.5
    for side in (-1, 1):
        end = cy + side * 0.45
        wide, narrow = (
            [(cx - strap, cy), (cx + strap, cy)],
            [(cx + strap * 0.75, end), (cx - strap * 0.75, end)],
        )
        easel.flat(polygon([*wide, *narrow]))
    easel.flat(box(cx - strap * 0.95, 0.045, cx + strap * 0.95, 0.09, 0.015), p.trim)
    for k in range(4):
        easel.flat(ellipse(cx, 0.8 + 0.035 * k, 0.01), _INK)
    easel.flat(box(cx + r, cy - 0.025, cx + r + 0.045, cy + 0.025, 0.01), tinted(p.trim, 0.8))
    square = p.detail < 0.4
    easel.ball(_case(cx, cy, r + 0.035, square), p.trim)
    easel.flat(_case(cx, cy, r, square), _WHITE if p.detail < 0.7 else _INK)
    _watch_face(easel, p, r)


def _case(cx: float, cy: float, r: float, square: bool) -> Floats:
    side = r * 0.95
    return box(cx - side, cy - side, cx + side, cy + side, 0.06) if square else ellipse(cx, cy, r)


def _watch_face(easel: Easel, p: Product, r: float) -> None:
    paint = _INK if p.detail < 0.7 else _WHITE
    for hour in range(12):
        mark = box(0.494, 0.5 - r * 0.88, 0.506, 0.5 - r * 0.72)
        easel.flat(turned(mark, hour * np.pi / 6, 0.5, 0.5), paint)
    for length, angle, color in ((0.5, -0.95, paint), (0.74, 0.9, paint), (0.7, 2.6 + p.breadth, p.accent)):
        easel.flat(turned(box(0.492, 0.5 - r * length, 0.508, 0.52), angle, 0.5, 0.5), color)
    easel.flat(ellipse(0.5, 0.5, 0.018), p.accent)
