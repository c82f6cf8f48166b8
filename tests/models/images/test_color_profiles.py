"""Color profiles: one picture in any color space is one picture, and those of sRGB keep every bit."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest
from PIL import ExifTags, Image, ImageCms

from tests.photos import draw_photo
from vicinal.models.decoding import accepted_formats, decode_image
from vicinal.models.images.pixels import _adobe_rgb

SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def matrix_profile(colorants: dict[bytes, tuple[float, float, float]], gamma: float = 2.2) -> bytes:
    """A profile of three colors and a gamma: the one of Adobe RGB with other figures in it."""
    profile = bytearray(_adobe_rgb())
    for number in range(struct.unpack_from(">I", profile, 128)[0]):
        name, at, _ = struct.unpack_from(">4sII", profile, 132 + 12 * number)
        if name in colorants:
            struct.pack_into(">3i", profile, at + 8, *(round(one * 65536) for one in colorants[name]))
        if name.endswith(b"TRC"):
            struct.pack_into(">H", profile, at + 12, round(gamma * 256))
    return bytes(profile)


DISPLAY_P3 = matrix_profile(
    {
        b"rXYZ": (0.51512, 0.24120, -0.00105),
        b"gXYZ": (0.29198, 0.69225, 0.04189),
        b"bXYZ": (0.15710, 0.06657, 0.78407),
    }
)
WIDE = matrix_profile(
    {
        b"rXYZ": (0.79767, 0.28804, 0.0),
        b"gXYZ": (0.13518, 0.71188, 0.0),
        b"bXYZ": (0.03134, 0.00009, 0.82491),
    },
    gamma=1.8,
)


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def muted() -> Image.Image:
    """A picture whose colors every space holds."""
    return draw_photo(3).point(lambda level: 60 + level * 0.5)


def difference(first: Image.Image, second: Image.Image) -> float:
    return float(np.abs(np.asarray(first).astype(int) - np.asarray(second).astype(int)).mean())


def in_space(image: Image.Image, profile: bytes) -> Image.Image:
    opened = ImageCms.ImageCmsProfile(io.BytesIO(profile))
    converted = ImageCms.profileToProfile(image, ImageCms.createProfile("sRGB"), opened, renderingIntent=1)
    assert converted is not None
    converted.info.clear()
    return converted


@pytest.mark.parametrize("profile", [DISPLAY_P3, _adobe_rgb(), WIDE], ids=["P3", "Adobe RGB", "wide"])
@pytest.mark.parametrize("kind", ["PNG", "TIFF", "WEBP"])
def test_a_picture_in_another_space_is_the_same_picture(profile: bytes, kind: str) -> None:
    options = {"lossless": True} if kind == "WEBP" else {}
    stored = in_space(muted(), profile)
    decoded = decode_image(encoded(stored, kind, icc_profile=profile, **options))
    assert difference(decoded, muted()) < 1
    # Negative control: without its profile it is another one.
    assert difference(stored, muted()) > 2


@pytest.mark.parametrize("kind", [one for one in accepted_formats() if one not in ("GIF", "BMP")])
@pytest.mark.parametrize("profile", [SRGB, DISPLAY_P3[:200], b""], ids=["sRGB", "cut", "none"])
def test_a_profile_of_srgb_and_one_that_cannot_be_read_change_no_bit(kind: str, profile: bytes) -> None:
    plain = decode_image(encoded(draw_photo(1), kind))
    assert np.array_equal(np.asarray(decode_image(encoded(draw_photo(1), kind, icc_profile=profile))), plain)


def test_a_profile_that_does_not_fit_the_pixels_changes_no_bit() -> None:
    """Of gray pictures with a profile of colors, as many programs write it, gray stays as it is."""
    gray, photo = draw_photo(1).convert("L"), draw_photo(1)
    assert difference(decode_image(encoded(gray, icc_profile=SRGB)), gray.convert("RGB")) == 0
    as_gray = bytearray(DISPLAY_P3)
    as_gray[16:20] = b"GRAY"
    assert difference(decode_image(encoded(photo, icc_profile=bytes(as_gray))), photo) == 0


def test_transparency_and_orientation_hold_beside_a_profile() -> None:
    image = Image.new("RGBA", (32, 16), (0, 0, 0, 0))
    image.paste((10, 200, 30, 255), (0, 0, 16, 16))
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    decoded = np.asarray(decode_image(encoded(image, icc_profile=DISPLAY_P3, exif=exif.tobytes())))
    assert decoded.shape == (32, 16, 3)
    assert decoded[31, 0].min() >= 253
    assert decoded[0, 0, 0] == 0


def test_a_small_decoding_has_the_colors_of_the_whole() -> None:
    whole = in_space(muted().resize((1600, 1200)), DISPLAY_P3)
    small = decode_image(encoded(whole, "JPEG", icc_profile=DISPLAY_P3, quality=95), target_side=300)
    assert small.size == (400, 300)
    assert difference(small, muted().resize((400, 300))) < 3


@pytest.mark.parametrize(
    ("space", "option", "is_adobe"),
    [
        (0xFFFF, "R03", True),
        (2, None, True),
        (0xFFFF, "R98", False),
        (0xFFFF, None, False),
        (1, "R03", False),
    ],
)
def test_adobe_rgb_is_known_by_its_exif(space: int, option: str | None, is_adobe: bool) -> None:
    exif = Image.Exif()
    inner = exif.get_ifd(ExifTags.IFD.Exif)
    inner[ExifTags.Base.ColorSpace] = space
    if option:
        inner[ExifTags.IFD.Interop] = {1: option}
    stored = in_space(muted(), _adobe_rgb())
    decoded = decode_image(encoded(stored, "JPEG", exif=exif, quality=100, subsampling=0))
    assert (difference(decoded, muted()) < 2) is is_adobe


def one_tag_profile(space: bytes, kind: bytes, connection: bytes, tag: bytes, content: bytes) -> bytes:
    """A profile with one tag."""
    start = 128 + 4 + 12
    head = struct.pack(">I4xI4s4s4s12x4s", start + len(content), 0x02100000, kind, space, connection, b"acsp")
    head = head.ljust(68, b"\0") + struct.pack(">3i", 63190, 65536, 54061)
    return head.ljust(128, b"\0") + struct.pack(">I4sII", 1, tag, start, len(content)) + content


def print_profile(table: list[tuple[int, int, int]]) -> bytes:
    """A profile that says the Lab color, in bytes, of each corner of what four inks can mix."""
    matrix = struct.pack(">9i", *(65536 * (row == column) for row in range(3) for column in range(3)))
    straight = bytes(range(256))
    body = b"mft1" + bytes(4) + bytes([4, 3, 2, 0]) + matrix + straight * 4
    body += b"".join(bytes(color) for color in table) + straight * 3
    return one_tag_profile(b"CMYK", b"prtr", b"Lab ", b"A2B0", body)


def test_print_with_a_profile_is_seen_as_it_is_printed() -> None:
    """Here each ink is one of gray, so that what is printed has no color whatever the inks are called."""
    table = [(255 - 60 * bin(corner).count("1"), 128, 128) for corner in range(16)]
    profile = print_profile(table)
    photo = draw_photo(2).convert("CMYK")
    plain = np.asarray(decode_image(encoded(photo, "TIFF"))).astype(int)
    assert np.array_equal(plain, np.asarray(photo.convert("RGB")))
    printed = np.asarray(decode_image(encoded(photo, "TIFF", icc_profile=profile))).astype(int)
    assert np.ptp(printed, axis=2).max() <= 2
    assert np.ptp(plain, axis=2).max() > 50
    assert printed.max() - printed.min() > 50


def test_gray_with_a_profile_has_the_brightness_that_it_says() -> None:
    ramp = Image.linear_gradient("L")
    straight = b"curv" + bytes(4) + struct.pack(">IHH", 1, 256, 0)
    linear = one_tag_profile(b"GRAY", b"mntr", b"XYZ ", b"kTRC", straight)
    for image in (ramp, Image.merge("LA", (ramp, Image.new("L", ramp.size, 255)))):
        decoded = np.asarray(decode_image(encoded(image, icc_profile=linear)))
        assert decoded[[0, 128, 255], 0].tolist() == [[0] * 3, [188] * 3, [255] * 3]
