"""How many wrong labels `vicinal fit` names, and how many of those that it names are wrong.

    python -m benchmarks.quality.doubtful_labels --data DATA

The labels of a share of the training photos are replaced by others at random, so that the wrong ones are
known. The default bundle has learned from the groceries with their right labels, and nothing of dogs.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from benchmarks.common.record import save_result
from vicinal.models.bundle import ModelBundle, default_bundle_path
from vicinal.models.embedder import Embedder
from vicinal.training.datasets import ImageListing
from vicinal.training.datasets.layouts.protocol import ProtocolConfig
from vicinal.training.evaluation.measurement import embed_files
from vicinal.training.fitting.doubtful_labels import find_doubtful

SETS = ("grocery", "dogfacenet")
SHARES = (0.0, 0.05, 0.1, 0.2)
SEEDS = (0, 1, 2)


def replaced(codes: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Codes of which a share is replaced by other ones at random."""
    rng, changed = np.random.default_rng(seed), codes.copy()
    for place in rng.permutation(len(codes))[: round(share * len(codes))]:
        changed[place] = (codes[place] + rng.integers(1, codes.max() + 1)) % (codes.max() + 1)
    return changed


def found(embeddings: np.ndarray, codes: np.ndarray, share: float, seed: int) -> dict[str, float]:
    """What is named among labels of which a share is wrong."""
    given = replaced(codes, share, seed)
    places, looks_like, _ = find_doubtful(embeddings, given)
    is_wrong = given != codes
    n_right = int(is_wrong[places].sum())
    return {
        "share": share,
        "seed": seed,
        "wrong": int(is_wrong.sum()),
        "named": len(places),
        "named and wrong": n_right,
        "with the right label beside": int((looks_like == codes[places])[is_wrong[places]].sum()),
    }


def main() -> None:
    """Measure both sets, and save one result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with one protocol folder a set")
    data, results = parser.parse_args().data, {}
    embedder = Embedder(ModelBundle.open(default_bundle_path()), device="cpu")
    for name in SETS:
        config = ProtocolConfig(kind="protocol", root=data / name, split="train", roles=("train",))
        listing = ImageListing(name, tuple(config.rows()), config.open)
        codes = np.unique(listing.labels, return_inverse=True)[1]
        rows = embed_files(embedder, listing)
        results[name] = [found(rows, codes, share, seed) for share in SHARES for seed in SEEDS]
        print(name, len(codes), *results[name], sep="\n", flush=True)
    print(save_result("doubtful_labels", {"sets": results}))


if __name__ == "__main__":
    main()
