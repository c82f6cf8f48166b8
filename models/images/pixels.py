"""Pixels: whatever kind of numbers a file holds, as 8-bit sRGB of the brightness and colors that it says."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from PIL import ExifTags, Image, ImageCms

from vicinal.calibration.arrays import AnyArray

# Pixels that are brought to RGB at a time.
_STRIP_PIXELS = 2**18
# Levels of 256 that a color differs by in a picture without content, as JPEG and scanners leave them.
_BLANK_LEVELS = 4
_FEW_SIDE = 16
# What differs by less on white is a white logo on transparency, which black shows.
_FAINT_LEVELS = 32
_WITH_ALPHA = frozenset({"P", "PA", "LA", "La", "RGBA", "RGBa"})
# White of 8, 10, 12 and 16 bits, and of floats. Values far below it are on a scale of their own.
_WHITES, _FLOAT_WHITE = (255.0, 1023.0, 4095.0, 65535.0), 1.0
_LEAST_SHARE = 1 / 16
# TIFF: bits a sample, whether white is zero, kind of number, what GDAL writes for no value; the least and the
# largest value, of any kind and as 16-bit integers.
_BITS, _PHOTOMETRIC, _KIND, _NO_VALUE = 258, 262, 339, 42113
_LEAST, _LARGEST = (340, 280), (341, 281)
_WHITE_IS_ZERO, _UNSIGNED, _SIGNED = 0, 1, 2


def is_blank(image: Image.Image, levels: int = _BLANK_LEVELS) -> bool:
    """Tell if an RGB image is of one color: no channel differs by more than `levels` of 256."""
    # A few pixels tell of nearly every picture that there is something on it.
    few = image.resize((_FEW_SIDE, _FEW_SIDE), Image.Resampling.NEAREST)
    return _spread(few) <= levels and _spread(image) <= levels


def to_rgb(
    image: Image.Image, factor: int = 1, convert: Callable[[Image.Image], Image.Image] | None = None
) -> Image.Image:
    """Bring an image to RGB, with a fraction of its width and height; strip by strip.

    Transparency is laid on white, or on black where next to nothing is seen on white. Gray of more than 8
    bits becomes as bright as the file says: by the tags for its least and largest value, the bits of a
    sample, and whether white is zero. Where it says nothing, white is the first of 1 (of floats), 255, 1,023,
    4,095 and 65,535 that no value passes; values that do, or are below zero or far below 1, go from the least
    of them to the largest. What is no number, or noted as no value, is black.
    """
    lay: Callable[[Image.Image, str], Image.Image]
    if image.mode.startswith(("I", "F")) or _stored_kind(image) is not None:
        lay = _Depth.of(image).laid_on
        has_alpha = "transparency" in image.info
    else:
        lay = _laid_on
        has_alpha = image.mode in _WITH_ALPHA or "transparency" in image.info
        if not has_alpha:
            return _shrunk(image, factor, convert or (lambda strip: strip.convert("RGB")))
    on_white = _shrunk(image, factor, lambda strip: lay(strip, "white"))
    if not has_alpha or not is_blank(on_white, _FAINT_LEVELS):
        return on_white
    on_black = _shrunk(image, factor, lambda strip: lay(strip, "black"))
    return on_white if is_blank(on_black, _FAINT_LEVELS) else on_black


def _spread(image: Image.Image) -> float:
    """Most that a channel of an RGB image differs by."""
    return max(float(np.ptp(image.getchannel(band).getextrema())) for band in image.getbands())


def _strips(image: Image.Image, factor: int) -> Iterator[tuple[int, Image.Image]]:
    width, height = image.size
    rows = max(1, _STRIP_PIXELS // (width * factor)) * factor
    for top in range(0, height, rows):
        yield top, image.crop((0, top, width, min(height, top + rows)))


def _shrunk(image: Image.Image, factor: int, convert: Callable[[Image.Image], Image.Image]) -> Image.Image:
    small = Image.new("RGB", (-(-image.width // factor), -(-image.height // factor)))
    for top, strip in _strips(image, factor):
        rgb = convert(strip)
        small.paste(rgb if factor == 1 else rgb.reduce(factor), (0, top // factor))
    return small


def _laid_on(image: Image.Image, color: str) -> Image.Image:
    rgba = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", rgba.size, color), rgba).convert("RGB")


@dataclass(frozen=True)
class _Depth:
    """Reading of gray of more than 8 bits."""

    low: float  # Value of black
    high: float  # Value of white
    is_inverted: bool  # They are the other way round
    kind: type[np.generic] | None  # What the file holds where Pillow takes it for something else
    no_value: float | None  # Value that stands for none
    transparent: int | None  # Value that lets the ground through

    @classmethod
    def of(cls, image: Image.Image) -> _Depth:
        tags: Mapping[int, Any] = getattr(image, "tag_v2", {})
        kind = _stored_kind(image)
        no_value, transparent = _number(tags, _NO_VALUE), image.info.get("transparency")
        low, high = _stated_limits(tags) or _seen_limits(image, tags, kind, no_value)
        return cls(
            low,
            high,
            _number(tags, _PHOTOMETRIC) == _WHITE_IS_ZERO,
            kind,
            no_value,
            transparent if isinstance(transparent, int) else None,
        )

    def laid_on(self, strip: Image.Image, color: str) -> Image.Image:
        deep = _values(strip, self.kind)
        # An integer stands for all up to the next one.
        span = self.high - self.low + np.issubdtype(deep.dtype, np.integer)
        scaled = (deep.astype(np.float64) - self.low) * (256.0 / span)
        gray = np.nan_to_num(scaled, nan=0.0).clip(0.0, 255.0).astype(np.uint8)
        if self.is_inverted:
            gray = 255 - gray
        if self.no_value is not None:
            gray[deep == self.no_value] = 0
        if self.transparent is not None:
            gray[deep == self.transparent] = 255 if color == "white" else 0
        return Image.fromarray(gray).convert("RGB")


def _stored_kind(image: Image.Image) -> type[np.generic] | None:
    """Content of a TIFF where Pillow takes it for signed integers of 32 bits, or for unsigned ones of 8."""
    tags: Mapping[int, Any] | None = getattr(image, "tag_v2", None)
    if tags is None or image.mode not in ("I", "L"):
        return None
    # Where it says nothing they are unsigned.
    kind = _number(tags, _KIND) or _UNSIGNED
    if image.mode == "I":
        return np.uint32 if kind == _UNSIGNED and _number(tags, _BITS) == 32 else None
    return np.int8 if kind == _SIGNED else None


def _values(strip: Image.Image, kind: type[np.generic] | None) -> AnyArray:
    deep = np.asarray(strip)
    return deep if kind is None else deep.view(kind)


def _stated_limits(tags: Mapping[int, Any]) -> tuple[float, float] | None:
    least = next((one for tag in _LEAST if (one := _number(tags, tag)) is not None), 0.0)
    largest = next((one for tag in _LARGEST if (one := _number(tags, tag)) is not None), least)
    return (least, largest) if largest > least else None


def _seen_limits(
    image: Image.Image, tags: Mapping[int, Any], kind: type[np.generic] | None, no_value: float | None
) -> tuple[float, float]:
    """Black and white of a file that does not say them."""
    bits = _number(tags, _BITS) or 16.0
    if image.mode.startswith("I;16") and bits < 16.0:
        return 0.0, 2.0**bits - 1.0
    low, high = np.inf, -np.inf
    for _, strip in _strips(image, 1):
        deep = _values(strip, kind)
        seen = (
            deep[np.isfinite(deep) & (deep != no_value)] if no_value is not None else deep[np.isfinite(deep)]
        )
        if seen.size:
            low, high = min(low, float(seen.min())), max(high, float(seen.max()))
    if low >= high:
        # One value all over: what it is as 8 or 16 bits.
        return 0.0, _WHITES[-1] if image.mode != "F" else _WHITES[0]
    whites = (_FLOAT_WHITE, *_WHITES) if image.mode == "F" else _WHITES
    white = next((one for one in whites if high <= one), None)
    if low >= 0.0 and white is not None and high >= _LEAST_SHARE * white:
        return 0.0, white
    return low, high


def _number(tags: Mapping[int, Any], tag: int) -> float | None:
    found = tags.get(tag)
    try:
        return float(found[0] if isinstance(found, tuple) else found)  # type: ignore[arg-type]
    except (TypeError, ValueError, IndexError, ZeroDivisionError):
        return None


# Larger ones are no profiles; those of printers have 0.5 to 3 MiB.
_MOST_BYTES = 4 * 2**20
# Profiles kept open.
_MOST_OPEN = 16
# What the many files that mean sRGB differ by among each other, in levels of 256.
_SAME_LEVELS = 2
_MODES = {"RGB ": "RGB", "GRAY": "L", "CMYK": "CMYK"}
_UNCALIBRATED, _ADOBE_RGB = 0xFFFF, 2
_INDEX_TAG, _ADOBE_OPTION = 1, "R03"
# Colorants under the light of profiles, and the gamma, as Adobe RGB (1998) gives them.
_ADOBE_COLORANTS = {
    b"rXYZ": (0.60974, 0.31111, 0.01947),
    b"gXYZ": (0.20528, 0.62567, 0.06087),
    b"bXYZ": (0.14919, 0.06322, 0.74457),
}
_PROFILE_LIGHT = (0.9642, 1.0, 0.8249)
_ADOBE_GAMMA = 563 / 256


def profile_of(image: Image.Image) -> bytes:
    """The profile in a file, or that of Adobe RGB where its EXIF names this; empty for none."""
    profile = image.info.get("icc_profile") or b""
    return profile or (_adobe_rgb() if _is_adobe_rgb(image) else b"")


def to_srgb(profile: bytes, mode: str) -> Callable[[Image.Image], Image.Image] | None:
    """Make what brings an image to sRGB; None where nothing is to be done or the profile cannot be used."""
    found = _opened(profile) if 0 < len(profile) <= _MOST_BYTES else None
    return found[1] if found is not None and found[0] == mode else None


@lru_cache(_MOST_OPEN)
def _opened(profile: bytes) -> tuple[str, Callable[[Image.Image], Image.Image]] | None:
    """Mode of a profile's images, and what brings them to sRGB; None where they stay as they are."""
    try:
        opened = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        mode = _MODES[opened.profile.xcolor_space]
        transform = ImageCms.buildTransform(
            opened,
            ImageCms.createProfile("sRGB"),
            mode,
            "RGB",
            ImageCms.Intent.RELATIVE_COLORIMETRIC,
            ImageCms.Flags.BLACKPOINTCOMPENSATION,
        )
        seen, plain = (np.asarray(one, np.int16) for one in _tried(mode, transform.apply))
    except (ImageCms.PyCMSError, OSError, KeyError, ValueError, TypeError):
        # Viewers then take the pixels for sRGB.
        return None
    return None if np.abs(seen - plain).max() <= _SAME_LEVELS else (mode, transform.apply)


def _tried(mode: str, convert: Callable[[Image.Image], Image.Image]) -> tuple[Image.Image, Image.Image]:
    """All kinds of colors, converted and as they would be without."""
    levels = np.linspace(0, 255, 9 if mode == "RGB" else 5 if mode == "CMYK" else 256).astype(np.uint8)
    grid = np.stack(np.meshgrid(*[levels] * len(mode)), axis=-1).reshape(-1, len(mode))
    colors = Image.frombytes(mode, (len(grid), 1), grid.tobytes())
    return convert(colors), colors.convert("RGB")


def _is_adobe_rgb(image: Image.Image) -> bool:
    exif = image.getexif()
    if not exif:
        return False
    details = exif.get_ifd(ExifTags.IFD.Exif)
    space = details.get(ExifTags.Base.ColorSpace)
    # Pillow 12 does not ask whether there is what it reads next.
    if space != _UNCALIBRATED or ExifTags.IFD.Interop not in details:
        return bool(space == _ADOBE_RGB)
    return str(exif.get_ifd(ExifTags.IFD.Interop).get(_INDEX_TAG, "")).strip("\0 ") == _ADOBE_OPTION


@cache
def _adobe_rgb() -> bytes:
    """A profile of Adobe RGB: what is in it as in any other, and no words."""

    def xyz(values: tuple[float, float, float]) -> bytes:
        return b"XYZ " + bytes(4) + struct.pack(">3i", *(round(one * 65536) for one in values))

    curve = b"curv" + bytes(4) + struct.pack(">IHH", 1, round(_ADOBE_GAMMA * 256), 0)
    tags = {b"wtpt": xyz(_PROFILE_LIGHT), **{name: xyz(one) for name, one in _ADOBE_COLORANTS.items()}}
    tags |= dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), curve)
    table, body, start = b"", b"", 128 + 4 + 12 * len(tags)
    for name, content in tags.items():
        table += name + struct.pack(">II", start + len(body), len(content))
        body += content
    size = start + len(body)
    head = struct.pack(">I4xI4s4s4s12x4s", size, 0x02100000, b"mntr", b"RGB ", b"XYZ ", b"acsp")
    head = head.ljust(68, b"\0") + xyz(_PROFILE_LIGHT)[8:]
    return head.ljust(128, b"\0") + struct.pack(">I", len(tags)) + table + body
