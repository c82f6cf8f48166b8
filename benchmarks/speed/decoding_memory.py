"""Memory that decoding takes: each mode and format at the limit, one beyond it, and a batch of 32.

    python -m benchmarks.speed.decoding_memory [--label before]

Each picture is embedded in a process of its own, which says its largest memory above what it had before.
With `--label` what an earlier state of the sources takes is written beside (its folder first in PYTHONPATH).
"""

from __future__ import annotations

import argparse
import io
import json
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable
from itertools import repeat
from pathlib import Path
from typing import Any

from PIL import Image

from benchmarks.common.record import RESULTS, save_result

SIDES = (8000, 5000)
N_BATCH = 32
_CHILD = """
import json, sys, time
from pathlib import Path
from PIL import Image
from vicinal.models import ModelBundle, Embedder
from vicinal.models.bundle import default_bundle_path
def state(name):
    lines = dict(one.split(":", 1) for one in Path("/proc/self/status").read_text().splitlines())
    return int(lines[name].split()[0]) / 1024
embedder = Embedder(ModelBundle.open(default_bundle_path()), device="cpu", threads=1)
encoded, n = Path(sys.argv[1]).read_bytes(), int(sys.argv[2])
embedder.embed_queries([Image.linear_gradient("L")], {})
Path("/proc/self/clear_refs").write_text("5")
before, started = state("VmRSS"), time.perf_counter()
try:
    embedder.embed_queries([encoded] * n, {})
    said = "embedded"
except Exception as error:
    said = type(error).__name__
spent = time.perf_counter() - started
print(json.dumps({"mib": round(state("VmHWM") - before), "seconds": round(spent, 2), "outcome": said}))
"""


def pictures() -> dict[str, Callable[[], bytes]]:
    """Encoded pictures by format and mode."""
    made: dict[str, Callable[[], bytes]] = {}
    for kind, modes in {
        "PNG": ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"),
        "TIFF": ("1", "L", "P", "RGB", "RGBA", "CMYK", "I;16", "I", "F"),
        "GIF": ("P",),
        "JPEG": ("L", "RGB", "CMYK"),
        "WEBP": ("RGB", "RGBA"),
        "HEIF": ("RGB",),
        "AVIF": ("RGB",),
    }.items():
        for mode in modes:
            made[f"{kind} {mode}"] = lambda kind=kind, mode=mode: encoded(kind, mode)  # type: ignore[misc]
    made["PNG RGB, 16 bits"] = lambda: deep_png(*SIDES)
    made["PNG RGB, interlaced"] = lambda: deep_png(*SIDES, interlaced=True)
    made["TIFF RGB, one deflated strip"] = lambda: encoded("TIFF", "RGB", tiffinfo={278: SIDES[1]})
    made["JPEG RGB, progressive"] = lambda: encoded("JPEG", "RGB", progressive=True)
    made["PNG RGB, 16 bits, 64 megapixels"] = lambda: deep_png(8000, 8000)
    return made


def encoded(kind: str, mode: str, **options: object) -> bytes:
    """A smooth picture of `SIDES`."""
    if kind in ("HEIF", "AVIF"):
        import pillow_heif

        pillow_heif.register_heif_opener()
    ramp = Image.linear_gradient("L").resize(SIDES)
    image = ramp.convert("I").convert("I;16") if mode == "I;16" else ramp.convert(mode)
    stream = io.BytesIO()
    # Quick ones, and those that stay below the limit on bytes.
    usual = {"AVIF": {"speed": 10}, "WEBP": {"method": 0}, "TIFF": {"compression": "tiff_deflate"}}
    image.save(stream, kind, **{**usual.get(kind, {}), **options})
    return stream.getvalue()


def deep_png(
    width: int, height: int, *, interlaced: bool = False, rows: Iterable[bytes] | None = None, level: int = 9
) -> bytes:
    """A PNG with 16 bits a channel; without rows it is black, which packs into little."""
    packer = zlib.compressobj(level)
    if rows is None:
        rows = repeat(bytes(6 * width), height if not interlaced else 15 * height // 8 + 8)
    body = b"".join(packer.compress(b"\0" + row) for row in rows) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, int(interlaced))
    chunks = [(b"IHDR", header), (b"IDAT", body), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )


def measured(path: Path, n: int = 1) -> dict[str, Any]:
    """What a process takes for embedding a picture n times in one call."""
    command = [sys.executable, "-W", "ignore", "-c", _CHILD, str(path), str(n)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        return {"outcome": f"ended with {answer.returncode}: {answer.stderr.strip()[-200:]}"}
    return {"n_bytes": path.stat().st_size, **json.loads(answer.stdout)}


def expected(encoded_bytes: bytes) -> int | None:
    """What the budget counts for a picture, in MiB; None where the sources have none."""
    try:
        from vicinal.models.decoding import bytes_to_decode
    except ImportError:
        return None
    with Image.open(io.BytesIO(encoded_bytes)) as image:
        return round(bytes_to_decode(image, 512) / 2**20)


def main() -> None:
    """Measure, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--label", default="now")
    parser.add_argument("--pictures", nargs="+", choices=pictures(), default=list(pictures()))
    parser.add_argument("--no-result", action="store_true", help="print only")
    arguments = parser.parse_args()
    Image.MAX_IMAGE_PIXELS = None
    rows: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "picture"
        for name in arguments.pictures:
            path.write_bytes(pictures()[name]())
            rows[name] = {**measured(path), "counted_mib": expected(path.read_bytes())}
            print(name, rows[name], flush=True)
            if name in ("PNG RGB, 16 bits", "PNG RGB, 16 bits, 64 megapixels", "PNG I;16"):
                rows[f"{name}, {N_BATCH} of them"] = measured(path, N_BATCH)
                print(N_BATCH, rows[f"{name}, {N_BATCH} of them"], flush=True)
    if arguments.no_result:
        return
    earlier = RESULTS / "decoding_memory.json"
    runs = json.loads(earlier.read_text(encoding="utf-8"))["runs"] if earlier.exists() else {}
    runs[arguments.label] = {"at": time.strftime("%Y-%m-%d"), "pixels": SIDES[0] * SIDES[1], "pictures": rows}
    save_result("decoding_memory", {"runs": runs})


if __name__ == "__main__":
    main()
