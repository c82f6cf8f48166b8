"""Contextual re-ranking by the number of photos a label has: which neighborhood fits, and whether any does.

Photos: the model that ships embeds the calibration and the test part of each image set; galleries are drawn
with so many photos a label, and searched without re-ranking and with neighborhoods of many sizes. Landmarks:
the published features of Oxford, whose 11 landmarks have 6 to 200 photos among 5,063, beside query
expansion. The thresholds of FNIR are those of the same part, so that settings are compared at
one FPIR. Test classes are only reported.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.common.record import RESULTS, save_result
from benchmarks.losses.report import replace_tables
from benchmarks.refiner.controls import alpha_query_expansion
from benchmarks.refiner.report import markdown_table
from benchmarks.refiner.searches import Embeddings, Search, figures, outcome, reranked_outcome, search_of
from recipes.revisited import trapezoidal_average_precision
from vicinal.models.bundle import ModelBundle, default_bundle_path
from vicinal.models.embedder import Embedder
from vicinal.models.similarity import normalize
from vicinal.refine.reranking import dense_contextual_scores
from vicinal.training.datasets.layouts.protocol import ProtocolConfig

__all__: list[str] = []

_SETS = ("grocery", "dogfacenet", "omniglot")
_CLASS_SIZES = (2, 3, 4, 8, 16)
_NEIGHBORHOODS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
_SHARES = (0.1, 0.3, 0.5)
_SHOWN_SHARE = 0.1
_DRAWS = 3
# Of the characters' classes, every how many-th is kept.
_KEPT_CLASSES = {"omniglot": 4}


@dataclass(frozen=True)
class _Part:
    """Embeddings of a part with labels and roles, all of them (n, ...)."""

    embeddings: Embeddings
    labels: npt.NDArray[Any]
    roles: npt.NDArray[Any]

    def with_items_per_label(self, size: int, seed: int) -> _Part | None:
        """Galleries of so many items a label; None where half of the labels have fewer."""
        rng = np.random.default_rng(seed)
        items = np.flatnonzero(self.roles == "gallery")
        shuffled = rng.permutation(items)
        order = shuffled[np.argsort(self.labels[shuffled], kind="stable")]
        _, starts, sizes = np.unique(self.labels[order], return_index=True, return_counts=True)
        if (sizes < size).mean() > 0.5:
            return None
        rank = np.arange(len(order)) - np.repeat(starts, sizes)
        kept = np.sort(np.concatenate([order[rank < size], np.flatnonzero(self.roles != "gallery")]))
        return _Part(self.embeddings[kept], self.labels[kept], self.roles[kept])


def _embedded(root: Path, split: str, embedder: Embedder) -> _Part:
    config = ProtocolConfig(kind="protocol", root=root, split=split, roles=("gallery", "query", "absent"))
    rows = config.rows()
    if every := _KEPT_CLASSES.get(root.name):
        kept = set(sorted({row.label for row in rows})[::every])
        rows = [row for row in rows if row.label in kept]
    with config.open() as read:
        found = [
            embedder.embed([read(row) for row in rows[start : start + 256]])
            for start in range(0, len(rows), 256)
        ]
    labels, roles = (np.array([getattr(row, name) for row in rows]) for name in ("label", "role"))
    return _Part(np.concatenate(found), labels, roles)


def _settings() -> Iterator[dict[str, float]]:
    for k in _NEIGHBORHOODS:
        for beta in _SHARES:
            yield {"k": k, "beta": beta}


def _measure(part: _Part, about: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for size in _CLASS_SIZES:
        drawn = [part.with_items_per_label(size, seed) for seed in range(_DRAWS)]
        searches: list[Search] = [search_of(one.embeddings, one) for one in drawn if one is not None]
        if not searches:
            continue
        shared = {**about, "items_per_label": size}
        plain = [(one.gallery, one.queries) for one in searches]
        base = [figures([outcome(one, both)]) for one, both in zip(searches, plain, strict=True)]
        yield {**shared, "rerank": None, **_mean(base)}
        for setting in _settings():
            found = [
                figures([reranked_outcome(one, both, k=int(setting["k"]), beta=setting["beta"])])
                for one, both in zip(searches, plain, strict=True)
            ]
            yield {**shared, "rerank": setting, **_mean(found)}


def _mean(found: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(float(np.mean([one[name] for one in found])), 4) for name in found[0]}


def _landmarks(folder: Path) -> Iterator[dict[str, Any]]:
    """Mean average precision of each method on the 55 queries, which are gallery images themselves."""
    raw = np.fromfile(folder / "oxford_features.fvecs", dtype="<i4")
    features = normalize(raw.reshape(-1, 1 + raw[0])[:, 1:].view("<f4"))
    row = {Path(name).stem: i for i, name in enumerate((folder / "names.txt").read_text().split())}
    truth = json.loads((folder / "gnd.json").read_text(encoding="utf-8"))
    queries = np.array([one["row"] for one in truth])
    judged = [
        ([row[name] for name in one["good"] + one["ok"]], [row[name] for name in one["junk"]])
        for one in truth
    ]

    def value(scores: npt.NDArray[np.floating]) -> float:
        """Of (55, n) scores."""
        found = []
        for own, (relevant, junk) in zip(scores, judged, strict=True):
            order = np.argsort(-own, kind="stable")
            ranked = order[~np.isin(order, junk)]
            found.append(trapezoidal_average_precision(np.flatnonzero(np.isin(ranked, relevant))))
        return round(float(np.mean(found)), 4)

    similarities = features @ features.T
    np.fill_diagonal(similarities, 1.0)
    yield {"method": "cosine", "mean_average_precision": value(similarities[queries])}
    for setting in _settings():
        scores = dense_contextual_scores(similarities, int(setting["k"]), setting["beta"], 0.05)
        yield {"method": "contextual", **setting, "mean_average_precision": value(scores[queries])}
    order = np.argsort(-similarities, axis=1, kind="stable")
    for k in (5, 10, 20):
        for alpha in (1.0, 3.0):
            near = order[:, 1 : k + 1]
            asked = alpha_query_expansion(features[queries], features[near[queries]], alpha=alpha)
            items = alpha_query_expansion(features, features[near], alpha=alpha)
            for sides, rows in (("query", features), ("both", items)):
                yield {
                    "method": f"alpha-QE, {sides}",
                    "k": k,
                    "alpha": alpha,
                    "mean_average_precision": value(asked @ rows.T),
                }


def _report() -> None:
    """Tables of the page: what each neighborhood changes at weight .1, by photos a label."""
    stored = json.loads((RESULTS / "rerank_class_size.json").read_text(encoding="utf-8"))
    galleries: dict[tuple[str, str, int], dict[int | None, dict[str, Any]]] = {}
    for row in stored["rows"]:
        setting = row["rerank"]
        if setting is None or setting["beta"] == _SHOWN_SHARE:
            own = galleries.setdefault((row["set"], row["split"], row["items_per_label"]), {})
            own[None if setting is None else setting["k"]] = row
    lines = []
    for (images, split, size), own in galleries.items():
        base = own[None]
        changes = {
            k: (one["map_at_r"] - base["map_at_r"], one["fnir_at_fpir_5"] - base["fnir_at_fpir_5"])
            for k, one in own.items()
            if k is not None
        }
        best = max(value for value, _ in changes.values())
        cells = [
            f"**{value:+.3f}** / {missed:+.3f}" if value == best else f"{value:+.3f} / {missed:+.3f}"
            for value, missed in changes.values()
        ]
        plain = f"{base['map_at_r']:.3f} / {base['fnir_at_fpir_5']:.3f}"
        lines.append([images, split, str(size), plain, *cells])
    head = ["set", "classes", "photos a label", "not re-ranked", *(f"k {k}" for k in _NEIGHBORHOODS)]
    landmarks = [
        [
            one["method"],
            ", ".join(f"{name} {one[name]}" for name in ("k", "beta", "alpha") if name in one),
            f"{one['mean_average_precision']:.3f}",
        ]
        for one in stored["landmarks"]
        if one.get("beta", _SHOWN_SHARE) == _SHOWN_SHARE
    ]
    made = {
        "reranking-photos": markdown_table(head, lines),
        "reranking-landmarks": markdown_table(["method", "setting", "mAP"], landmarks),
    }
    replace_tables(Path(__file__).parents[2] / "docs" / "studies" / "reranking.md", made)


def main() -> None:
    """Measure everything and save every row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--bundle", type=Path, default=default_bundle_path())
    parser.add_argument(
        "--report", action="store_true", help="write the tables of the page and measure nothing"
    )
    given = parser.parse_args()
    if given.report:
        _report()
        return
    landmarks = list(_landmarks(given.data / "features" / "oxford5k-lopq"))
    embedder = Embedder(ModelBundle.open(given.bundle), device="cpu")
    rows: list[dict[str, Any]] = []
    for images in _SETS:
        for split in ("calibration", "test"):
            part = _embedded(given.data / images, split, embedder)
            rows += _measure(part, {"set": images, "split": split})
            print(images, split, len(part.labels), flush=True)
    bundle = {"name": embedder.bundle.name, "fingerprint": embedder.bundle.fingerprint}
    result = {"bundle": bundle, "eps": 0.05, "draws": _DRAWS, "rows": rows, "landmarks": landmarks}
    print(save_result("rerank_class_size", result))


if __name__ == "__main__":
    main()
