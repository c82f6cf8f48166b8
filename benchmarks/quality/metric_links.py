"""What do refinement and re-ranking add beside the gallery's own metric?

The metric (`calibration.lda`) is learned from the labels of a gallery and scores its labels. Here the
gallery, its queries, or both are refined first: the metric is then learned from the refined items, its
shrinking is chosen anew by `LabelFolds`, and the direction of a refined query is scored. Beside these stands
the best photo, as it is, with both sides refined, and re-ranked by contextual similarity with k the median
number of photos of a label and 1 or 2 more (at most the 32 neighbors that a gallery keeps), and the mean of
the metric's score and the re-ranked photo's.

Measured on the queries of another day: R@1, AUROC, and FNIR at an FPIR of exactly so much, with differences
to the metric, and to the best photo, in paired 95 % intervals over labels. What wins was said before: a
variant whose FNIR is surely lower than the metric's on one calibration part at least, and surely higher on
none. As a service does, labels are scored that have a photo among the 100 nearest. `--training` writes what
refiners are trained on: the training parts of the sets, and drawn products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from benchmarks.common.record import save_result
from benchmarks.quality.protocol_data import protocol_parser
from benchmarks.quality.protocol_embeddings import PartEmbeddings
from benchmarks.refiner.searches import Method, Refined, Search, chosen_sides, refined
from vicinal.calibration.arrays import FloatArray, Floats, Ints, Mask
from vicinal.calibration.lda import LabelMetric, blocks_of, label_sums
from vicinal.calibration.rates.paired_bootstrap import LabelDraws, Searches, mean_figure, paired_interval
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.models.similarity import normalize
from vicinal.refine.context_refiner import ContextRefiner, Neighbors
from vicinal.refine.reranking import contextual_scores, kth_similarities
from vicinal.service.measuring.label_folds import LabelFolds
from vicinal.service.search.item_groups import ItemGroups
from vicinal.service.search.label_scores import LabelScores
from vicinal.training.refiner.embedding_set import nearest_items
from vicinal.training.refiner.validation import Refine, refine_by

PHOTO, METRIC = "best photo", "metric"
_MOST_NEIGHBORS, _N_CANDIDATES, _N_RERANKED, _AT_ONCE = 32, 100, 300, 64


@dataclass(frozen=True)
class Items:
    """Labelled items of a gallery, as much of `ItemGroups` and its view as `LabelFolds` asks for."""

    embeddings: FloatArray
    codes: Ints
    names: tuple[str, ...]

    @property
    def view(self) -> Items:
        """Itself."""
        return self

    @property
    def n_positions(self) -> int:
        """Number of items."""
        return len(self.codes)

    def vectors(self, positions: Ints) -> FloatArray:
        """Embeddings of some items."""
        return self.embeddings[positions]

    def is_dead(self, positions: Ints) -> Mask:
        """None was removed."""
        return np.zeros(len(positions), bool)

    @cached_property
    def sums(self) -> tuple[Floats, Ints]:
        """Sums and numbers of the embeddings of each label."""
        blocks = blocks_of(np.arange(len(self.codes)), self.codes, self.vectors)
        return label_sums(blocks, len(self.names), self.embeddings.shape[1])

    def label_scores(self, metric: LabelMetric) -> LabelScores:
        """Scores of the labels by a metric."""
        return LabelScores(metric, cast("Any", self), self.codes, *self.sums)


@dataclass(frozen=True)
class Task:
    """The search of one part, with numbers of labels: those of the gallery first."""

    search: Search
    names: tuple[str, ...]
    codes: Ints  # (m,) of the items
    asked: Ints  # (n,) of the queries

    @classmethod
    def of(cls, part: PartEmbeddings) -> Task:
        """The search of a protocol's part."""
        roles = [part.of_role(role) for role in ("gallery", "query", "absent")]
        search = Search.of(*((one.embeddings, one.labels) for one in roles))
        names, codes = np.unique(search.gallery_labels.astype(str), return_inverse=True)
        others = np.unique(roles[2].labels.astype(str))
        number = {name: place for place, name in enumerate((*names, *others))}
        asked = np.array([number[str(one)] for one in search.query_labels])
        return cls(search, tuple(names), codes, asked)

    def nearest(self, queries: FloatArray, gallery: FloatArray, n: int) -> tuple[Ints, FloatArray]:
        """(B, n) nearest items of queries and their similarities."""
        own, nobody = np.arange(len(gallery)), np.full(len(queries), -1)
        return nearest_items(queries, gallery, min(n, len(gallery)), query_groups=nobody, item_groups=own)

    def by_photo(self, found: Ints, scores: Floats) -> Floats:
        """(n, C) score of each label's best photo among the candidates, -inf for labels without one."""
        best = np.full((len(found), len(self.names)), -np.inf)
        np.maximum.at(best, (np.arange(len(found))[:, None], self.codes[found]), scores)
        return best

    def reranked(self, k: int) -> Floats:
        """(n, C) score of each label's best photo, re-ranked."""
        gallery, queries = self.search.gallery, self.search.queries
        own = np.arange(len(gallery))
        kth = kth_similarities(nearest_items(gallery, gallery, k, query_groups=own, item_groups=own)[1], k)
        parts = []
        for start in range(0, len(queries), _AT_ONCE):
            found, near = self.nearest(queries[start : start + _AT_ONCE], gallery, _N_RERANKED)
            scores, _ = contextual_scores(near, gallery[found], kth[found], k=k, beta=0.1, eps=0.05)
            parts.append(self.by_photo(found, scores))
        return np.concatenate(parts)

    def by_metric(self, compared: Refined) -> tuple[Floats, float]:
        """(n, C) scores of the labels among the nearest by the metric of a gallery, and its shrinking."""
        gallery, queries = compared
        items = Items(gallery, self.codes, self.names)
        folds = LabelFolds(cast("ItemGroups", items))
        found, _ = self.nearest(queries, gallery, _N_CANDIDATES)
        scores = items.label_scores(folds.whole).of_candidates(self.codes[found], queries, None)
        return self.by_photo(found, scores), folds.shrinking


def as_method(refine: Refine, rows: FloatArray, near: Neighbors, as_queries: bool) -> FloatArray:
    """Refine as a validation does."""
    return refine(rows, near, as_queries=as_queries)


def variants(task: Task, refiners: dict[str, ContextRefiner]) -> Iterator[tuple[str, Floats, dict[str, Any]]]:
    """Name and (n, C) scores of the labels of each variant, and what was chosen for it."""
    plain = task.search.gallery, task.search.queries
    found, similarities = task.nearest(plain[1], plain[0], _N_CANDIDATES)
    yield PHOTO, task.by_photo(found, similarities.astype(np.float64)), {}
    metric, shrinking = task.by_metric(plain)
    yield METRIC, metric, {"shrinking": shrinking}
    usual = int(np.median(np.bincount(task.codes)))
    for more in (1, 2):
        k = min(usual + more, _MOST_NEIGHBORS)
        photo = task.reranked(k)
        yield f"best photo, re-ranked, k median + {more}", photo, {"k": k}
        yield f"mean of metric and re-ranked, k median + {more}", (metric + photo) / 2.0, {"k": k}
    for name, refiner in refiners.items():
        refine = partial(as_method, refine_by(refiner))
        both = refined(task.search, Method(refine, refiner.n_neighbors))
        found, similarities = task.nearest(both[1], both[0], _N_CANDIDATES)
        yield f"{name}, both, best photo", task.by_photo(found, similarities.astype(np.float64)), {}
        turned = both[0], normalize(both[1])
        for sides in ("gallery", "query", "both"):
            scores, shrinking = task.by_metric(chosen_sides(task.search, turned, sides))
            yield f"{name}, {sides}", scores, {"shrinking": shrinking}


def measure(task: Task, refiners: dict[str, ContextRefiner], fpir: float) -> dict[str, Any]:
    """Figures of all variants, and their differences to the metric and to the best photo."""
    n = task.search.n_known
    known, others = task.asked[:n], task.asked[n:]
    draws, chosen, figures = LabelDraws(known, others, 0), {}, []
    for name, scores, choice in variants(task, refiners):
        own = scores[np.arange(n), known]
        hits = (scores[:n].argmax(axis=1) == known).astype(np.float64)
        one = Searches(own, known, scores[n:].max(axis=1), others)
        figures += [one.error_when_held("fpir", fpir), mean_figure(hits, known), one.auroc]
        chosen[name] = choice
    names, kinds = list(chosen), ("fnir", "hit_rate_1", "auroc")
    values = draws.measured(figures).reshape(-1, 3)
    drawn = draws.drawn(figures).reshape(len(names), 3, -1)
    found: dict[str, Any] = {}
    for place, name in enumerate(names):
        found[name] = dict(chosen[name])
        for kind, figure in enumerate(kinds):
            found[name][figure] = {"value": round(float(values[place, kind]), 4)}
            for against in (METRIC, PHOTO):
                base = names.index(against)
                ends = paired_interval(drawn[base, kind], drawn[place, kind])
                change = (values[place, kind] - values[base, kind], *ends)
                found[name][figure][f"beside {against}"] = [round(float(end), 4) for end in change]
    return {
        "items": len(task.codes),
        "labels": len(task.names),
        "queries": len(task.asked),
        "variants": found,
    }


def winners(parts: dict[str, dict[str, Any]], against: str) -> list[str]:
    """Variants that are surely better on one calibration part at least, and surely worse on none, by FNIR."""
    decisive = [one["variants"] for name, one in parts.items() if name.endswith("calibration")]
    first = decisive[0] if decisive else ()
    ends = {name: [one[name]["fnir"][f"beside {against}"][1:] for one in decisive] for name in first}
    return [
        name
        for name, found in ends.items()
        if any(high < 0.0 for _, high in found) and not any(low > 0.0 for low, _ in found)
    ]


def main() -> None:
    """Measure the parts of the sets, and save what was found."""
    parser = protocol_parser(__doc__)
    parser.add_argument("--refiners", nargs="*", default=[], help="more refiners, as NAME=BUNDLE")
    parser.add_argument("--cache", type=Path, help="folder that keeps the embeddings")
    parser.add_argument("--training", type=Path, help="only write embeddings to train refiners on, here")
    parser.add_argument("--suffix", default="", help="added to the name of the raw result")
    options = parser.parse_args()
    embedder = Embedder(ModelBundle.open(options.bundle))
    if options.training:
        options.training.mkdir(parents=True, exist_ok=True)
        for name in (*options.sets, "drawn"):
            part = PartEmbeddings.of(options.data / name, "train", embedder, options.cache)
            kept = options.training / f"{name}.npz"
            np.savez(kept, embeddings=part.embeddings, labels=part.labels.astype(str))
        return
    paths = {"shipped": options.bundle} | dict(one.split("=", 1) for one in options.refiners)
    refiners = {name: ContextRefiner(ModelBundle.open(Path(path))) for name, path in paths.items()}
    parts = {}
    for name in options.sets:
        for split in options.parts:
            part = PartEmbeddings.of(options.data / name, split, embedder, options.cache)
            one = parts[f"{name}, {split}"] = measure(Task.of(part), refiners, options.fpir)
            print(f"{name}, {split}: {one['items']} items, {one['labels']} labels", flush=True)
            for variant, figures in one["variants"].items():
                print(f"  {variant}: {figures}", flush=True)
    wins = {against: winners(parts, against) for against in (METRIC, PHOTO)}
    trained = {name: refiner.manifest.training for name, refiner in refiners.items()}
    shown = {"fpir": options.fpir, "bundle": options.bundle.name, "refiners": trained}
    print(wins, save_result(f"metric_links{options.suffix}", {**shown, "wins": wins, "parts": parts}))


if __name__ == "__main__":
    main()
