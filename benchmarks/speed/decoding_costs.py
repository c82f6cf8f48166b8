"""What decoding costs by what a file says of its colors and depth, as ratios to the plain file in one run.

    python -m benchmarks.speed.decoding_costs [--width 2000] [--repetitions 15]

One drawn picture in several files is decoded as an index job does it. All are timed in turns in one process;
ratios are medians over the turns. The test whether a picture is blank is compared with the plain JPEG: on a
picture with content, and on a blank one, of which every pixel has to be looked at.
"""

from __future__ import annotations

import argparse
import io
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageCms

from benchmarks.common.cost_meters import interleaved
from benchmarks.common.record import save_result
from benchmarks.speed.decoding_memory import deep_png
from vicinal.models.decoding import decode_image
from vicinal.models.images.pixels import is_blank

__all__: list[str] = []

# What the embedder asks for.
TARGET_SIDE = 512
# Files that say nothing of colors, with which those that do are compared.
PLAIN = ("JPEG", "PNG, gray", "PNG")
SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
# The three colors of Display P3 under the light of profiles; its curve is that of sRGB.
P3_COLORANTS = {
    b"rXYZ": (0.51512, 0.24120, -0.00105),
    b"gXYZ": (0.29198, 0.69225, 0.04189),
    b"bXYZ": (0.15710, 0.06657, 0.78407),
}


def display_p3() -> bytes:
    """The profile of sRGB with the colors of Display P3."""
    profile = bytearray(SRGB)
    for number in range(struct.unpack_from(">I", profile, 128)[0]):
        name, at, _ = struct.unpack_from(">4sII", profile, 132 + 12 * number)
        if name in P3_COLORANTS:
            struct.pack_into(">3i", profile, at + 8, *(round(one * 65536) for one in P3_COLORANTS[name]))
    return bytes(profile)


def drawn(width: int, height: int) -> npt.NDArray[np.uint16]:
    """(height, width, 3) soft shapes with a little noise, as cameras have them."""
    rng = np.random.default_rng(0)
    coarse = Image.fromarray(rng.integers(0, 256, (9, 12, 3), dtype=np.uint8))
    soft = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), np.float64) * 257
    return (soft + rng.normal(0, 400, soft.shape)).clip(0, 65535).astype(np.uint16)


def files(width: int) -> dict[str, bytes]:
    """The picture in files, by what they are."""
    deep = drawn(width, 3 * width // 4)
    image = Image.fromarray((deep >> 8).astype(np.uint8))
    gray = Image.fromarray(deep[..., 1])

    def saved(one: Image.Image, kind: str, **options: Any) -> bytes:
        stream = io.BytesIO()
        one.save(stream, kind, **options)
        return stream.getvalue()

    p3 = display_p3()
    return {
        "JPEG": saved(image, "JPEG", quality=90),
        "JPEG, sRGB": saved(image, "JPEG", quality=90, icc_profile=SRGB),
        "JPEG, Display P3": saved(image, "JPEG", quality=90, icc_profile=p3),
        "PNG": saved(image, "PNG", compress_level=1),
        "PNG, sRGB": saved(image, "PNG", compress_level=1, icc_profile=SRGB),
        "PNG, Display P3": saved(image, "PNG", compress_level=1, icc_profile=p3),
        "PNG, 16 bits": deep_png(*image.size, rows=(row.tobytes() for row in deep.astype(">u2")), level=1),
        "PNG, gray": saved(image.getchannel(1), "PNG", compress_level=1),
        "PNG, gray of 16 bits": saved(gray, "PNG", compress_level=1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--width", type=int, default=2000)
    parser.add_argument("--repetitions", type=int, default=15)
    options = parser.parse_args()
    encoded = files(options.width)
    parts: dict[str, Callable[[], object]] = {
        name: partial(decode_image, one, target_side=TARGET_SIDE) for name, one in encoded.items()
    }
    shown = decode_image(encoded["JPEG"], target_side=TARGET_SIDE)
    parts["blank test"] = partial(is_blank, shown)
    parts["blank test of a blank picture"] = partial(is_blank, Image.new("RGB", shown.size, "white"))
    times = interleaved(parts, torch.device("cpu"), repetitions=options.repetitions)
    over = {
        f"{name} over {plain}": times[name].over(times[plain])
        for name in parts
        for plain in [next((one for one in PLAIN if name.startswith(one)), "JPEG")]
        if name != plain
    }
    result = {
        "width": options.width,
        "target_side": TARGET_SIDE,
        "parts": {name: one.row() for name, one in times.items()},
        "comparisons": over,
        "ratios": {name: one["ratio"] for name, one in over.items()},
    }
    save_result("decoding_costs", result)
    for name, ratio in result["ratios"].items():
        print(f"{ratio:8.3f}  {name}")


if __name__ == "__main__":
    main()
