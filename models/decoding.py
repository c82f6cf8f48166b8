"""Safe decoding: from the bytes of a stranger to an upright 8-bit RGB image."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError, features

from vicinal.models.errors import (
    ImageTooLargeError,
    ImageTooSmallError,
    NotAnImageError,
    UnsupportedFormatError,
)

__all__ = [
    "DecodeLimits",
    "ImageSource",
    "accepted_formats",
    "decode_image",
    "image_suffixes",
    "read_encoded",
    "require_size",
    "with_extra",
]

ImageSource = Path | str | bytes | Image.Image

_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"})
# What is decoded where the extra `heif` is installed.
_EXTRA = "the extra heif, pip install 'vicinal[heif]'"
_EXTRA_SUFFIXES = {"HEIF": frozenset({".heic", ".heif", ".hif"}), "AVIF": frozenset({".avif"})}

# Containers that people do upload and that Pillow alone does not name.
_FOREIGN_SIGNATURES = (
    (b"%PDF", "PDF"),
    (b"<svg", "SVG"),
    (b"<?xml", "SVG"),
    (b"8BPS", "PSD"),
    (b"\x00\x00\x01\x00", "ICO"),
)
_BRANDS = {
    **dict.fromkeys((b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis"), "HEIC"),
    **dict.fromkeys((b"mif1", b"msf1"), "HEIF"),
    **dict.fromkeys((b"avif", b"avis"), "AVIF"),
}


@dataclass(frozen=True)
class DecodeLimits:
    """What an image may cost before it is refused.

    Attributes:
        max_bytes: Largest encoded size in bytes.
        max_pixels: Largest width x height in pixels, read from the header before any pixel is decoded.
        min_side: Smallest accepted shorter side in pixels.
    """

    max_bytes: int = 32 * 2**20
    max_pixels: int = 64_000_000
    min_side: int = 8


@cache
def accepted_formats() -> tuple[str, ...]:
    """Formats that are decoded, as Pillow names them; HEIF and AVIF where the extra `heif` is installed."""
    # Pillow before 11.3 does not know the name.
    has_avif = "avif" in features.modules and features.check("avif")
    return (*_FORMATS, *(["HEIF"] if _registers_heif() else []), *(["AVIF"] if has_avif else []))


@cache
def image_suffixes() -> frozenset[str]:
    """Ends of file names, in small letters, that are taken for images when a folder is read."""
    return _SUFFIXES.union(*(_EXTRA_SUFFIXES.get(one, ()) for one in accepted_formats()))


def with_extra(suffix: str) -> str | None:
    """What to install so that files with an end of name are read, which are not now; None for any other."""
    known = frozenset[str]().union(*_EXTRA_SUFFIXES.values())
    return _EXTRA if suffix in known - image_suffixes() else None


def decode_image(
    source: ImageSource, *, limits: DecodeLimits | None = None, target_side: int | None = None
) -> Image.Image:
    """Decode the first frame of an image as a person would see it.

    The EXIF orientation is applied, transparency is laid on white, 16-bit and CMYK images become
    8-bit RGB.

    Args:
        source: Path, encoded bytes, or a PIL image (which is only brought upright and to RGB).
        limits: Sizes to refuse; the defaults of `DecodeLimits` when None.
        target_side: The caller will scale the image down to about this many pixels a side; a JPEG is
            then decoded at the next larger power-of-two fraction of its size, which is several times
            faster for camera photos. None decodes every pixel.

    Returns:
        An RGB image.

    Raises:
        NotAnImageError: No image, or one that breaks off.
        UnsupportedFormatError: An image format outside `accepted_formats`.
        ImageTooLargeError: A limit on bytes or pixels is passed.
        ImageTooSmallError: The shorter side is below `limits.min_side`.
        OSError: A path cannot be read.
    """
    limits = limits or DecodeLimits()
    if isinstance(source, Image.Image):
        _check_size(source.size, limits)
        return _to_upright_rgb(source)
    encoded = read_encoded(source, limits)
    with _open(encoded, limits) as image:
        _check_size(image.size, limits)
        if target_side is not None:
            image.draft(None, (target_side, target_side))
        try:
            image.load()
            return _to_upright_rgb(image)
        except (OSError, SyntaxError, ValueError, EOFError, RuntimeError, struct.error) as error:
            raise NotAnImageError(f"the {image.format} image is damaged or breaks off: {error}") from error


def require_size(n_bytes: int, limits: DecodeLimits) -> None:
    """Refuse an image file of the wrong size before it is read.

    Args:
        n_bytes: Its size.
        limits: The largest that is accepted.

    Raises:
        NotAnImageError: It is empty.
        ImageTooLargeError: It has more than `limits.max_bytes`.
    """
    if n_bytes == 0:
        raise NotAnImageError("the file is empty")
    if n_bytes > limits.max_bytes:
        raise ImageTooLargeError(f"{n_bytes:,} bytes, at most {limits.max_bytes:,} are accepted")


def read_encoded(source: Path | str | bytes, limits: DecodeLimits) -> bytes:
    """Bytes of an image that are not more than the limits allow.

    Raises:
        NotAnImageError: There are no bytes.
        ImageTooLargeError: There are more than `limits.max_bytes`.
        OSError: A path cannot be read.
    """
    # A path is asked for its size first: a huge file is never read.
    require_size(len(source) if isinstance(source, bytes) else Path(source).stat().st_size, limits)
    return source if isinstance(source, bytes) else Path(source).read_bytes()


def _open(encoded: bytes, limits: DecodeLimits) -> Image.Image:
    try:
        return Image.open(io.BytesIO(encoded), formats=accepted_formats())
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        # Pillow has a limit of its own, which ours may pass.
        raise ImageTooLargeError(f"more pixels than {limits.max_pixels:,}, the most accepted") from error
    except UnidentifiedImageError as error:
        raise _unidentified(encoded) from error
    except (OSError, SyntaxError, ValueError, RuntimeError, struct.error) as error:
        raise NotAnImageError(f"the image's header is damaged: {error}") from error


def _unidentified(encoded: bytes) -> NotAnImageError | UnsupportedFormatError:
    accepted = ", ".join(accepted_formats())
    brand = encoded[8:12] if encoded[4:8] == b"ftyp" else b""
    head = encoded[:256].lstrip()
    names = [name for signature, name in _FOREIGN_SIGNATURES if head.startswith(signature)]
    if foreign := _BRANDS.get(brand):
        if ("AVIF" if foreign == "AVIF" else "HEIF") in accepted_formats():
            return NotAnImageError(f"the {foreign} image is damaged or breaks off")
        return UnsupportedFormatError(f"{foreign} is read with {_EXTRA}; without it send one of {accepted}")
    if names:
        return UnsupportedFormatError(f"{names[0]} is not accepted; send one of {accepted}")
    return NotAnImageError(f"the bytes are no image; {accepted} are accepted")


def _registers_heif() -> bool:
    """Whether Pillow reads HEIC from now on."""
    try:
        import pillow_heif
    except ImportError:
        return False
    # Thumbnails and depth maps of strangers need not be parsed.
    pillow_heif.register_heif_opener(thumbnails=False, depth_images=False, aux_images=False)
    return True


def _check_size(size: tuple[int, int], limits: DecodeLimits) -> None:
    width, height = size
    if width * height > limits.max_pixels:
        raise ImageTooLargeError(
            f"{width} x {height} pixels are more than {limits.max_pixels:,}, the most accepted"
        )
    if min(size) < limits.min_side:
        raise ImageTooSmallError(
            f"{width} x {height} pixels are too few: at least {limits.min_side} a side are needed"
        )


def _to_upright_rgb(image: Image.Image) -> Image.Image:
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith("I"):
        return _from_deep_gray(upright)
    if upright.mode == "P" or "A" in upright.mode or "transparency" in upright.info:
        rgba = upright.convert("RGBA")
        white = Image.new("RGBA", rgba.size, "white")
        return Image.alpha_composite(white, rgba).convert("RGB")
    return upright.convert("RGB")


def _from_deep_gray(image: Image.Image) -> Image.Image:
    # Pillow clips 16-bit gray at 255 when it converts: a photo would turn white.
    deep = np.asarray(image).astype(np.int64)
    return Image.fromarray((deep.clip(0, 65535) >> 8).astype(np.uint8)).convert("RGB")
