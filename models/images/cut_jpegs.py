"""Cut JPEGs: those that lack so little at their end that nobody sees it."""

from __future__ import annotations

import io
import struct

import numpy as np
from PIL import Image

_PASS, _END = b"\xff\xda", b"\xff\xd9"
# Share that may be lacking; the decoder makes this gray of it, of print too, and rubbish of the block before.
_MOST_LACKING = 0.05
_GRAYS = (127, 128)
_BLOCK_PIXELS = 16 * 16


def load_cut_jpeg(encoded: bytes, target_side: int | None) -> Image.Image | None:
    """Load a JPEG that lacks little at its end; None where what it lacks is to be seen."""
    image = Image.open(io.BytesIO(encoded + _END), formats=["JPEG"])
    n_pixels = image.width * image.height
    if target_side is not None:
        image.draft(None, (target_side, target_side))
    try:
        image.load()
    except (OSError, SyntaxError, ValueError, RuntimeError, struct.error):
        return None
    if "progressive" in image.info:
        return image if _lacks_last_bits(encoded) else None
    lacking = _gray_end(image) / (image.width * image.height) + _BLOCK_PIXELS / n_pixels
    return image if lacking <= _MOST_LACKING else None


def _lacks_last_bits(encoded: bytes) -> bool:
    """Tell if a progressive JPEG breaks off in a pass that brings the last bits of what is there already."""
    at = encoded.rfind(_PASS) + len(_PASS)
    # Its head: its length, how many colors, two bytes of each, and in the last three what it brings.
    bits = encoded[at + 3 + 2 * encoded[at + 2] + 2 :][:1] if len(encoded) > at + 2 else b""
    return bool(bits) and bits[0] >> 4 == 1 and bits[0] & 15 == 0


def _gray_end(image: Image.Image) -> int:
    """Pixels of the gray that follows where a JPEG breaks off, from the last one on."""
    n_gray = 0
    for top in range(image.height - 1, -1, -1):
        row = np.asarray(image.crop((0, top, image.width, top + 1))).reshape(image.width, -1)
        (others,) = np.nonzero(~np.isin(row, _GRAYS).all(axis=1))
        n_gray += image.width - 1 - (int(others[-1]) if len(others) else -1)
        if len(others) and others[-1] == image.width - 1:
            break
    return n_gray
