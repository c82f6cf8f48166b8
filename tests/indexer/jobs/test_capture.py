"""Capture: time and camera of a photo, as far as its EXIF says, whatever else it holds."""

from __future__ import annotations

import io
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import ExifTags, Image

from vicinal.indexer.jobs.preparation import Capture, read_capture
from vicinal.models.decoding import accepted_formats

ORIGINAL, DIGITIZED = ExifTags.Base.DateTimeOriginal, ExifTags.Base.DateTimeDigitized
SERIAL = ExifTags.Base.BodySerialNumber


def photo(inner: dict[int, object], outer: dict[int, object] | None = None, form: str = "JPEG") -> bytes:
    """A photo with EXIF."""
    exif = Image.Exif()
    for tag, value in (outer or {}).items():
        exif[tag] = value
    exif[ExifTags.IFD.Exif] = inner
    stream = io.BytesIO()
    Image.new("RGB", (16, 16), "red").save(stream, form, exif=exif)
    return stream.getvalue()


@pytest.mark.parametrize("form", [one for one in accepted_formats() if one not in ("GIF", "BMP", "TIFF")])
def test_time_and_camera_are_read(form: str) -> None:
    outer = {ExifTags.Base.Make: "Acme ", ExifTags.Base.Model: "One"}
    encoded = photo({ORIGINAL: "2026:11:02 14:03:22", SERIAL: "77"}, outer, form)
    assert read_capture(encoded) == Capture(datetime(2026, 11, 2, 14, 3, 22), "Acme One 77")


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow says of some damage that it reads on
@given(at=st.integers(0, 400), byte=st.integers(0, 255))
def test_damaged_exif_never_raises(at: int, byte: int) -> None:
    """A picture can be good where its EXIF is not: any byte may be wrong."""
    encoded = bytearray(photo({ORIGINAL: "2026:11:02 14:03:22"}, {ExifTags.Base.Make: "Acme"}))
    encoded[at % len(encoded)] = byte
    assert isinstance(read_capture(bytes(encoded)), Capture)
