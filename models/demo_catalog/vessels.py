"""Drawings of things that hold something. Coordinates are in units of the canvas, y downward."""

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

_STEEL: RGB = (198, 202, 208)
_WHITE: RGB = (246, 245, 240)
_LEAF: RGB = (62, 136, 72)
_SOIL: RGB = (84, 58, 40)


def bottle(easel: Easel, p: Product) -> None:
    """A bottle with a cap; `detail` widens its neck."""
    w, top = blend(0.12, 0.19, p.breadth), blend(0.18, 0.08, p.tallness)
    neck, shoulder = blend(0.05, 0.085, p.detail), blend(0.42, 0.34, p.tallness)
    cap = 0.09
    top_part = [(top + cap, neck), (shoulder - 0.1, neck * 1.08), (shoulder, w * 0.9)]
    body = lathe(0.5, [*top_part, (shoulder + 0.08, w), (0.78, w), (0.89, w * 0.94)])
    easel.round(body, None, Print((0, 0.15), w * 1.7, 0.22, plate=p.detail > 0.4))
    easel.round(lathe(0.5, [(top, neck * 1.15), (top + cap, neck * 1.2)], soft=False), p.trim)
    easel.flat(disc_from_above(0.5, top, neck * 1.15), tinted(p.trim, 1.15))


def can(easel: Easel, p: Product) -> None:
    """A tin with steel rims and a paper label."""
    w, top = blend(0.19, 0.28, p.breadth), blend(0.32, 0.14, p.tallness)
    low = 0.82
    easel.round(lathe(0.5, [(top - 0.015, w * 0.97), (low + 0.025, w * 0.97)], soft=False), _STEEL)
    wall = lathe(0.5, [(top + 0.02, w), (low, w)], soft=False)
    easel.round(wall, None, Print((0, 0.0), w * 1.5, (low - top) * 0.46, plate=True))
    easel.flat(disc_from_above(0.5, top, w * 0.98), tinted(_STEEL, 0.75))
    easel.flat(disc_from_above(0.5, top + 0.004, w * 0.88), _STEEL)
    if p.detail > 0.5:
        easel.flat(ellipse(0.5 + w * 0.2, top + 0.004, 0.05, 0.012), tinted(_STEEL, 0.6))


def jar(easel: Easel, p: Product) -> None:
    """A jar with a lid, straight or bellied."""
    w, top = blend(0.2, 0.29, p.breadth), blend(0.34, 0.2, p.tallness)
    lid = 0.085
    if p.detail > 0.55:
        profile = [(top + lid, w * 0.8), (top + lid + 0.07, w), (0.74, w), (0.84, w * 0.86)]
    else:
        profile = [(top + lid, w * 0.86), (0.5, w * 1.05), (0.68, w * 1.02), (0.84, w * 0.7)]
    easel.round(lathe(0.5, profile), None, Print((0, 0.03), w * 1.45, 0.24, plate=True))
    easel.round(lathe(0.5, [(top, w * 0.88), (top + lid, w * 0.9)], soft=False), p.trim)
    easel.flat(disc_from_above(0.5, top, w * 0.88), tinted(p.trim, 1.12))
    if p.tallness > 0.5:
        easel.ball(ellipse(0.5, top - 0.03, 0.05, 0.04), p.trim)


def kettle(easel: Easel, p: Product) -> None:
    """A stove kettle with an arched handle."""
    w, top = blend(0.26, 0.32, p.breadth), blend(0.46, 0.38, p.tallness)
    x, arch = 0.47, blend(0.2, 0.13, p.tallness)
    spout = tube([(x + w * 0.7, 0.66), (x + w * 1.15, 0.52), (x + w * 1.38, top - 0.02)], 0.13, 0.06)
    easel.flat(spout, tinted(p.main, 0.85))
    handle = mirrored([(x - w * 0.72, top + 0.07), (x - w * 0.72, arch + 0.1), (x, arch)], x)
    easel.flat(tube(handle, 0.045), p.trim)
    body = lathe(x, [(top, w * 0.5), (top + 0.1, w * 0.84), (0.68, w), (0.84, w * 1.04)])
    easel.round(body, None, Print((0, 0.05), w * 1.0, 0.17))
    easel.round(lathe(x, [(0.83, w * 1.05), (0.86, w * 1.04)], soft=False), tinted(p.trim, 0.9))
    easel.round(lathe(x, [(top - 0.025, w * 0.34), (top + 0.012, w * 0.55)], soft=False), tinted(p.main, 0.9))
    easel.ball(ellipse(x, top - 0.05, 0.035), p.trim)


def mug(easel: Easel, p: Product) -> None:
    """A cup with a handle, straight or narrowing to its foot."""
    w, top = blend(0.22, 0.29, p.breadth), blend(0.34, 0.18, p.tallness)
    x, low, foot = 0.44, 0.82, blend(0.7, 1.0, p.detail)
    reach = 0.19 if p.detail < 0.5 else 0.14
    handle = [
        (x + w * 0.9, top + 0.09),
        (x + w + reach * 0.9, top + 0.1),
        (x + w + reach, (top + low) / 2),
        (x + w + reach * 0.7, low - 0.12),
        (x + w * 0.85 * foot, low - 0.1),
    ]
    easel.flat(tube(handle, 0.055), p.trim if p.breadth > 0.5 else tinted(p.main, 0.9))
    body = lathe(x, [(top, w), ((top + low) / 2, w * blend(0.94, 1.0, p.detail)), (low, w * foot)])
    easel.round(body, None, Print((0, 0.0), w * 1.25, (low - top) * 0.5))
    easel.flat(disc_from_above(x, top, w), tinted(_WHITE, 0.97))
    easel.flat(disc_from_above(x, top + 0.004, w * 0.9), tinted(p.main, 0.5))


def planter(easel: Easel, p: Product) -> None:
    """A pot with one of three plants in it."""
    w, top = blend(0.2, 0.28, p.breadth), blend(0.6, 0.5, p.tallness)
    pot = lathe(0.5, [(top, w), (0.9, w * blend(0.62, 0.9, p.tallness))], soft=False)
    easel.round(pot, None, Print((0, 0.02), w * 1.05, 0.15))
    easel.round(lathe(0.5, [(top, w * 1.08), (top + 0.06, w * 1.07)], soft=False), p.trim)
    easel.flat(disc_from_above(0.5, top, w * 1.08), tinted(p.trim, 0.8))
    easel.flat(disc_from_above(0.5, top, w * 0.96), _SOIL)
    (_cactus, _fronds, _spears)[int(p.detail * 2.999)](easel, top, w)


def _cactus(easel: Easel, top: float, _w: float) -> None:
    for side, y in ((-1, 0.14), (1, 0.2)):
        x = 0.5 + side * 0.15
        arm = tube([(0.5, top - y + 0.06), (x, top - y + 0.05), (x, top - y - 0.09)], 0.065)
        easel.flat(arm, tinted(_LEAF, 0.85))
    easel.round(box(0.43, top - 0.38, 0.57, top + 0.01, 0.069), _LEAF)


def _fronds(easel: Easel, top: float, _w: float) -> None:
    for angle in (-1.05, 1.05, -0.62, 0.62, -0.22, 0.22):
        leaf = blob([(0.5, top), (0.45, top - 0.2), (0.5, top - 0.42), (0.55, top - 0.2)])
        easel.flat(turned(leaf, angle, 0.5, top + 0.01), tinted(_LEAF, 1.2 - 0.4 * abs(angle)))


def _spears(easel: Easel, top: float, w: float) -> None:
    for shift, height in ((-0.6, 0.26), (0.6, 0.3), (-0.28, 0.36), (0.3, 0.4), (0.0, 0.44)):
        x = 0.5 + shift * w
        foot, wide, tip = top + 0.01, top - height * 0.6, (x + shift * 0.1, top - height)
        spear = [(x - 0.035, foot), (x - 0.04, wide), tip, (x + 0.04, wide), (x + 0.035, foot)]
        easel.flat(polygon(spear), tinted(_LEAF, 0.8 + height))
        easel.flat(tube([(x, top), (x + shift * 0.08, top - height * 0.8)], 0.02, 0.005), (186, 204, 120))


def teapot(easel: Easel, p: Product) -> None:
    """A teapot, bellied or wide at the foot."""
    w, h = blend(0.22, 0.27, p.breadth), blend(0.18, 0.24, p.tallness)
    x, y = 0.5, 0.6
    bend = [(x + w * 0.75, y + h * 0.35), (x + w * 1.2, y + 0.02)]
    spout = tube([*bend, (x + w * 1.35, y - h * 0.5), (x + w * 1.65, y - h * 0.85)], 0.13, 0.045)
    easel.flat(spout, tinted(p.main, 0.88))
    handle = [
        (x - w * 0.8, y - h * 0.55),
        (x - w * 1.35, y - h * 0.75),
        (x - w * 1.6, y - 0.02),
        (x - w * 1.3, y + h * 0.5),
        (x - w * 0.8, y + h * 0.55),
    ]
    easel.flat(tube(handle, 0.045), p.trim)
    easel.round(lathe(x, [(y + h * 0.8, w * 0.6), (y + h * 1.05, w * 0.66)], soft=False), tinted(p.main, 0.7))
    if p.detail > 0.5:
        upper = [(y - h, w * 0.5), (y - h * 0.7, w * 0.84), (y, w * 1.06)]
        profile = [*upper, (y + h * 0.7, w * 0.9), (y + h * 0.95, w * 0.6)]
    else:
        profile = [(y - h, w * 0.62), (y - h * 0.2, w * 0.86), (y + h * 0.5, w * 1.06), (y + h * 0.95, w)]
    easel.round(lathe(x, profile), None, Print((0, 0.02), w * 1.0, h * 0.7))
    lid = lathe(x, [(y - h * 1.22, w * 0.2), (y - h * 1.08, w * 0.5), (y - h * 0.96, w * 0.6)])
    easel.round(lid, tinted(p.trim, 0.95))
    easel.ball(ellipse(x, y - h * 1.32, 0.035), p.trim)
