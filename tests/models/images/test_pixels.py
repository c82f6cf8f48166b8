"""Pixels of any depth keep their brightness, and transparency never hides what a person sees."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from vicinal.models.decoding import decode_image
from vicinal.models.errors import UnsupportedFormatError
from vicinal.models.images.pixels import is_blank

# A picture of 16 levels, as values from 0 to 1 and as the 8 bits that it is to become.
RAMP = np.tile(np.linspace(0, 1, 16), (16, 1))
LEVELS = np.arange(16) * 17

Tags = dict[int, tuple[str, tuple[float, ...] | bytes]]


def tiff(values: NDArray[Any], tags: Tags | None = None) -> bytes:
    """An uncompressed TIFF of one strip, or one for each plane, which says of its pixels what it is told.

    Args:
        values: (h, w) or (h, w, channels), little endian.
        tags: More tags, or others, each with the letter of its type in `struct`; bytes are text, and those
            without content are left out.
    """
    kind = {"u": 1, "i": 2, "f": 3}[values.dtype.kind]
    height, width, channels = (*values.shape, 1)[:3]
    entries: Tags = {
        256: ("I", (width,)),
        257: ("I", (height,)),
        258: ("H", (8 * values.dtype.itemsize,) * channels),
        259: ("H", (1,)),
        262: ("H", (2 if channels == 3 else 1,)),
        273: ("I", (0,)),
        277: ("H", (channels,)),
        278: ("I", (height,)),
        279: ("I", (values.nbytes,)),
        339: ("H", (kind,) * channels),
        **(tags or {}),
    }
    entries = {tag: entry for tag, entry in entries.items() if entry[1]}
    if 284 in entries:
        values = np.moveaxis(values, 2, 0)
        size = values.nbytes // channels
        entries |= {273: ("I", (0,) * channels), 279: ("I", (size,) * channels)}
    codes = {"s": 2, "H": 3, "I": 4, "h": 8, "f": 11, "d": 12}
    start = 8 + 2 + 12 * len(entries) + 4

    def packed(letter: str, content: tuple[float, ...] | bytes) -> bytes:
        return content if isinstance(content, bytes) else struct.pack(f"<{len(content)}{letter}", *content)

    long = sum(len(one) for entry in entries.values() if len(one := packed(*entry)) > 4)
    n_strips = len(entries[273][1])
    entries[273] = ("I", tuple(start + long + i * values.nbytes // n_strips for i in range(n_strips)))
    directory, beyond = struct.pack("<H", len(entries)), b""
    for tag, (letter, content) in sorted(entries.items()):
        body = packed(letter, content)
        at = struct.pack("<I", start + len(beyond)) if len(body) > 4 else body.ljust(4, b"\0")
        beyond += body if len(body) > 4 else b""
        directory += struct.pack("<HHI", tag, codes[letter], len(content)) + at
    return b"II*\0" + struct.pack("<I", 8) + directory + bytes(4) + beyond + values.tobytes()


def png(rows: NDArray[Any], depth: int, color_type: int, transparent: tuple[int, ...] = ()) -> bytes:
    """A PNG with one transparent color, written by hand: Pillow writes none of 16 bits.

    Args:
        rows: (h, n) bytes of the rows.
        depth: Bits a channel.
        color_type: 0 is gray, 2 is RGB.
        transparent: The transparent color.
    """

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    width = rows.shape[1] * 8 // (depth * (3 if color_type == 2 else 1))
    head = struct.pack(">IIBBBBB", width, len(rows), depth, color_type, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
    color = chunk(b"tRNS", struct.pack(f">{len(transparent)}H", *transparent)) if transparent else b""
    chunks = chunk(b"IHDR", head) + color + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def row(encoded: bytes | Image.Image) -> list[int]:
    """The first row of a decoded gray picture."""
    pixels = np.asarray(decode_image(encoded))
    assert (pixels == pixels[..., :1]).all()
    return [int(one) for one in pixels[0, :, 0]]


def scaled(dtype: str, low: float, high: float) -> NDArray[Any]:
    return (low + RAMP * (high - low)).astype(dtype)


@pytest.mark.parametrize(
    ("values", "tags"),
    [
        (scaled("<f4", 0, 1), {}),
        (scaled("<f4", 0, 65535), {}),
        (scaled("<f4", -3000, 1e6), {}),
        (scaled("<f4", 0, 0.001), {}),
        (scaled("<f4", 0.25, 0.5), {340: ("f", (0.25,)), 341: ("f", (0.5,))}),
        (scaled("<u2", 0, 65535), {}),
        (scaled("<u2", 0, 4095), {}),
        (scaled("<u2", 0, 4095), {281: ("H", (4095,))}),
        (scaled("<u2", 100, 900), {280: ("H", (100,)), 281: ("H", (900,))}),
        (scaled("<u4", 0, 65535), {}),
        (scaled("<u4", 0, 2**32 - 1), {}),
        (scaled("<u4", 0, 2**32 - 1), {339: ("H", ())}),
        (scaled("<i1", -128, 127), {}),
        (scaled("u1", 0, 255), {339: ("H", ())}),
        (scaled("<i4", -(2**31), 2**31 - 1), {}),
        (scaled("<i2", -1024, 3071), {}),
    ],
)
def test_gray_of_any_depth_has_the_brightness_that_its_file_says(values: NDArray[Any], tags: Tags) -> None:
    assert np.abs(np.array(row(tiff(values, tags))) - LEVELS).max() <= 1


@pytest.mark.parametrize("dtype", ["u1", "<u2"])
@pytest.mark.parametrize("channels", [3, 4])
def test_planes_one_after_the_other_are_the_picture(dtype: str, channels: int) -> None:
    top = np.iinfo(dtype).max
    values = np.stack([RAMP * top, RAMP.T * top, RAMP[:, ::-1] * top, np.full(RAMP.shape, top)], axis=-1)
    values = values[..., :channels].astype(dtype)
    tags: Tags = {262: ("H", (2,)), 338: ("H", (2,) * (channels - 3))}
    found = [decode_image(tiff(values, {**tags, **planes})) for planes in ({}, {284: ("H", (2,))})]
    assert np.array_equal(*map(np.asarray, found))
    assert np.abs(np.asarray(found[1])[0, :, 0].astype(int) - LEVELS).max() <= 1


@pytest.mark.parametrize("dtype", ["<u2", "<f4"])
def test_gray_whose_white_is_zero_is_turned_over(dtype: str) -> None:
    inverted = tiff(scaled(dtype, 0, 65535), {262: ("H", (0,))})
    assert row(inverted) == [255 - one for one in row(tiff(scaled(dtype, 0, 65535)))]


@pytest.mark.parametrize(
    ("missing", "tags"),
    [
        (np.nan, {}),
        (-np.inf, {}),
        (-9999.0, {42113: ("s", b"-9999\0")}),
        (-3.4e38, {42113: ("s", b"-3.4e+38\0")}),
    ],
)
def test_pixels_without_a_value_move_no_other(missing: float, tags: Tags) -> None:
    values = scaled("<f4", 0, 1)
    values[3, 3] = missing
    assert np.abs(np.array(row(tiff(values, tags))) - LEVELS).max() <= 1


@pytest.mark.parametrize("values", [np.full((16, 16), np.nan, "<f4"), np.full((16, 16), 7, "<f4")])
def test_deep_gray_without_content_is_blank(values: NDArray[Any]) -> None:
    assert is_blank(decode_image(tiff(values)))


@pytest.mark.parametrize(
    "values",
    [scaled("<f8", 0, 1), scaled("<f2", 0, 1), np.stack([scaled("<f4", 0, 1)] * 3, -1)],
    ids=["64 bits", "16 bits", "channels"],
)
def test_a_tiff_that_cannot_be_read_is_no_unknown_file(values: NDArray[Any]) -> None:
    with pytest.raises(UnsupportedFormatError, match="TIFF image has pixels of a kind that is not read"):
        decode_image(tiff(values))


@pytest.mark.parametrize(
    ("depth", "color_type", "transparent"),
    [
        (16, 0, (3 * 4369,)),
        (16, 2, (3 * 4369,) * 3),
        (8, 0, (51,)),
        (8, 2, (51,) * 3),
        (4, 0, (3,)),
    ],
)
def test_the_transparent_color_of_a_png_is_white_at_every_depth(
    depth: int, color_type: int, transparent: tuple[int, ...]
) -> None:
    deep = np.tile(np.arange(16), (16, 1))
    if color_type == 2:
        deep = deep.repeat(3, axis=1)
    rows = {
        16: (deep * 4369).astype(">u2").view(np.uint8),
        8: (deep * 17).astype(np.uint8),
        4: (deep[:, ::2] * 16 + deep[:, 1::2]).astype(np.uint8),
    }[depth]
    expected = [255 if level == 51 else int(level) for level in LEVELS]
    assert row(png(rows, depth, color_type, transparent)) == expected
    assert row(png(rows, depth, color_type)) == LEVELS.tolist()


def logo(color: tuple[int, ...], mode: str = "RGBA") -> Image.Image:
    """A disc of a color on nothing."""
    image = Image.new("RGBA", (64, 64), (255, 255, 255, 0))
    image.paste(color, (16, 24, 48, 40))
    return image if mode != "P" else image.quantize(8)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
@pytest.mark.parametrize("color", [(255, 255, 255, 255), (240, 240, 240, 255), (255, 255, 255, 128)])
@pytest.mark.parametrize("target_side", [None, 16])
def test_a_white_logo_on_transparency_is_seen(
    mode: str, color: tuple[int, ...], target_side: int | None
) -> None:
    stream = io.BytesIO()
    image = logo(color, mode)
    (image.convert("LA") if mode == "LA" else image).save(stream, "PNG")
    decoded = np.asarray(decode_image(stream.getvalue(), target_side=target_side)).astype(int)
    assert decoded.max() - decoded.min() > 100
    assert decoded[0, 0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("color", [(0, 0, 0, 255), (200, 30, 30, 255), (0, 0, 0, 60)])
def test_any_other_logo_stays_on_white(color: tuple[int, ...]) -> None:
    """Negative control of the white one."""
    assert np.asarray(decode_image(logo(color)))[0, 0].tolist() == [255, 255, 255]


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (Image.new("RGB", (64, 64), "white"), True),
        (Image.new("RGB", (64, 64), (12, 90, 200)), True),
        (Image.new("RGBA", (64, 64), (12, 90, 200, 0)), True),
        (Image.new("LA", (64, 64), (0, 0)), True),
        (logo((255, 255, 255, 255)), False),
        (logo((0, 0, 0, 255)), False),
        (Image.linear_gradient("L"), False),
    ],
)
def test_a_picture_is_blank_when_one_color_is_all_there_is_to_see(image: Image.Image, expected: bool) -> None:
    assert is_blank(decode_image(image)) is expected


def test_what_jpeg_makes_of_a_blank_page_is_blank() -> None:
    stream = io.BytesIO()
    Image.new("RGB", (200, 100), (253, 251, 240)).save(stream, "JPEG", quality=40)
    assert is_blank(decode_image(stream.getvalue()))
