"""The printed mark of a product: a word, a logo, or both, inked or on a paper plate."""

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFont

from vicinal.calibration.arrays import Bytes
from vicinal.models.demo_catalog.products import RGB, Product

_PAPER: RGB = (250, 247, 238)
_DARK: RGB = (34, 34, 40)
_Pen = ImageDraw.ImageDraw


def draw_print(product: Product, size: tuple[int, int], *, plate: bool) -> Bytes:
    """(height, width, 4) RGBA of the mark; a patterned surface gets a plate, as ink on it cannot be read."""
    plate = plate or product.pattern not in ("plain", "gradient", "blocks")
    image = Image.new("RGBA", size)
    if not product.label and product.logo == "none" and not plate:
        return np.asarray(image)
    pen = ImageDraw.Draw(image)
    ink = _ink(product, plate)
    if plate:
        border = max(1, size[1] // 24)
        box = (0, 0, size[0] - 1, size[1] - 1)
        pen.rounded_rectangle(box, size[1] // 10, fill=_PAPER, outline=ink, width=border)
    _compose(pen, product, size, ink)
    return np.asarray(image)


def _ink(product: Product, plate: bool) -> RGB:
    if plate:
        return _DARK if sum(product.main) > 480 else product.main
    return _PAPER if sum(product.main) < 420 else _DARK


def _compose(pen: _Pen, product: Product, size: tuple[int, int], ink: RGB) -> None:
    """Logo above the word where both exist; either alone takes the middle."""
    width, height = size
    has_logo = product.logo != "none" or not product.label
    if product.label:
        middle, share = (0.74, 0.38) if has_logo else (0.5, 0.6)
        _word(pen, product.label, (width / 2, height * middle), 0.86 * width, height * share, ink)
    if has_logo:
        middle, radius = (0.34, 0.22) if product.label else (0.5, 0.36)
        _LOGOS[product.logo](pen, width / 2, height * middle, min(height * radius, width * 0.4), ink)


def _word(pen: _Pen, word: str, at: tuple[float, float], width: float, height: float, ink: RGB) -> None:
    """Write the word as large as the room allows."""
    guess = ImageFont.load_default(size=max(4.0, height))
    fit = width / max(guess.getlength(word), 1.0)
    font = guess if fit >= 1 else ImageFont.load_default(size=max(4.0, height * fit))
    pen.text(at, word, fill=ink, font=font, anchor="mm", stroke_width=max(0, int(height * min(fit, 1) / 26)))


def _points(x: float, y: float, r: float, unit: npt.ArrayLike) -> list[tuple[float, float]]:
    return [(x + r * a, y + r * b) for a, b in np.asarray(unit, dtype=float).tolist()]


def _polygon(pen: _Pen, x: float, y: float, r: float, ink: RGB, unit: npt.ArrayLike) -> None:
    pen.polygon(_points(x, y, r, unit), fill=ink)


def _disc(pen: _Pen, x: float, y: float, r: float, ink: RGB) -> None:
    pen.ellipse((x - r, y - r, x + r, y + r), fill=ink)


def _star(pen: _Pen, x: float, y: float, r: float, ink: RGB) -> None:
    angles = np.arange(10) * np.pi / 5 - np.pi / 2
    reach = np.where(np.arange(10) % 2 == 0, 1.15, 0.48)
    tips = np.stack([np.cos(angles) * reach, np.sin(angles) * reach], axis=1)
    _polygon(pen, x, y, r, ink, tips)


def _leaf(pen: _Pen, x: float, y: float, r: float, ink: RGB) -> None:
    t = np.linspace(-1, 1, 17)
    belly = 0.55 * (1 - t * t)
    blade = np.concatenate([np.stack([t + belly, -t + belly], 1), np.stack([t - belly, -t - belly], 1)[::-1]])
    _polygon(pen, x, y, r, ink, blade)
    pen.line(_points(x, y, r, [(-1.3, 1.3), (-0.8, 0.8)]), fill=ink, width=max(1, int(r * 0.2)))


def _heart(pen: _Pen, x: float, y: float, r: float, ink: RGB) -> None:
    for side in (-0.5, 0.5):
        _disc(pen, x + side * r, y - 0.3 * r, 0.58 * r, ink)
    _polygon(pen, x, y, r, ink, [(-1.02, -0.05), (1.02, -0.05), (0.0, 1.1)])


def _rings(pen: _Pen, x: float, y: float, r: float, ink: RGB) -> None:
    for shift in (-0.6, 0.6):
        box = (x + (shift - 0.85) * r, y - 0.85 * r, x + (shift + 0.85) * r, y + 0.85 * r)
        pen.ellipse(box, outline=ink, width=max(1, int(r * 0.3)))


_PEAKS = [(-1.5, 0.9), (-0.5, -0.9), (0.05, 0.1), (0.5, -0.5), (1.5, 0.9)]
_BOLT = [(0.3, -1.1), (-0.7, 0.2), (-0.05, 0.2), (-0.3, 1.1), (0.7, -0.25), (0.05, -0.25)]
_LOGOS: dict[str, Callable[[_Pen, float, float, float, RGB], None]] = {
    "none": _disc, "disc": _disc, "star": _star, "leaf": _leaf, "heart": _heart, "rings": _rings,
    "peaks": partial(_polygon, unit=_PEAKS), "bolt": partial(_polygon, unit=_BOLT),
}  # fmt: skip
