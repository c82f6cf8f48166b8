"""Hostile images, made by seed: files that break off, lie about themselves, or are something else.

Each is named by what is wrong with it, `kind/format/number`. Nothing of it is larger than a few MiB.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from functools import cache

import numpy as np
from PIL import Image

from vicinal.models.decoding import accepted_formats

__all__ = ["corpus"]

_SUFFIXES = {"JPEG": "jpg", "TIFF": "tif", "HEIF": "heic"}
_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "HSV", "I", "I;16", "F")
_PNG = b"\x89PNG\r\n\x1a\n"


def corpus(seed: int = 0) -> dict[str, bytes]:
    """All of them.

    Args:
        seed: Of what is cut off and changed.

    Returns:
        Files by name; the suffix is that of the format that is claimed.
    """
    rng = np.random.default_rng(seed)
    made: dict[str, bytes] = {}
    for name, content in (*_broken_off(rng), *_changed(rng), *_of_any_seed(), *_others(rng)):
        if name in made:
            raise ValueError(f"two hostile images are named '{name}'")
        made[name] = content
    return made


@cache
def _of_any_seed() -> list[tuple[str, bytes]]:
    return [*_sizes(), *_chunks(), *_extras(), *_modes(), *_frames()]


@cache
def _whole(kind: str) -> bytes:
    x, y = np.meshgrid(np.linspace(0, 255, 160), np.linspace(0, 255, 120))
    pixels = np.stack([x, y, (x + y) / 2], axis=-1).astype(np.uint8)
    return _encoded(Image.fromarray(pixels), kind)


def _encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def _name(what: str, kind: str, number: int | str = 0) -> str:
    return f"{what}-{kind.lower()}-{number}.{_SUFFIXES.get(kind, kind.lower())}"


def _broken_off(rng: np.random.Generator) -> Iterator[tuple[str, bytes]]:
    for kind in accepted_formats():
        whole = _whole(kind)
        for number, share in enumerate(np.sort(rng.random(12))):
            yield _name("broken-off", kind, number), whole[: int(share * len(whole))]
        for n_bytes in (1, 2, 4, 8, 12, 16, 32):
            yield _name("head-only", kind, n_bytes), whole[:n_bytes]


def _changed(rng: np.random.Generator) -> Iterator[tuple[str, bytes]]:
    for kind in accepted_formats():
        whole = _whole(kind)
        for number in range(20):
            # In the head, where the fields are, and anywhere.
            end = min(len(whole), 80) if number < 10 else len(whole)
            changed = bytearray(whole)
            for place in rng.integers(0, end, size=1 + number % 5):
                changed[place] = rng.integers(256)
            yield _name("changed", kind, number), bytes(changed)
        places = rng.permutation(len(whole))[:8]
        yield _name("doubled", kind), whole + whole
        yield _name("zeroed", kind), whole[:24] + bytes(len(whole) - 24)
        yield _name("ones", kind), whole[:24] + b"\xff" * (len(whole) - 24)
        yield _name("without", kind), bytes(one for at, one in enumerate(whole) if at not in set(places))
        other = _whole(accepted_formats()[(accepted_formats().index(kind) + 1) % len(accepted_formats())])
        yield _name("two-heads", kind), whole[:16] + other
        yield _name("crossed", kind), whole[: len(whole) // 2] + other[len(other) // 2 :]


def _png(
    width: int, height: int, body: bytes, *, bits: int = 8, color: int = 2, further: bytes = b""
) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0)
    return _PNG + _chunk(b"IHDR", header) + further + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def _zeros(n_bytes: int) -> bytes:
    packer = zlib.compressobj(9)
    block = bytes(2**20)
    parts = [packer.compress(block) for _ in range(n_bytes // 2**20)]
    return b"".join([*parts, packer.compress(bytes(n_bytes % 2**20)), packer.flush()])


def _sizes() -> Iterator[tuple[str, bytes]]:
    """Sizes that are vast, zero or not what follows."""
    bombs = {
        "16-bit-64-megapixels": (8000, 8000, 16, 2),
        "16-bit-40-megapixels": (8000, 5000, 16, 2),
        "16-bit-alpha-39-megapixels": (7800, 5000, 16, 6),
        "1-bit-900-megapixels": (30_000, 30_000, 1, 0),
        "1-bit-40-megapixels": (8000, 5000, 1, 0),
        "stripe": (5_000_000, 8, 8, 0),
        "column": (8, 5_000_000, 8, 0),
    }
    depths = {0: 1, 2: 3, 6: 4}
    for name, (width, height, bits, color) in bombs.items():
        row = 1 + -(-width * bits * depths[color] // 8)
        yield _name("bomb", "PNG", name), _png(width, height, _zeros(row * height), bits=bits, color=color)
    sizes = (
        (0, 0),
        (0, 100),
        (100, 0),
        (1, 1),
        (2**31 - 1, 1),
        (2**31 - 1, 2**31 - 1),
        (2**32 - 1, 8),
        (9000, 9000),
    )
    for number, (width, height) in enumerate(sizes):
        yield _name("size", "PNG", number), _png(width, height, zlib.compress(bytes(1000)))
        small = struct.pack("<HH", width & 0xFFFF, height & 0xFFFF)
        yield _name("size", "GIF", number), _whole("GIF")[:6] + small + _whole("GIF")[10:]
        signed = struct.pack("<II", width, height)
        yield _name("size", "BMP", number), _whole("BMP")[:18] + signed + _whole("BMP")[26:]
        jpeg = _whole("JPEG")
        at = jpeg.index(b"\xff\xc0") + 5
        both = struct.pack(">HH", height & 0xFFFF, width & 0xFFFF)
        yield _name("size", "JPEG", number), jpeg[:at] + both + jpeg[at + 4 :]
        yield _name("size", "TIFF", number), _tiff(width, height)
        for kind in ("HEIF", "AVIF"):
            if kind in accepted_formats():
                whole = _whole(kind)
                at = whole.index(b"ispe") + 8
                yield (
                    _name("size", kind, number),
                    whole[:at] + struct.pack(">II", width, height) + whole[at + 8 :],
                )
    yield _name("bomb", "GIF"), _encoded(Image.new("P", (8000, 5000)), "GIF")
    yield _name("bomb", "WEBP"), _encoded(Image.new("RGB", (8000, 5000)), "WEBP", method=0)
    yield _name("bomb", "JPEG"), _encoded(Image.new("RGB", (8000, 5000)), "JPEG")
    yield (
        _name("bomb", "JPEG", "progressive"),
        _encoded(Image.new("RGB", (8000, 5000)), "JPEG", progressive=True),
    )
    deflated = {"compression": "tiff_deflate", "tiffinfo": {278: 5000}}
    for mode in ("RGBA", "I", "F", "CMYK"):
        yield _name("bomb", "TIFF", mode), _encoded(Image.new(mode, (8000, 5000)), "TIFF", **deflated)


def _tiff(width: int, height: int, *, entries: int = 8, at: int = 8) -> bytes:
    """A little-endian TIFF of one strip that says a size and holds nothing."""
    fields = [
        (256, 4, width),
        (257, 4, height),
        (258, 3, 8),
        (259, 3, 1),
        (262, 3, 1),
        (273, 4, 8),
        (278, 4, height),
    ]
    body = b"".join(
        struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in [*fields, (279, 4, 100)]
    )
    return b"II*\0" + struct.pack("<I", at) + struct.pack("<H", entries) + body + struct.pack("<I", at)


def _chunks() -> Iterator[tuple[str, bytes]]:
    """Parts of a PNG that are missing, twice there, too long or wrong."""
    body = zlib.compress((b"\0" + bytes(3 * 32)) * 32)
    text = b"Comment\0\0"
    parts = {
        "ztxt-bomb": _chunk(b"zTXt", text + _zeros(200 * 2**20)),
        "itxt-bomb": _chunk(b"iTXt", b"Comment\0\1\0\0\0" + _zeros(200 * 2**20)),
        "text-of-8-mib": _chunk(b"tEXt", b"Comment\0" + b"a" * 8 * 2**20),
        "many-texts": _chunk(b"tEXt", b"a\0b") * 20_000,
        "icc-bomb": _chunk(b"iCCP", b"icc\0\0" + _zeros(200 * 2**20)),
        "icc-rubbish": _chunk(b"iCCP", b"icc\0\0" + zlib.compress(b"no profile" * 100)),
        "exif-rubbish": _chunk(b"eXIf", b"MM\0*" + b"\xff" * 1000),
        "two-headers": _chunk(b"IHDR", struct.pack(">IIBBBBB", 9000, 9000, 8, 2, 0, 0, 0)),
        "long-palette": _chunk(b"PLTE", bytes(3 * 400)),
        "odd-transparency": _chunk(b"tRNS", b"\1"),
        "frames": _chunk(b"acTL", struct.pack(">II", 2**31 - 1, 0)),
        "no-frames": _chunk(b"acTL", struct.pack(">II", 0, 0)),
        "wrong-sum": _chunk(b"tEXt", b"a\0b")[:-1] + b"\0",
        "vast-chunk": struct.pack(">I", 2**31 - 1) + b"tEXt" + b"a\0b",
        "negative-chunk": struct.pack(">I", 2**32 - 1) + b"tEXt" + b"a\0b",
    }
    for name, further in parts.items():
        yield _name("chunk", "PNG", name), _png(32, 32, body, further=further)
    for bits, color in ((3, 2), (8, 7), (16, 3), (8, 3), (255, 255)):
        yield _name("depth", "PNG", f"{bits}-{color}"), _png(32, 32, body, bits=bits, color=color)
    yield _name("chunk", "PNG", "no-pixels"), _png(32, 32, b"")
    yield _name("chunk", "PNG", "rubbish-pixels"), _png(32, 32, b"rubbish")
    yield _name("chunk", "PNG", "bad-filter"), _png(32, 32, zlib.compress((b"\7" + bytes(96)) * 32))
    yield _name("chunk", "PNG", "too-many-pixels"), _png(32, 32, _zeros(200 * 2**20))


def _extras() -> Iterator[tuple[str, bytes]]:
    """What is said beside the pixels: EXIF, profiles, comments, directories that lead in circles."""
    picture = Image.new("RGB", (64, 48), "teal")
    for value in (0, 9, 99, 65_535):
        exif = Image.Exif()
        exif[0x0112] = value
        yield _name("orientation", "JPEG", value), _encoded(picture, "JPEG", exif=exif.tobytes())
    rubbish = {
        "empty": b"Exif\0\0",
        "no-tiff": b"Exif\0\0" + b"\xff" * 100,
        "circle": b"Exif\0\0II*\0\x08\0\0\0\x01\0\x69\x87\x04\0\x01\0\0\0\x08\0\0\0\x08\0\0\0",
        "many": b"Exif\0\0II*\0\x08\0\0\0\xff\xff" + b"\x12\x01\x03\0\xff\xff\xff\xff\0\0\0\0" * 2000,
        "far": b"Exif\0\0MM\0*\xff\xff\xff\xff",
        "dates": b"Exif\0\0II*\0\x08\0\0\0\x01\0\x32\x01\x02\0\xff\xff\xff\x7f\x1a\0\0\0\0\0\0\0",
    }
    for name, exif_bytes in rubbish.items():
        yield _name("exif", "JPEG", name), _encoded(picture, "JPEG", exif=exif_bytes)
        yield _name("exif", "WEBP", name), _encoded(picture, "WEBP", exif=exif_bytes)
    for kind in ("JPEG", "PNG", "WEBP", "TIFF"):
        yield _name("profile", kind, "rubbish"), _encoded(picture, kind, icc_profile=b"no profile" * 50)
        yield _name("profile", kind, "of-4-mib"), _encoded(picture, kind, icc_profile=bytes(4 * 2**20))
    yield _name("comment", "JPEG"), _encoded(picture, "JPEG", comment=b"<script>alert(1)</script>" * 2000)
    yield _name("comment", "GIF"), _encoded(picture, "GIF", comment=b"a" * 2**20)
    yield _name("directory", "TIFF", "of-itself"), _tiff(64, 64)
    yield _name("directory", "TIFF", "vast"), _tiff(64, 64, entries=65_535)
    yield _name("directory", "TIFF", "far"), _tiff(64, 64, at=2**32 - 1)
    yield _name("directory", "TIFF", "none"), b"II*\0\0\0\0\0"
    yield _name("directory", "TIFF", "big"), b"II+\0\x08\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff" + bytes(64)


def _modes() -> Iterator[tuple[str, bytes]]:
    """Each mode that a format holds, with black, white and transparent pixels."""
    for mode in _MODES:
        image = Image.new(
            "I" if mode == "I;16" else "RGB" if mode in ("LAB", "HSV", "PA") else mode, (64, 48)
        )
        if mode == "LAB":
            # Converting leaves bytes that nothing sets, other ones at every run.
            image = Image.frombytes(mode, image.size, image.tobytes())
        else:
            image = image.convert("P").convert(mode) if mode == "PA" else image.convert(mode)
        for kind in accepted_formats():
            try:
                yield _name("mode", kind, mode.replace(";", "_")), _encoded(image, kind)
            except (OSError, ValueError, RuntimeError, KeyError):
                continue
    nan = Image.fromarray(np.full((48, 64), np.nan, np.float32))
    yield _name("mode", "TIFF", "nan"), _encoded(nan, "TIFF")
    infinite = Image.fromarray(np.full((48, 64), np.inf, np.float32))
    yield _name("mode", "TIFF", "infinite"), _encoded(infinite, "TIFF")
    deep = Image.fromarray(np.full((48, 64), -(2**31), np.int32))
    yield _name("mode", "TIFF", "negative"), _encoded(deep, "TIFF")


def _frames() -> Iterator[tuple[str, bytes]]:
    frames = [Image.new("RGB", (64, 48), (number % 256, 0, 99)) for number in range(200)]
    for kind in ("GIF", "PNG", "WEBP", "TIFF"):
        yield _name("frames", kind), _encoded(frames[0], kind, save_all=True, append_images=frames[1:])
    # The first frame stands in a corner of a vast screen.
    whole = _whole("GIF")
    yield _name("frames", "GIF", "corner"), whole[:6] + struct.pack("<HH", 6000, 6000) + whole[10:]
    at = whole.index(b",", 13)
    yield _name("frames", "GIF", "outside"), whole[: at + 1] + b"\xff\xff\xff\xff" + whole[at + 5 :]


def _others(rng: np.random.Generator) -> Iterator[tuple[str, bytes]]:
    """What is no image, or two things at once, under the name of one."""
    laughs = '<!ENTITY a "ha">' + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(zipfile.ZipInfo("page.html"), "<script>alert(1)</script>")
    others = {
        "empty": b"",
        "nul": bytes(1000),
        "text": b"no image\n" * 100,
        "json": b'{"image": [' + b"[" * 100_000,
        "html": b"<!doctype html><script>alert(document.cookie)</script>",
        "svg": b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)" width="1e9" height="1e9"/>',
        "laughs": f"<?xml version='1.0'?><!DOCTYPE svg [{laughs}]><svg>&a9;</svg>".encode(),
        "outside": b'<?xml version="1.0"?><!DOCTYPE s [<!ENTITY x SYSTEM "file:///etc/passwd">]><svg>&x;</svg>',
        "pdf": b"%PDF-1.7\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>",
        "eps": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 99999 99999\n(%pipe%id) (r) file",
        "postscript": b"%!PS\n{} loop",
        "psd": b"8BPS\0\1" + bytes(100),
        "ico": b"\0\0\1\0\1\0\0\0\0\0\1\0\x18\0\x28\0\0\0\x16\0\0\0" + bytes(60),
        "ppm": b"P6 30000 30000 255\n",
        "xbm": b"#define a_width 9999\n#define a_height 9999\nstatic char a_bits[] = {",
        "fits": b"SIMPLE  =                    T" + b" " * 2850,
        "dds": b"DDS |\0\0\0" + b"\xff" * 120,
        "jp2": b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(100),
        "elf": b"\x7fELF" + bytes(100),
        "zip": packed.getvalue(),
        "gzip": b"\x1f\x8b\x08" + bytes(100),
        "mp4": b"\0\0\0\x18ftypisom" + bytes(100),
        "numpy": b"\x93NUMPY\1\0" + bytes(100),
        "pickle": b"cos\nsystem\n(S'true'\ntR.",
    }
    for name, content in others.items():
        yield f"other-{name}.jpg", content
    for number in range(10):
        yield f"random-{number}.png", rng.bytes(10 ** (1 + number % 5))
    script = b"<script>alert(1)</script>"
    for kind in accepted_formats():
        yield _name("both-html", kind), _whole(kind) + script
        yield _name("both-zip", kind), _whole(kind) + packed.getvalue()
        yield _name("after-html", kind), script + _whole(kind)
    yield "both-script.gif", b"GIF89a/*" + _whole("GIF")[8:] + b"*/=1;alert(1)"
