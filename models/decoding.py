"""Safe decoding: from the bytes of a stranger to an upright 8-bit RGB image, within the memory there is."""

from __future__ import annotations

import io
import struct
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError, features

from vicinal.models.errors import (
    DecodingBusyError,
    ImageTooLargeError,
    ImageTooSmallError,
    NotAnImageError,
    UnsupportedFormatError,
)

__all__ = [
    "BUDGET",
    "DecodeBudget",
    "DecodeLimits",
    "ImageSource",
    "accepted_formats",
    "bytes_to_decode",
    "decode_image",
    "decoded_image",
    "image_suffixes",
    "read_encoded",
    "reduction_to",
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


# How the pixels of a file are turned under each EXIF orientation but the upright one.
_ORIENTATION_TAG = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# Bytes a pixel that Pillow keeps of a mode; of any other four.
_MODE_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2, "I;16N": 2}
_MOST_MODE_BYTES = 4
# Bytes a pixel that a decoder keeps besides, measured (benchmarks/speed/decoding_memory.py).
_DECODER_BYTES = {"WEBP": 12, "AVIF": 8, "HEIF": 8, "TIFF": 8, "GIF": 1}
# Of a progressive JPEG all coefficients are kept, whatever size it is decoded at.
_PROGRESSIVE_BYTES = 6
# What is made of it: the RGB image, and a copy of that for its thumbnail.
_RESULT_BYTES = 8
_LARGEST_DRAFT = 8
# Pixels that are brought to RGB at a time.
_STRIP_PIXELS = 2**18


@dataclass(frozen=True)
class DecodeLimits:
    """What an image may cost before it is refused.

    Attributes:
        max_bytes: Largest encoded size in bytes.
        max_pixels: Largest width x height in pixels, read from the header before any pixel is decoded.
        min_side: Smallest accepted shorter side in pixels.
        memory_bytes: Memory that the images of the process that are being decoded take together; one that
            needs more alone is decoded alone.
        wait_seconds: Longest wait for others to be done with theirs, in seconds; None waits as long as it
            takes.
    """

    max_bytes: int = 32 * 2**20
    max_pixels: int = 40_000_000
    min_side: int = 8
    memory_bytes: int = 512 * 2**20
    wait_seconds: float | None = None


class DecodeBudget:
    """Memory that is shared out to those who decode, in the order in which they came."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self._taken = 0

    @property
    def taken_bytes(self) -> int:
        """Bytes that are taken now."""
        return self._taken

    @contextmanager
    def taken(self, n_bytes: int, most: int, wait_seconds: float | None = None) -> Iterator[None]:
        """Have some memory while the context lasts. Whoever has some may not ask for more.

        Args:
            n_bytes: How much.
            most: Most that all have together; who needs more than that has to be alone.
            wait_seconds: Longest wait; None waits as long as it takes.

        Raises:
            DecodingBusyError: Others had it for longer.
        """
        ticket = object()
        with self._changed:
            self._waiting.append(ticket)
            try:
                has_turn = self._changed.wait_for(
                    lambda: self._waiting[0] is ticket and self._has_room(n_bytes, most), wait_seconds
                )
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()
            if not has_turn:
                raise DecodingBusyError(wait_seconds or 0.0)
            self._taken += n_bytes
        try:
            yield
        finally:
            with self._changed:
                self._taken -= n_bytes
                self._changed.notify_all()

    def _has_room(self, n_bytes: int, most: int) -> bool:
        return not self._taken or self._taken + n_bytes <= most


# Of the process, as its memory is, whoever decodes: searches, additions and index jobs.
BUDGET = DecodeBudget()


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
    """Decode the first frame of an image as a person would see it; see `decoded_image`."""
    with decoded_image(source, limits=limits, target_side=target_side) as image:
        return image


@contextmanager
def decoded_image(
    source: ImageSource, *, limits: DecodeLimits | None = None, target_side: int | None = None
) -> Iterator[Image.Image]:
    """Decode the first frame of an image as a person would see it.

    The EXIF orientation is applied, transparency is laid on white, 16-bit and CMYK images become
    8-bit RGB. The memory of it counts to that of the process until the context ends.

    Args:
        source: Path, encoded bytes, or a PIL image (which is only brought upright and to RGB).
        limits: Sizes to refuse; the defaults of `DecodeLimits` when None.
        target_side: The caller will scale the image down to about this many pixels a side; it is then
            decoded at the next larger power-of-two fraction of its size, which for camera photos is several
            times faster and takes a fraction of the memory. None gives every pixel.

    Yields:
        An RGB image.

    Raises:
        NotAnImageError: No image, or one that breaks off.
        UnsupportedFormatError: An image format outside `accepted_formats`.
        ImageTooLargeError: A limit on bytes or pixels is passed.
        ImageTooSmallError: The shorter side is below `limits.min_side`.
        DecodingBusyError: Other images take the memory for longer than `limits.wait_seconds`.
        OSError: A path cannot be read.
    """
    limits = limits or DecodeLimits()
    if isinstance(source, Image.Image):
        _check_size(source.size, limits)
        yield _to_upright_rgb(source)
        return
    encoded = read_encoded(source, limits)
    with _open(encoded, limits) as image:
        _check_size(image.size, limits)
        n_bytes = bytes_to_decode(image, target_side)
        with BUDGET.taken(n_bytes, limits.memory_bytes, limits.wait_seconds):
            if target_side is not None:
                image.draft(None, (target_side, target_side))
            try:
                image.load()
                upright = _to_upright_rgb(image, reduction_to(image.size, target_side))
            except (OSError, SyntaxError, ValueError, EOFError, RuntimeError, struct.error) as error:
                raise NotAnImageError(
                    f"the {image.format} image is damaged or breaks off: {error}"
                ) from error
            image.close()
            yield upright


def bytes_to_decode(image: Image.Image, target_side: int | None) -> int:
    """Memory that an image takes until it is small, from what its header says.

    Args:
        image: An opened image, not yet decoded.
        target_side: See `models.decoding.decode_image`.
    """
    n_pixels = image.width * image.height
    factor = reduction_to(image.size, target_side)
    decoded = n_pixels * _MODE_BYTES.get(image.mode, _MOST_MODE_BYTES)
    decoder = n_pixels * _DECODER_BYTES.get(image.format or "", 0)
    if image.format == "JPEG":
        decoded //= min(factor, _LARGEST_DRAFT) ** 2
        decoder = n_pixels * _PROGRESSIVE_BYTES if "progressive" in image.info else 0
    return decoded + decoder + _RESULT_BYTES * n_pixels // factor**2


def reduction_to(size: tuple[int, int], target_side: int | None) -> int:
    """The power of two by which both sides shrink so that the shorter one keeps `target_side` pixels."""
    factor = 1
    while target_side is not None and min(size) // (2 * factor) >= target_side:
        factor *= 2
    return factor


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


def _to_upright_rgb(image: Image.Image, factor: int = 1) -> Image.Image:
    """An image in RGB, upright, with a fraction of its width and height; strip by strip."""
    width, height = image.size
    small = Image.new("RGB", (-(-width // factor), -(-height // factor)))
    rows = max(1, _STRIP_PIXELS // (width * factor)) * factor
    for top in range(0, height, rows):
        strip = _to_rgb(image.crop((0, top, width, min(height, top + rows))))
        small.paste(strip if factor == 1 else strip.reduce(factor), (0, top // factor))
    turn = _TURNS.get(image.getexif().get(_ORIENTATION_TAG, 1))
    return small if turn is None else small.transpose(turn)


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):
        # Pillow clips 16-bit gray at 255 when it converts: a photo would turn white.
        deep = np.asarray(image).clip(0, 65535)
        return Image.fromarray((deep >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in ("P", "PA") or "A" in image.mode or "transparency" in image.info:
        rgba = image.convert("RGBA")
        white = Image.new("RGBA", rgba.size, "white")
        return Image.alpha_composite(white, rgba).convert("RGB")
    return image.convert("RGB")
