"""Procedural backdrops: float32 pictures of shape (size, size, 3), values in [0, 255]."""

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from vicinal.calibration.arrays import FloatArray

_BROWN = (112.0, 76.0, 46.0)
_Rng = np.random.Generator


def studio(rng: _Rng, size: int) -> FloatArray:
    """A paper sweep: one soft color, or a gradient between two."""
    return _gradient(rng, size) if rng.uniform() < 0.6 else _plain(rng, size)


def surface(rng: _Rng, size: int) -> FloatArray:
    """A textured surface seen from above: wood, cloth, tiles or stone."""
    return _SURFACES[int(rng.integers(len(_SURFACES)))](rng, size)


def room(rng: _Rng, size: int) -> FloatArray:
    """A table before a wall, with blurred things in the back."""
    picture = _with_clutter(rng, studio(rng, size))
    horizon = round(size * rng.uniform(0.58, 0.74))
    picture[horizon:] = surface(rng, size)[: size - horizon]
    picture[horizon : horizon + max(1, size // 100)] *= 0.72
    return picture


def smooth_noise(rng: _Rng, size: int, columns: int, rows: int) -> FloatArray:
    """Noise in [0, 1] of shape (size, size) with about `columns` x `rows` hills."""
    seeds = rng.random((rows, columns), dtype=np.float32)
    return np.asarray(Image.fromarray(seeds).resize((size, size), Image.Resampling.BICUBIC))


def _soft_color(rng: _Rng) -> FloatArray:
    """A muted wall color: products should stand out more often than not, yet not always."""
    gray = rng.uniform(95, 235)
    return np.clip(gray + rng.uniform(-28, 28, size=3), 30, 250).astype(np.float32)


def _plain(rng: _Rng, size: int) -> FloatArray:
    return np.broadcast_to(_soft_color(rng), (size, size, 3)).copy()


def _gradient(rng: _Rng, size: int) -> FloatArray:
    angle = rng.uniform(0, 2 * np.pi)
    ramp = np.linspace(-0.7, 0.7, size, dtype=np.float32)
    t = np.clip(
        0.5 + ramp[None] * np.float32(np.cos(angle)) + ramp[:, None] * np.float32(np.sin(angle)), 0, 1
    )
    return _mixed(t, _soft_color(rng), _soft_color(rng))


def _mixed(t: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
    return (low + t[..., None] * (high - low)).astype(np.float32)


def _wood(rng: _Rng, size: int) -> FloatArray:
    planks = int(rng.integers(3, 7))
    plank = np.arange(size) * planks // size
    grain = np.float32(0.5) * (smooth_noise(rng, size, 5, 90) + smooth_noise(rng, size, 3, 24))
    shade = rng.random(planks, dtype=np.float32)[plank][:, None]
    tone = np.float32(0.35) * shade + np.float32(0.65) * grain
    dark = (np.multiply(_BROWN, rng.uniform(0.6, 1.35)) + rng.uniform(-9, 9, size=3)).astype(np.float32)
    picture = _mixed(tone, dark, np.minimum(dark * 1.75, 240))
    seams = np.flatnonzero(np.diff(plank)) + 1
    picture[seams] *= 0.6
    return picture if rng.uniform() < 0.6 else np.ascontiguousarray(picture.swapaxes(0, 1))


def _cloth(rng: _Rng, size: int) -> FloatArray:
    """A weave with threads in two close shades, sometimes with wide colored bands."""
    thread = np.sin(np.arange(size, dtype=np.float32) * np.float32(rng.uniform(180, 300) / size))
    weave = 0.5 + 0.25 * (thread[None] + thread[:, None]) * 0.7 + 0.3 * (smooth_noise(rng, size, 6, 6) - 0.5)
    base = _soft_color(rng)
    picture = _mixed(weave, base * 0.8, np.minimum(base * 1.12, 255))
    if rng.uniform() < 0.4:
        band = np.mod(np.arange(size) * rng.uniform(3, 8) / size, 1) < rng.uniform(0.15, 0.5)
        picture[:, band] = 0.55 * picture[:, band] + 0.45 * _soft_color(rng)
    return picture


def _tiles(rng: _Rng, size: int) -> FloatArray:
    count = int(rng.integers(3, 7))
    index = np.arange(size) * count // size
    shade = rng.random((count, count), dtype=np.float32)[index[:, None], index[None]]
    second = (index[:, None] + index[None]) % 2 if rng.uniform() < 0.5 else np.zeros((1, 1), dtype=np.int64)
    base, other = _soft_color(rng), _soft_color(rng)
    picture: FloatArray = np.where(second[..., None] == 1, other, base) * (0.9 + 0.16 * shade[..., None])
    joint = np.mod(np.arange(size) * count, size) < count * max(1, size // 90)
    picture[joint] = picture[:, joint] = base * 0.62
    return picture


def _stone(rng: _Rng, size: int) -> FloatArray:
    hills = smooth_noise(rng, size, 4, 4) + 0.5 * smooth_noise(rng, size, 11, 11)
    veins = np.clip(1 - np.abs(hills - 0.75) * 9, 0, 1) * 0.6
    base = _soft_color(rng)
    return _mixed(veins, np.minimum(base * 1.1, 250), base * 0.6)


def _with_clutter(rng: _Rng, picture: FloatArray) -> FloatArray:
    """Blurred boxes and balls in the back, as out-of-focus neighbors of the product."""
    size = len(picture)
    image = Image.fromarray(picture.astype(np.uint8))
    pen = ImageDraw.Draw(image)
    for _ in range(int(rng.integers(0, 6))):
        x, y = rng.uniform(-0.1, 1.0, size=2) * size
        w, h = rng.uniform(0.08, 0.38, size=2) * size
        red, green, blue = rng.integers(50, 220, size=3).tolist()
        draw = pen.ellipse if rng.uniform() < 0.5 else pen.rectangle
        draw((x, y, x + w, y + h), fill=(red, green, blue))
    blurred = image.filter(ImageFilter.BoxBlur(size * float(rng.uniform(0.008, 0.03))))
    return np.asarray(blurred).astype(np.float32)


_SURFACES: tuple[Callable[[_Rng, int], FloatArray], ...] = (_wood, _cloth, _tiles, _stone)
