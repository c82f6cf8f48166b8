"""Capture: when and with what a photo was taken, as its EXIF says; it tells which photos belong together."""

from __future__ import annotations

import io
import re
import struct
from dataclasses import dataclass
from datetime import datetime

from PIL import ExifTags, Image

from vicinal.models.decoding import accepted_formats

_TIMES = (ExifTags.Base.DateTimeOriginal, ExifTags.Base.DateTimeDigitized)
_TIME = re.compile(r"(\d{4})[:-](\d\d)[:-](\d\d)[ T](\d\d):(\d\d):(\d\d)")
# What strangers write into a file has no length; a name of a camera has.
_LONGEST_NAME = 100


@dataclass(frozen=True)
class Capture:
    """What a file says of its capture.

    Attributes:
        taken_at: Time by the camera's own clock, without a zone; None where the file does not say.
        camera: Make, model and serial number; None where it says none of them.
    """

    taken_at: datetime | None = None
    camera: str | None = None


def read_capture(encoded: bytes) -> Capture:
    """Read the EXIF of an image; what is missing or damaged is None."""
    try:
        with Image.open(io.BytesIO(encoded), formats=accepted_formats()) as image:
            exif = image.getexif()
            inner = exif.get_ifd(ExifTags.IFD.Exif)
    except (OSError, SyntaxError, ValueError, KeyError, TypeError, RuntimeError, struct.error):
        # A picture can be good where its EXIF is not.
        return Capture()
    names = (exif.get(ExifTags.Base.Make), exif.get(ExifTags.Base.Model))
    texts = [_text(one) for one in (*names, inner.get(ExifTags.Base.BodySerialNumber))]
    camera = " ".join(text for text in texts if text)[:_LONGEST_NAME]
    times = (_time(inner.get(tag)) for tag in _TIMES)
    return Capture(next((one for one in times if one), None), camera or None)


def _text(value: object) -> str:
    return " ".join(value.replace("\0", " ").split()) if isinstance(value, str) else ""


def _time(value: object) -> datetime | None:
    found = _TIME.match(value) if isinstance(value, str) else None
    try:
        return datetime(*map(int, found.groups())) if found else None  # type: ignore[arg-type]
    except ValueError:
        # Cameras whose clock was never set write 0000:00:00.
        return None
