"""Which k and beta of the contextual re-ranking to use: chosen on calibration classes only.

For every setting: the threshold for an FPIR of 5 % on the labelled queries of the calibration part, and
the FNIR and hit rate that it leaves. Test classes are not touched.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.common.record import save_result
from benchmarks.quality.protocol_data import extract_part
from vicinal.calibration import Target
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources import read_source
from vicinal.models.bundle import ModelBundle, default_bundle_path
from vicinal.models.embedder import Embedder
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.search.pipeline import Pipeline, Rerank

TARGET = Target(rate="fpir", value=0.05)
SETTINGS = [Rerank(method="off")] + [
    Rerank(k=k, beta=beta, eps=eps)
    for k in (4, 6, 8, 12, 16)
    for beta in (0.1, 0.3, 0.5, 0.7)
    for eps in (0.0, 0.05)
]


def measure_set(root: Path, embedder: Embedder, folder: Path) -> list[dict]:
    """Index a set's calibration part and calibrate every setting on it; one row each."""
    part = extract_part(root, "calibration", folder / "images")
    gallery = Gallery(folder / "gallery")
    index_items(gallery, read_source(part.gallery), embedder)
    items = read_source(part.queries)
    queries = LabelledQueries(
        np.concatenate(
            [embedder.embed([item.path for item in items[i : i + 256]]) for i in range(0, len(items), 256)]
        ),
        np.array([item.label for item in items], dtype=object),
    )
    rows = []
    for rerank in SETTINGS:
        pipeline = Pipeline(rerank=rerank)
        record = (
            Calibrator(gallery.snapshot(), pipeline, most_queries=len(items)).measure(queries, TARGET).record
        )
        rates = record.rates.model_dump() if record.rates else {}
        rows.append({"set": root.name, "pipeline": pipeline.key, "threshold": record.threshold, **rates})
    return rows


def main() -> None:
    """Measure the sets, print the settings by mean FNIR, and save every row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with one protocol folder a set")
    parser.add_argument("--sets", nargs="+", default=["grocery", "dogfacenet", "omniglot"])
    parser.add_argument("--bundle", type=Path, default=default_bundle_path())
    arguments = parser.parse_args()
    embedder = Embedder(ModelBundle.open(arguments.bundle), device="cpu")
    rows: list[dict] = []
    for name in arguments.sets:
        with tempfile.TemporaryDirectory() as folder:
            rows += measure_set(arguments.data / name, embedder, Path(folder))
    by_pipeline: dict[str, list[float]] = {}
    for row in rows:
        by_pipeline.setdefault(row["pipeline"], []).append(row["fnir"])
    for key, values in sorted(by_pipeline.items(), key=lambda pair: np.mean(pair[1])):
        shown = " ".join(f"{value:.3f}" for value in values)
        print(f"mean FNIR {np.mean(values):.3f} ({shown}) {key}")
    bundle = {"name": embedder.bundle.name, "fingerprint": embedder.bundle.fingerprint}
    print(save_result("rerank_settings", {"target": str(TARGET), "bundle": bundle, "rows": rows}))


if __name__ == "__main__":
    main()
