"""Color profiles: pixels of a wide gamut, of print or of a scanner as the colors that sRGB gives them."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from functools import cache, lru_cache

import numpy as np
from PIL import ExifTags, Image, ImageCms

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
