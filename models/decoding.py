"""Safe decoding: from the bytes of a stranger to an upright 8-bit RGB image, within the memory there is."""

from __future__ import annotations

import io
import os
import struct
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from PIL import Image, UnidentifiedImageError, features

from vicinal.models.errors import (
    IMAGE_HINT,
    BlankImageError,
    DecodingBusyError,
    ImageError,
    ImageTooLargeError,
    ImageTooSmallError,
    NotAnImageError,
    UnsupportedFormatError,
    install_command,
)
from vicinal.models.images.cut_jpegs import load_cut_jpeg
from vicinal.models.images.pixels import is_blank, profile_of, to_rgb, to_srgb

ImageSource = Path | str | bytes | Image.Image

_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
_JPEG_SUFFIXES = frozenset({".jpg", ".jpeg", ".jpe", ".jfif", ".mpo"})
_SUFFIXES = _JPEG_SUFFIXES | {".png", ".apng", ".webp", ".gif", ".bmp", ".tif", ".tiff"}
# What is decoded where the extra `heif` is installed.
_EXTRA_SUFFIXES = {"HEIF": frozenset({".heic", ".heif", ".hif"}), "AVIF": frozenset({".avif"})}

# Containers that people do upload and that Pillow alone does not name.
_FOREIGN_SIGNATURES = (
    (b"%PDF", "PDF"),
    (b"<svg", "SVG"),
    (b"<?xml", "SVG"),
    (b"<!doctype html", "a web page"),
    (b"<html", "a web page"),
    (b"8BPS", "PSD"),
    (b"\x00\x00\x01\x00", "ICO"),
    (b"\x00\x00\x00\x0cjp  ", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", "JPEG 2000"),
    (b"\x00\x00\x00\x0cjxl ", "JPEG XL"),
    (b"\xff\x0a", "JPEG XL"),
    *((b"p%d%c" % (kind, end), "PNM") for kind in range(1, 7) for end in b" \n"),
    (b"fujifilmccd-raw", "camera raw"),
    (b"iiu\x00", "camera raw"),
)
_BRANDS = {
    **dict.fromkeys((b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis"), "HEIC"),
    **dict.fromkeys((b"mif1", b"msf1"), "HEIF"),
    **dict.fromkeys((b"avif", b"avis"), "AVIF"),
}
_FOREIGN_BRANDS = {b"crx ": "camera raw", **dict.fromkeys((b"isom", b"mp41", b"mp42", b"qt  "), "video")}


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
# A JPEG with another picture behind the first, as cameras with two lenses and with gain maps write it.
_JPEG = ("JPEG", "MPO")
# Formats whose first frame may be blank, or no part of the animation; and how many are looked at.
_WITH_FRAMES = ("GIF", "PNG", "WEBP", "AVIF", "TIFF")
_MOST_FRAMES = 32
_PNG_DEPTH_AT = 24
_TIFF_BITS, _TIFF_PLANES, _APART = 258, 284, 2
_TIFF_HEADS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_GRAY_MODES = frozenset({"1", "L", "LA", "La", "I", "F"})


@dataclass(frozen=True)
class DecodeLimits:
    """Limits on what an image may cost.

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
        self.taken_bytes = 0

    @contextmanager
    def taken(self, n_bytes: int, most: int, wait_seconds: float | None = None) -> Iterator[None]:
        """Have some memory while the context lasts. Whoever has some may not ask for more."""
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
            self.taken_bytes += n_bytes
        try:
            yield
        finally:
            with self._changed:
                self.taken_bytes -= n_bytes
                self._changed.notify_all()

    def _has_room(self, n_bytes: int, most: int) -> bool:
        return not self.taken_bytes or self.taken_bytes + n_bytes <= most


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


def _extra() -> str:
    return f"the extra heif, {install_command('heif')}"


def with_extra(suffix: str) -> str | None:
    """Command that makes files with an end of name readable, which are not now; None for any other."""
    known = frozenset[str]().union(*_EXTRA_SUFFIXES.values())
    return _extra() if suffix in known - image_suffixes() else None


def decode_image(
    source: ImageSource, *, limits: DecodeLimits | None = None, target_side: int | None = None
) -> Image.Image:
    """Decode an image as a person would see it; see `decoded_image`."""
    with decoded_image(source, limits=limits, target_side=target_side) as image:
        return image


@contextmanager
def decoded_image(
    source: ImageSource, *, limits: DecodeLimits | None = None, target_side: int | None = None
) -> Iterator[Image.Image]:
    """Decode an image as a person would see it, of an animation the first frame with something on it.

    The EXIF orientation is applied, and the color profile. Transparency is laid on a ground, and deep pixels
    become 8-bit RGB; see `models.images.pixels.to_rgb`. A JPEG that lacks little at its end is read. The
    memory of it counts to that of the process until the context ends.

    With a `target_side`, to whose pixels a side the caller will scale it down, it is decoded at the next
    larger power-of-two fraction of its size: several times faster for camera photos. None gives every pixel.
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
            try:
                upright = _first_content(image, encoded, limits, target_side)
            except (OSError, SyntaxError, ValueError, EOFError, RuntimeError, struct.error) as error:
                is_cut = image.format in _JPEG and "truncated" in str(error)
                mended = load_cut_jpeg(encoded, target_side) if is_cut else None
                if mended is None:
                    reason = f"the {image.format} image is damaged or breaks off: {error}"
                    raise NotAnImageError(reason) from error
                upright = _to_upright_rgb(mended, reduction_to(mended.size, target_side))
            image.close()
            yield upright


def bytes_to_decode(image: Image.Image, target_side: int | None) -> int:
    """Memory that an image takes until it is small, from what its header says."""
    n_pixels = image.width * image.height
    factor = reduction_to(image.size, target_side)
    decoded = n_pixels * _MODE_BYTES.get(image.mode, _MOST_MODE_BYTES)
    decoder = n_pixels * _DECODER_BYTES.get(image.format or "", 0)
    if image.format in _JPEG:
        decoded //= min(factor, _LARGEST_DRAFT) ** 2
        decoder = n_pixels * _PROGRESSIVE_BYTES if "progressive" in image.info else 0
    return decoded + decoder + _RESULT_BYTES * n_pixels // factor**2


def reduction_to(size: tuple[int, int], target_side: int | None) -> int:
    """The power of two by which both sides shrink so that the shorter one keeps `target_side` pixels."""
    factor = 1
    while target_side is not None and min(size) // (2 * factor) >= target_side:
        factor *= 2
    return factor


def require_content(image: Image.Image) -> None:
    """Refuse a decoded image that is of one color all over."""
    if is_blank(image):
        raise BlankImageError("the picture is blank, of one color all over: nothing can be told from it")


def require_size(n_bytes: int, limits: DecodeLimits) -> None:
    """Refuse an image file of the wrong size before it is read."""
    if n_bytes == 0:
        raise NotAnImageError("the file is empty")
    if n_bytes > limits.max_bytes:
        raise ImageTooLargeError(f"{n_bytes:,} bytes, at most {limits.max_bytes:,} are accepted")


def read_encoded(source: object, limits: DecodeLimits) -> bytes:
    """Bytes of an image that are not more than the limits allow."""
    if not isinstance(source, bytes | str | os.PathLike):
        shape = f" of the shape {source.shape}" if hasattr(source, "shape") else ""
        raise NotAnImageError(f"{type(source).__name__}{shape} is no image; {IMAGE_HINT}")
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
    head = encoded[:256].lstrip().lower()
    names = [name for signature, name in _FOREIGN_SIGNATURES if head.startswith(signature.lower())]
    names += [_FOREIGN_BRANDS[brand]] if brand in _FOREIGN_BRANDS else []
    if foreign := _BRANDS.get(brand):
        if ("AVIF" if foreign == "AVIF" else "HEIF") in accepted_formats():
            return NotAnImageError(f"the {foreign} image is damaged or breaks off")
        return UnsupportedFormatError(f"{foreign} is read with {_extra()}; without it send one of {accepted}")
    if encoded.startswith(_TIFF_HEADS) and _has_directory(encoded):
        return UnsupportedFormatError(
            "the TIFF image has pixels of a kind that is not read, such as floats of 64 bits or several "
            "channels of floats: save it with 8 or 16 bits a channel"
        )
    if names:
        return UnsupportedFormatError(f"{names[0]} is not accepted; send one of {accepted}")
    return NotAnImageError(f"the bytes are no image; {accepted} are accepted")


def _has_directory(encoded: bytes) -> bool:
    """Tell if what describes the pixels of a TIFF is there, wherever in the file it stands."""
    order, is_big = ("<" if encoded.startswith(b"I") else ">"), b"+" in encoded[:4]
    try:
        (at,) = struct.unpack_from(f"{order}{'Q' if is_big else 'I'}", encoded, 8 if is_big else 4)
        (n_tags,) = struct.unpack_from(f"{order}{'Q' if is_big else 'H'}", encoded, at)
    except (struct.error, OverflowError):
        return False
    return bool(at + n_tags * (20 if is_big else 12) <= len(encoded))


def _registers_heif() -> bool:
    """Let Pillow read HEIC from now on, and tell if it can."""
    try:
        import pillow_heif
    except ImportError:
        return False
    # Thumbnails and depth maps of strangers need not be parsed.
    pillow_heif.register_heif_opener(thumbnails=False, depth_images=False, aux_images=False)
    return True


def _check_size(size: tuple[int, int], limits: DecodeLimits) -> None:
    width, height = size
    said = f"{width} x {height} pixels are"
    if width * height > limits.max_pixels:
        raise ImageTooLargeError(f"{said} more than {limits.max_pixels:,}, the most accepted")
    if min(size) < limits.min_side:
        raise ImageTooSmallError(f"{said} too few: at least {limits.min_side} a side are needed")


def _first_content(
    image: Image.Image, encoded: bytes, limits: DecodeLimits, target_side: int | None
) -> Image.Image:
    """The first frame that is seen and not blank, upright; the first that is seen where all are blank."""
    if getattr(image, "default_image", False):
        # Who can show the animation never shows this one.
        image.seek(1)
    elif target_side is not None:
        image.draft(None, (target_side, target_side))
    _correct_transparency(image, encoded)
    _correct_planes(image, encoded)
    image.load()
    first = _to_upright_rgb(image, reduction_to(image.size, target_side))
    if image.format not in _WITH_FRAMES or not is_blank(first):
        return first
    n_pixels = image.width * image.height
    for number in range(image.tell() + 1, _MOST_FRAMES):
        try:
            image.seek(number)
            n_pixels += image.width * image.height
            if n_pixels > limits.max_pixels:
                break
            _check_size(image.size, limits)
            frame = _to_upright_rgb(image, reduction_to(image.size, target_side))
        except (ImageError, EOFError, OSError, SyntaxError, ValueError, RuntimeError, struct.error):
            # The file ends here, or what is sound of it.
            break
        if not is_blank(frame):
            return frame
    return first


def _correct_transparency(image: Image.Image, encoded: bytes) -> None:
    """Bring the transparent color of a PNG to the depth of Pillow's pixels, which it is not at."""
    color = image.info.get("transparency")
    if image.format != "PNG" or isinstance(color, bytes) or color is None or image.mode == "P":
        return
    depth = encoded[_PNG_DEPTH_AT]
    if isinstance(color, tuple) and depth == 16:
        image.info["transparency"] = tuple(one >> 8 for one in color)
    elif depth < 8:
        image.info["transparency"] = color * 255 // (2**depth - 1)


def _correct_planes(image: Image.Image, encoded: bytes) -> None:
    """Have the planes of a TIFF of 16 bits a channel read as such; Pillow takes them for those of bytes."""
    if image.format != "TIFF" or image.mode not in ("RGB", "RGBA"):
        return
    tags = image.tag_v2  # type: ignore[attr-defined]
    if tags.get(_TIFF_PLANES) == _APART and set(tags.get(_TIFF_BITS, ())) == {16}:
        ends = ";16L" if encoded.startswith(b"II") else ";16B"
        image.tile = [  # type: ignore[attr-defined]
            one._replace(args=(f"{one.args[0]}{ends}", *one.args[1:])) if one.codec_name == "raw" else one
            for one in image.tile  # type: ignore[attr-defined]
        ]


def _to_upright_rgb(image: Image.Image, factor: int = 1) -> Image.Image:
    """An image in sRGB, upright, with a fraction of its width and height."""
    profile = profile_of(image)
    small = to_rgb(image, factor, to_srgb(profile, "CMYK") if image.mode == "CMYK" else None)
    if profile and image.mode != "CMYK":
        # Of few pixels: the profile takes longer than all else.
        if convert := to_srgb(profile, "RGB"):
            small = convert(small)
        elif image.mode.partition(";")[0] in _GRAY_MODES and (convert := to_srgb(profile, "L")):
            small = convert(small.getchannel(0))
    turn = _TURNS.get(image.getexif().get(_ORIENTATION_TAG, 1))
    return small if turn is None else small.transpose(turn)
