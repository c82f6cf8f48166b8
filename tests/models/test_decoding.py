"""Decoding: what strangers send becomes an upright RGB image or one clear refusal."""

from __future__ import annotations

import contextlib
import io
import struct
import sys
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from tests.photos import draw_photo
from vicinal.models.decoding import (
    DecodeLimits,
    accepted_formats,
    decode_image,
    image_suffixes,
    with_extra,
)
from vicinal.models.errors import (
    ImageError,
    ImageTooLargeError,
    ImageTooSmallError,
    NotAnImageError,
    UnsupportedFormatError,
)
from vicinal.models.images import pixels

ORIENTATION_TAG = 0x0112
# From the upright image to the pixels that a camera stores under each orientation.
STORED_AS = {
    1: lambda upright: upright,
    2: np.fliplr,
    3: lambda upright: np.rot90(upright, 2),
    4: np.flipud,
    5: lambda upright: upright.transpose(1, 0, 2),
    6: lambda upright: np.rot90(upright, 1),
    7: lambda upright: np.rot90(upright, 2).transpose(1, 0, 2),
    8: lambda upright: np.rot90(upright, -1),
}


def _encoded(image: Image.Image, image_format: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, image_format, **options)
    return stream.getvalue()


def _photo(width: int = 40, height: int = 24) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3))
    return Image.fromarray(pixels.astype(np.uint8))


def _scene(width: int, height: int) -> Image.Image:
    """A smooth image without any symmetry, which JPEG keeps well."""
    x, y = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack([x, y, (x + 2 * y) / 3], axis=-1).astype(np.uint8))


def _pixels(image: Image.Image) -> NDArray[np.int64]:
    return np.asarray(image).astype(np.int64)


def _png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def _rubbish_png(side: int) -> bytes:
    """A square 1-bit PNG whose pixels are rubbish."""
    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", b"no pixels"), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_png_chunk(kind, content) for kind, content in chunks)


@pytest.mark.parametrize("image_format", ["PNG", "BMP", "TIFF"])
def test_lossless_formats_keep_every_pixel(tmp_path: Path, image_format: str) -> None:
    path = tmp_path / "photo"
    _photo().save(path, image_format)
    decoded = decode_image(path)
    assert decoded.mode == "RGB"
    assert np.array_equal(_pixels(decoded), _pixels(_photo()))


@pytest.mark.parametrize("image_format", accepted_formats())
def test_every_accepted_format_decodes_to_rgb(tmp_path: Path, image_format: str) -> None:
    path = tmp_path / "scene"
    _scene(48, 32).save(path, image_format)
    decoded = decode_image(path)
    assert (decoded.mode, decoded.size) == ("RGB", (48, 32))
    assert np.abs(_pixels(decoded) - _pixels(_scene(48, 32))).mean() < 12


def test_path_string_bytes_and_open_image_decode_alike(tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    _photo().save(path)
    sources = [path, str(path), path.read_bytes(), Image.open(path)]
    decoded = [_pixels(decode_image(source)) for source in sources]
    sources[-1].close()
    assert all(np.array_equal(one, decoded[0]) for one in decoded)


def test_empty_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.jpg"
    path.touch()
    with pytest.raises(NotAnImageError, match="empty"):
        decode_image(path)


@pytest.mark.parametrize("image_format", accepted_formats())
@pytest.mark.parametrize("kept", [0.3, 0.6, 0.95])
def test_image_that_breaks_off_is_refused(tmp_path: Path, image_format: str, kept: float) -> None:
    path = tmp_path / "half"
    whole = _encoded(_photo(), image_format)
    path.write_bytes(whole[: int(kept * len(whole))])
    with pytest.raises(NotAnImageError):
        decode_image(path)


@pytest.mark.parametrize("size", [(1, 1), (7, 100), (100, 7)])
def test_image_with_too_few_pixels_is_refused(tmp_path: Path, size: tuple[int, int]) -> None:
    path = tmp_path / "dot.png"
    Image.new("RGB", size).save(path)
    with pytest.raises(ImageTooSmallError, match=f"{size[0]} x {size[1]}"):
        decode_image(path)


# Pillow itself is silent up to 89 megapixels, warns up to twice that, and refuses beyond.
@pytest.mark.parametrize("side", [8_100, 12_000, 30_000])
def test_size_is_refused_before_a_pixel_is_decoded(side: int) -> None:
    """Only who decodes the pixels would call the image damaged."""
    with pytest.raises(ImageTooLargeError):
        decode_image(_rubbish_png(side))


def test_rubbish_pixels_are_noticed_in_an_image_of_allowed_size() -> None:
    """Negative control of the test above."""
    with pytest.raises(NotAnImageError):
        decode_image(_rubbish_png(100))


def test_too_many_bytes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    _photo().save(path)
    n_bytes = path.stat().st_size
    assert decode_image(path, limits=DecodeLimits(max_bytes=n_bytes)).size == (40, 24)
    for source in (path, path.read_bytes()):
        with pytest.raises(ImageTooLargeError, match=f"{n_bytes:,} bytes"):
            decode_image(source, limits=DecodeLimits(max_bytes=n_bytes - 1))


def test_pixel_limit_counts_width_times_height() -> None:
    encoded = _encoded(_photo(), "PNG")
    assert decode_image(encoded, limits=DecodeLimits(max_pixels=40 * 24)).size == (40, 24)
    with pytest.raises(ImageTooLargeError, match="40 x 24"):
        decode_image(encoded, limits=DecodeLimits(max_pixels=40 * 24 - 1))


@pytest.mark.parametrize("size", [(4, 40), (50, 50)])
def test_limits_hold_for_opened_images(size: tuple[int, int]) -> None:
    with pytest.raises(ImageError):
        decode_image(Image.new("RGB", size), limits=DecodeLimits(max_pixels=2_000))


def test_cmyk_jpeg_keeps_its_color(tmp_path: Path) -> None:
    path = tmp_path / "print.jpg"
    Image.new("RGB", (32, 32), (200, 40, 60)).convert("CMYK").save(path, quality=95)
    with Image.open(path) as stored:
        assert stored.mode == "CMYK"
    assert np.abs(_pixels(decode_image(path)) - (200, 40, 60)).max() <= 4


@pytest.mark.parametrize("image_format", ["PNG", "TIFF"])
@pytest.mark.parametrize("gray", [0, 0x4000, 0x8000, 0xFFFF])
def test_16_bit_gray_keeps_its_brightness(tmp_path: Path, image_format: str, gray: int) -> None:
    path = tmp_path / "scan"
    Image.fromarray(np.full((16, 16), gray, np.uint16)).save(path, image_format)
    assert np.unique(_pixels(decode_image(path))).tolist() == [gray >> 8]


def test_transparent_pixels_lie_on_white(tmp_path: Path) -> None:
    path = tmp_path / "logo.png"
    image = Image.new("RGBA", (20, 10), (255, 0, 0, 0))
    image.paste((0, 0, 0, 128), (10, 0, 20, 10))
    image.save(path)
    decoded = _pixels(decode_image(path))
    assert np.unique(decoded[:, :10]).tolist() == [255]
    assert np.unique(decoded[:, 10:]).tolist() == [127]


@pytest.mark.parametrize("image_format", ["PNG", "GIF"])
def test_transparent_palette_entry_becomes_white(tmp_path: Path, image_format: str) -> None:
    path = tmp_path / "icon"
    image = Image.new("P", (16, 16), 0)
    image.putpalette([10, 200, 30, 0, 0, 255])
    image.paste(1, (8, 0, 16, 16))
    image.save(path, image_format, transparency=0)
    decoded = _pixels(decode_image(path))
    assert decoded[0, 0].tolist() == [255, 255, 255]
    assert decoded[0, 15].tolist() == [0, 0, 255]


MOVING = ["GIF", "PNG", "WEBP", "TIFF"]


def _moving(image_format: str, *frames: Image.Image, **options: object) -> bytes:
    lossless = {"lossless": True} if image_format == "WEBP" else {}
    return _encoded(
        frames[0], image_format, save_all=True, append_images=frames[1:], duration=100, **lossless, **options
    )


def _plain(color: str) -> Image.Image:
    return Image.new("RGB", (16, 16), color)


def _striped(color: str) -> Image.Image:
    image = _plain("white")
    image.paste(color, (4, 0, 12, 16))
    return image


@pytest.mark.parametrize("image_format", MOVING)
@pytest.mark.parametrize("n_blank", [0, 1, 3])
def test_of_an_animation_the_first_frame_with_something_on_it_is_seen(
    image_format: str, n_blank: int
) -> None:
    blank = [_plain(color) for color in ("white", "black", "gray")[:n_blank]]
    decoded = decode_image(_moving(image_format, *blank, _striped("red"), _striped("blue")))
    assert np.array_equal(_pixels(decoded), _pixels(_striped("red")))


@pytest.mark.parametrize("image_format", MOVING)
def test_an_animation_of_blank_frames_gives_its_first(image_format: str) -> None:
    frames = [_plain(color) for color in ("red", "blue", "red")]
    assert np.array_equal(_pixels(decode_image(_moving(image_format, *frames))), _pixels(frames[0]))


def test_no_more_frames_are_looked_at_than_an_image_may_have_pixels() -> None:
    encoded = _moving("GIF", _plain("red"), _plain("blue"), _striped("red"))
    few = decode_image(encoded, limits=DecodeLimits(max_pixels=2 * 16 * 16))
    assert np.array_equal(_pixels(few), _pixels(_plain("red")))
    assert np.array_equal(_pixels(decode_image(encoded)), _pixels(_striped("red")))


def test_an_animation_that_breaks_off_gives_what_is_sound() -> None:
    whole = _moving("GIF", _plain("red"), _striped("red"), _striped("blue"))
    assert decode_image(whole[: len(whole) // 2]).size == (16, 16)


def test_the_default_image_of_an_animation_is_not_seen() -> None:
    """Whoever can show the animation shows its frames alone."""
    encoded = _moving("PNG", _striped("green"), _striped("red"), _striped("blue"), default_image=True)
    assert np.array_equal(_pixels(decode_image(encoded)), _pixels(_striped("red")))


def _jpeg(**options: object) -> bytes:
    return _encoded(_scene(400, 300), "JPEG", quality=90, **options)


@pytest.mark.parametrize("lacking", [1, 3, 100])
@pytest.mark.parametrize("options", [{}, {"restart_marker_rows": 1}, {"progressive": True}])
@pytest.mark.parametrize("target_side", [None, 100])
def test_a_jpeg_that_lacks_a_few_bytes_is_read(
    lacking: int, options: dict[str, object], target_side: int | None
) -> None:
    whole = decode_image(_jpeg(**options), target_side=target_side)
    decoded = decode_image(_jpeg(**options)[:-lacking], target_side=target_side)
    assert decoded.size == whole.size
    assert np.abs(_pixels(decoded) - _pixels(whole)).mean() < 2


@pytest.mark.parametrize("kept", [0.2, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_a_jpeg_that_lacks_more_is_refused(kept: float, mode: str) -> None:
    whole = _encoded(_scene(400, 300).convert(mode), "JPEG", quality=90)
    with pytest.raises(NotAnImageError, match="breaks off"):
        decode_image(whole[: int(kept * len(whole))])


def test_a_gray_picture_is_not_taken_for_what_is_lacking() -> None:
    image = _scene(400, 300)
    image.paste((128, 128, 128), (0, 0, 400, 60))
    assert decode_image(_encoded(image, "JPEG")[:-2]).size == (400, 300)


def test_a_progressive_jpeg_is_read_where_it_lacks_what_is_not_seen() -> None:
    encoded = _encoded(draw_photo(0, (400, 300)), "JPEG", quality=90, progressive=True)
    whole, read = _pixels(decode_image(encoded)), 0
    for kept in np.linspace(0.1, 0.99, 40):
        with contextlib.suppress(NotAnImageError):
            assert np.abs(_pixels(decode_image(encoded[: int(kept * len(encoded))])) - whole).mean() < 2
            read += 1
    assert 3 < read < 30


@pytest.mark.parametrize(
    ("image_format", "orientation"),
    [("JPEG", one) for one in STORED_AS]
    + [(one, 6) for one in accepted_formats() if one not in ("GIF", "BMP", "JPEG")],
)
def test_exif_orientation_is_applied(tmp_path: Path, orientation: int, image_format: str) -> None:
    path = tmp_path / "turned"
    upright = _pixels(_scene(48, 32))
    stored = np.ascontiguousarray(STORED_AS[orientation](upright)).astype(np.uint8)
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = orientation
    # In bytes, or the writer of HEIF does not see the orientation.
    Image.fromarray(stored).save(path, image_format, exif=exif.tobytes())
    decoded = _pixels(decode_image(path))
    assert decoded.shape == upright.shape
    assert np.abs(decoded - upright).mean() < 3


@pytest.mark.parametrize("orientation", [2, 3, 4, 5, 6, 7, 8])
def test_ignored_orientation_would_be_noticed(orientation: int) -> None:
    """Negative control: stored pixels taken for upright ones fail the test above."""
    upright = _pixels(_scene(48, 32))
    stored = STORED_AS[orientation](upright)
    assert stored.shape != upright.shape or np.abs(stored - upright).mean() > 3


@pytest.mark.parametrize(
    ("encoded", "name"),
    [
        (b"%PDF-1.7\n" + bytes(64), "PDF"),
        (b'<svg xmlns="http://www.w3.org/2000/svg"></svg>', "SVG"),
        (b"8BPS\x00\x01" + bytes(64), "PSD"),
        (b"P6\n10 10\n255\n" + bytes(300), "PNM"),
        (b"\x00\x00\x00\x18ftypcrx " + bytes(64), "camera raw"),
        (b"\x00\x00\x00\x14ftypqt  " + bytes(64), "video"),
        (b"<!DOCTYPE html><html>404</html>", "a web page"),
    ],
)
def test_known_foreign_format_is_named(encoded: bytes, name: str) -> None:
    with pytest.raises(UnsupportedFormatError, match=f"^{name} .* JPEG, PNG"):
        decode_image(encoded)


@pytest.fixture
def without_heif(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if the extra `heif` were not installed."""
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.setattr("vicinal.models.decoding.features.check", lambda _: False)
    for one in (accepted_formats, image_suffixes):
        one.cache_clear()
    yield
    for one in (accepted_formats, image_suffixes):
        one.cache_clear()


BRANDS = {b"heic": "HEIC", b"hevc": "HEIC", b"mif1": "HEIF", b"avif": "AVIF"}


@pytest.mark.parametrize("brand", BRANDS)
def test_without_the_extra_it_is_named(without_heif: None, brand: bytes) -> None:
    with pytest.raises(UnsupportedFormatError, match=rf"^{BRANDS[brand]} is read with .*'pillow"):
        decode_image(b"\x00\x00\x00\x18ftyp" + brand + bytes(64))


def test_without_the_extra_nothing_else_changes(without_heif: None) -> None:
    assert {"HEIF", "AVIF"}.isdisjoint(accepted_formats())
    assert [with_extra(suffix) is None for suffix in (".heic", ".hif", ".avif", ".jpg", ".mov", "")] == [
        *[False] * 3,
        *[True] * 3,
    ]
    assert decode_image(_encoded(_photo(), "PNG")).size == (40, 24)


@pytest.mark.parametrize("brand", [b"heic", b"avif"])
def test_a_header_without_an_image_is_damaged(brand: bytes) -> None:
    if {b"heic": "HEIF", b"avif": "AVIF"}[brand] not in accepted_formats():
        pytest.skip("its extra is not installed")
    with pytest.raises(NotAnImageError, match=f"the {BRANDS[brand]} image is damaged"):
        decode_image(b"\x00\x00\x00\x18ftyp" + brand + bytes(64))


@pytest.mark.parametrize("image_format", [one for one in accepted_formats() if one in ("HEIF", "AVIF")])
@pytest.mark.parametrize("side", [9_000, 60_000])
def test_a_vast_heif_in_a_small_file_is_refused(image_format: str, side: int) -> None:
    """Its header says another size than was encoded: nothing of that size is made to find out."""
    encoded = _encoded(_scene(48, 32), image_format)
    at = encoded.index(b"ispe") + 8
    vast = encoded[:at] + struct.pack(">II", side, side) + encoded[at + 8 :]
    tracemalloc.start()
    with pytest.raises(ImageError):
        decode_image(vast)
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


@given(width=st.integers(16, 700), height=st.integers(16, 700), side=st.integers(16, 300))
@settings(max_examples=25, deadline=None)
def test_target_side_never_goes_below_what_was_asked_for(width: int, height: int, side: int) -> None:
    """The reduced image has the target's pixels a side, or all that the file has."""
    encoded = _encoded(Image.new("RGB", (width, height)), "JPEG")
    decoded = decode_image(encoded, target_side=side)
    assert decoded.width >= min(width, side)
    assert decoded.height >= min(height, side)


@pytest.mark.parametrize("image_format", accepted_formats())
@pytest.mark.parametrize(("side", "size"), [(301, (800, 600)), (70, (100, 75))])
def test_every_format_comes_at_the_size_of_a_jpeg(
    image_format: str, side: int, size: tuple[int, int]
) -> None:
    """The same photo in two formats scores the same."""
    decoded = decode_image(_encoded(_scene(800, 600), image_format), target_side=side)
    assert decoded.size == size
    assert np.abs(_pixels(decoded) - _pixels(_scene(800, 600).resize(size))).mean() < 5


@pytest.mark.parametrize(
    "mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "I", "I;16", "F", "LAB", "HSV"]
)
@pytest.mark.parametrize("size", [(37, 2050), (430, 431)])
def test_strips_give_what_the_whole_gives(
    monkeypatch: pytest.MonkeyPatch, mode: str, size: tuple[int, int]
) -> None:
    scene = _scene(*size)
    image = (
        scene.convert("I").convert("I;16")
        if mode == "I;16"
        else scene.convert("RGB").convert(mode)
        if mode != "PA"
        else scene.convert("P").convert("PA")
    )
    monkeypatch.setattr(pixels, "_STRIP_PIXELS", 20_000)
    stripped = decode_image(image)
    monkeypatch.setattr(pixels, "_STRIP_PIXELS", 2**30)
    assert np.array_equal(_pixels(stripped), _pixels(decode_image(image)))


def test_target_side_keeps_the_orientation(tmp_path: Path) -> None:
    path = tmp_path / "turned.jpg"
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = 6
    _scene(1600, 1200).save(path, exif=exif)
    assert decode_image(path, target_side=140).size == (150, 200)


_WHOLE = [_encoded(_photo(), image_format) for image_format in accepted_formats() if image_format != "TIFF"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow says of some damage that it reads on
@given(whole=st.sampled_from(_WHOLE), damage=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255))))
@settings(max_examples=500, deadline=None)
def test_damage_gives_an_image_or_an_image_error(whole: bytes, damage: list[tuple[int, int]]) -> None:
    """Whatever bytes are changed, no error of Pillow's reaches the caller."""
    changed = bytearray(whole)
    for position, value in damage:
        changed[position % len(changed)] = value
    with contextlib.suppress(ImageError):
        assert decode_image(bytes(changed)).mode == "RGB"
