"""The easel: paints the parts of one product, with pattern, print and shading, onto a transparent canvas."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from vicinal.calibration.arrays import AnyArray, FloatArray, Floats, Mask
from vicinal.models.demo_catalog.prints import draw_print
from vicinal.models.demo_catalog.products import RGB, Product

_REPEATS = 8.0  # pattern periods over the width of the canvas at scale 1
# Brightness of a surface at its places across and down, in [-1, 1], in the light from a side.
_Gain = Callable[[FloatArray, FloatArray, float], FloatArray]


@dataclass(frozen=True)
class Print:
    """Place of the printed label on a part: `at` (around, down) from its middle, width and height.

    All in units of the canvas. `plate` puts it on a paper plate; otherwise it is inked on the surface.
    """

    at: tuple[float, float]
    width: float
    height: float
    plate: bool = False


def tinted(color: RGB, gain: float) -> RGB:
    """`color` made brighter (gain > 1) or darker (gain < 1)."""
    red, green, blue = (min(255, round(c * gain)) for c in color)
    return red, green, blue


def blend(a: float, b: float, t: float) -> float:
    """The value between `a` (t = 0) and `b` (t = 1)."""
    return a + (b - a) * t


class Easel:
    """A transparent square canvas of `px` pixels on which the parts of one product are painted in order.

    `turn` (radians, about [-0.6, 0.6]) turns round parts about their upright axis; `light` in [-1, 1] is
    the side the light comes from, -1 the left.
    """

    def __init__(self, product: Product, px: int, *, turn: float = 0.0, light: float = -0.5) -> None:
        self.product = product
        self.image = Image.new("RGBA", (px, px))
        self._px = px
        self._turn = turn
        self._light = light

    def flat(self, outline: Floats, color: RGB | None = None, label: Print | None = None) -> None:
        """Paint a flat part; without `color` it takes the product's pattern and texture."""
        self._part(outline, color, label, _flat_gain)

    def round(self, outline: Floats, color: RGB | None = None, label: Print | None = None) -> None:
        """Paint a part that is round about its upright axis, such as a bottle."""
        self._part(outline, color, label, _round_gain)

    def ball(self, outline: Floats, color: RGB | None = None, label: Print | None = None) -> None:
        """Paint a part that bulges in both directions, such as a cushion."""
        self._part(outline, color, label, _ball_gain)

    def _part(self, outline: Floats, color: RGB | None, label: Print | None, gain: _Gain) -> None:
        px, is_flat = self._px, gain is _flat_gain
        x0, y0 = (int(c) for c in np.clip(np.floor(outline.min(axis=0) * px), 0, px - 1))
        x1, y1 = (int(c) + 1 for c in np.clip(np.ceil(outline.max(axis=0) * px), 1, px))
        mask = Image.new("L", (x1 - x0, y1 - y0))
        ImageDraw.Draw(mask).polygon((outline * px - (x0, y0)).ravel().tolist(), fill=255)
        width = x1 - x0
        level = np.linspace(-1, 1, width, dtype=np.float32)[None], width / 2
        across, radius = level if is_flat else _across(np.asarray(mask) > 0)
        down = np.linspace(-1, 1, y1 - y0, dtype=np.float32)[:, None]
        # Distance along the surface from its front.
        angle = across if is_flat else np.arcsin(across) + np.float32(self._turn)
        u = angle * np.float32(radius / px)
        v = (np.arange(y0, y1, dtype=np.float32)[:, None] + 0.5) / np.float32(px)
        planes = self._albedo(color, u, v)
        if label is not None:
            planes = self._printed(np.broadcast_to(planes, (3, y1 - y0, x1 - x0)).copy(), label, u, v)
        lit = np.minimum(planes * gain(across, down, self._light), 255).astype(np.uint8)
        lit = np.broadcast_to(lit, (3, y1 - y0, x1 - x0))
        self.image.paste(Image.merge("RGB", [Image.fromarray(plane) for plane in lit]), (x0, y0), mask)

    def _albedo(self, color: RGB | None, u: FloatArray, v: FloatArray) -> FloatArray:
        """Unlit color planes of a part, broadcastable to (3, rows, columns)."""
        if color is not None:
            return _plane_of(color)
        product = self.product
        main = _plane_of(product.main)
        weight = _pattern_weight(product.pattern, u, v, product.pattern_scale)
        gain = _TEXTURES[product.texture](u, v).astype(np.float32)
        return (main + weight * (_plane_of(product.accent) - main)) * gain

    def _printed(self, planes: FloatArray, label: Print, u: FloatArray, v: FloatArray) -> FloatArray:
        """Lay the product's print over the color planes, following the curve of the surface."""
        width, height = (max(8, round(side * self._px)) for side in (label.width, label.height))
        ink = draw_print(self.product, (width, height), plate=label.plate)
        column = np.floor(((u - label.at[0]) / label.width + 0.5) * width).astype(np.int32)
        row = np.floor(((v - v.mean() - label.at[1]) / label.height + 0.5) * height).astype(np.int32)
        inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
        column, row = (np.broadcast_to(index, inside.shape)[inside] for index in (column, row))
        color = ink[row, column].astype(np.float32).T
        under = planes[:, inside]
        planes[:, inside] = under + color[3] / 255 * (color[:3] - under)
        return planes


def _pattern_weight(name: str, u: FloatArray, v: FloatArray, scale: float) -> FloatArray:
    """(...) share in [0, 1] of the accent color that each surface point takes.

    `u` is the coordinate around the product, 0 at its front, `v` that downward, in units of the canvas; they
    broadcast. `scale` is 1 for 8 periods over the canvas.
    """
    if name in _WHOLE:
        return _WHOLE[name](u, v).astype(np.float32)
    return _REPEATED[name](u * (_REPEATS / scale), v * (_REPEATS / scale)).astype(np.float32)


def _saw(x: AnyArray) -> AnyArray:
    """A triangle wave of period 1 in [0, 1]."""
    return np.asarray(np.abs(2 * (x - np.floor(x)) - 1))


def _dots(u: FloatArray, v: FloatArray) -> AnyArray:
    row = np.floor(v)
    x = u + 0.5 * np.mod(row, 2)
    return np.asarray((x - np.floor(x) - 0.5) ** 2 + (v - row - 0.5) ** 2 < 0.095)


def _plaid(u: FloatArray, v: FloatArray) -> AnyArray:
    across, down = _saw(u / 2), _saw(v / 2)
    wide = np.float32(0.32) * (across > 0.5) + np.float32(0.32) * (down > 0.5)
    return np.where((across > 0.93) | (down > 0.93), np.float32(1), wide)


def _speckles(u: FloatArray, v: FloatArray) -> AnyArray:
    # Integer arithmetic only: a float hash would differ between processors.
    i, j = np.floor(u * 90).astype(np.int32), np.floor(v * 90).astype(np.int32)
    mixed = (i * 73856093) ^ (j * 19349663)
    return np.asarray(1 - 0.3 * ((mixed ^ (mixed >> 7)) % 17 == 0))


_WHOLE: dict[str, Callable[[FloatArray, FloatArray], AnyArray]] = {
    "plain": lambda _u, _v: np.zeros((1, 1), dtype=np.float32),
    "gradient": lambda _u, v: np.clip((v - 0.2) / 0.6, 0, 1),
    "blocks": lambda u, v: v > 0.54 + 0.12 * u,
}
_REPEATED: dict[str, Callable[[FloatArray, FloatArray], AnyArray]] = {
    "stripes": lambda _u, v: np.mod(v, 1) < 0.5,
    "pinstripes": lambda u, _v: np.mod(u + 0.15, 0.75) < 0.27,
    "diagonals": lambda u, v: np.mod(u + v, 1.3) < 0.5,
    "dots": _dots,
    "checks": lambda u, v: (np.floor(u) + np.floor(v)) % 2 == 0,
    "chevrons": lambda u, v: np.mod(v + 0.8 * _saw(u * 0.7), 1) < 0.45,
    "waves": lambda u, v: np.mod(v + 0.28 * np.sin(u * 4.5), 0.9) < 0.36,
    "plaid": _plaid,
    "diamonds": lambda u, v: _saw(u * 0.8) + _saw(v * 0.55) < 0.62,
}
_TEXTURES: dict[str, Callable[[FloatArray, FloatArray], AnyArray]] = {
    "smooth": lambda _u, _v: np.ones((1, 1), dtype=np.float32),
    "ribbed": lambda u, _v: 1 - 0.13 * (_saw(u * 26) > 0.6),
    "woven": lambda u, v: 1 - 0.14 * ((np.floor(u * 64) + np.floor(v * 64)) % 2),
    "speckled": _speckles,
}


def _plane_of(color: RGB) -> FloatArray:
    return np.asarray(color, dtype=np.float32)[:, None, None]


def _across(mask: Mask) -> tuple[FloatArray, float]:
    """Place of each pixel between the left (-1) and right (1) edge of its row; the largest half width."""
    width = mask.shape[1]
    left = mask.argmax(axis=1)[:, None]
    right = width - mask[:, ::-1].argmax(axis=1)[:, None]
    half = np.maximum((right - left) / 2, 1).astype(np.float32)
    middle = ((left + right - 1) / 2).astype(np.float32)
    across = (np.arange(width, dtype=np.float32)[None] - middle) / half
    return np.clip(across, -1, 1), float(half.max())


def _flat_gain(across: FloatArray, down: FloatArray, light: float) -> FloatArray:
    """Brightness of a flat surface that faces the viewer."""
    return np.float32(0.97) + np.float32(0.06 * light) * across - np.float32(0.05) * down


def _round_gain(across: FloatArray, _down: FloatArray, light: float) -> FloatArray:
    """Brightness of a glossy surface that is round about its upright axis."""
    facing = np.sqrt(1 - across * across)
    lit = np.maximum(np.float32(0.55 * light) * across + np.float32(0.83) * facing, 0)
    shine = np.maximum(1 - np.abs(across - np.float32(0.55 * light)) * 7, 0)
    return np.asarray(np.float32(0.52) + np.float32(0.54) * lit + np.float32(0.16) * shine)


def _ball_gain(across: FloatArray, down: FloatArray, light: float) -> FloatArray:
    """Brightness of a surface that bulges toward the viewer, lit from above and the side."""
    facing = np.sqrt(np.maximum(1 - np.float32(0.4) * (across * across + down * down), 0))
    slant = np.float32(0.34 * light) * across - np.float32(0.34) * down
    lit = np.maximum(slant + np.float32(0.85) * facing, 0)
    return np.asarray(np.float32(0.45) + np.float32(0.58) * lit)
