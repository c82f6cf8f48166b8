"""FPIR at ten times the gallery, predicted from a tenth of its labels and then measured.

For each image set: the labelled images of its test classes are searched for with their label taken out of the
gallery. The threshold is one that lets 20 % of them through. A tenth of the labels, drawn 100 times, makes a
small gallery; what its matches predict for the whole is held against what the whole shows.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.common.record import save_result
from benchmarks.quality.protocol_data import extract_part
from vicinal.calibration import fit_gallery_growth, independent_fpir
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources import read_source
from vicinal.indexer.views.view import GalleryView
from vicinal.models.bundle import ModelBundle, default_bundle_path
from vicinal.models.embedder import Embedder
from vicinal.models.progress import no_progress
from vicinal.service.measuring.measurement import Found, TrialScoring
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.search.pipeline import Pipeline, Rerank
from vicinal.service.search.scorer import Scorer

FPIR, SHARE, N_DRAWS = 0.2, 0.1, 100


def impostors_of(root: Path, folder: Path, embedder: Embedder) -> Found:
    """Candidates of each test image, its label taken out of the gallery."""
    part = extract_part(root, "test", folder / "images")
    gallery = Gallery(folder / "gallery")
    index_items(gallery, read_source(part.gallery), embedder, workers=1)
    snapshot = gallery.snapshot()
    queries = LabelledQueries.leave_one_out(snapshot).sample(1000, seed=0)
    scorer = Scorer(GalleryView.of(snapshot), Pipeline(rerank=Rerank(method="off")))
    return TrialScoring(snapshot, scorer, queries).measure(no_progress).without


def predict(impostors: Found, threshold: float, rng: np.random.Generator) -> dict[str, float]:
    """Both predictions for the whole gallery from some of its labels."""
    n = impostors.n_groups + 1
    kept = rng.choice(n, max(2, round(SHARE * n)), replace=False)
    scores = np.where(np.isin(impostors.groups, kept), impostors.scores, -np.inf)
    small = replace(impostors, scores=scores, n_groups=len(kept))
    growth = fit_gallery_growth(small.n_reached(threshold), len(kept))
    ratio = n / len(kept)
    return {
        "small": growth.fpir,
        "fitted": growth.fpir_at(ratio),
        "independent": independent_fpir(growth.fpir, ratio),
    }


def main() -> None:
    """Measure the sets, print means over the draws, and save every draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with one protocol folder a set")
    parser.add_argument("--sets", nargs="+", default=["dogfacenet", "omniglot"])
    arguments = parser.parse_args()
    embedder = Embedder(ModelBundle.open(default_bundle_path()), device="cpu", threads=1)
    found = {}
    for name in arguments.sets:
        with tempfile.TemporaryDirectory() as folder:
            impostors = impostors_of(arguments.data / name, Path(folder), embedder)
        best = impostors.scores.max(axis=1)
        threshold = float(np.quantile(best, 1.0 - FPIR, method="higher"))
        rng = np.random.default_rng(0)
        rows = [predict(impostors, threshold, rng) for _ in range(N_DRAWS)]
        found[name] = {
            "n_labels": impostors.n_groups + 1,
            "n_queries": len(best),
            "measured": float((best >= threshold).mean()),
            "rows": rows,
        }
        means = {key: round(float(np.mean([row[key] for row in rows])), 3) for key in rows[0]}
        print(name, {key: value for key, value in found[name].items() if key != "rows"}, means, flush=True)
    print(save_result("gallery_growth", {"share_of_labels": SHARE, "sets": found}))


if __name__ == "__main__":
    main()
