"""How many bytes a gallery keeps of a photo: thumbnails of two sets of real photos, and of drawn pictures.

python -m benchmarks.speed.thumbnail_bytes --data DATA
"""

from __future__ import annotations

import argparse
import io
import statistics
import tempfile
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.common.record import save_result
from vicinal.indexer.jobs.preparation import make_thumbnail
from vicinal.models.demo_catalog import write_demo_catalog

_MOST = 500


def of_archive(path: Path) -> dict[str, float]:
    """Bytes of files and thumbnails of some photos of an archive."""
    with zipfile.ZipFile(path) as archive:
        names = sorted(name for name in archive.namelist() if name.lower().endswith((".jpg", ".png")))
        chosen = np.random.default_rng(0).permutation(len(names))[:_MOST]
        return of_files(archive.read(names[i]) for i in sorted(chosen))


def of_files(files: object) -> dict[str, float]:
    """Means over files."""
    read = list(files)  # type: ignore[call-overload]
    kept = [len(make_thumbnail(Image.open(io.BytesIO(one)).convert("RGB"))) for one in read]
    return {
        "files": len(read),
        "bytes of a file": round(statistics.mean(len(one) for one in read)),
        "bytes of a thumbnail": round(statistics.mean(kept)),
        "largest thumbnail": max(kept),
    }


def main() -> None:
    """Measure all, and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds grocery and dogfacenet")
    data = parser.parse_args().data
    sets = {name: of_archive(data / name / "test.zip") for name in ("grocery", "dogfacenet")}
    with tempfile.TemporaryDirectory() as folder:
        catalog = write_demo_catalog(
            Path(folder) / "c", n_products=20, n_absent=1, n_views=9, n_gallery_views=8
        )
        sets["drawn"] = of_files(path.read_bytes() for path in sorted(catalog.gallery.rglob("*.jpg")))
    means = [one["bytes of a thumbnail"] for one in sets.values()]
    for name, one in sets.items():
        print(name, one)
    result = {"sets": sets, "bytes": {"smallest mean": min(means), "largest mean": max(means)}}
    print(save_result("thumbnail_bytes", result))


if __name__ == "__main__":
    main()
