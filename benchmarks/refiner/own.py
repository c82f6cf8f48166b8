"""A gallery's own refiner: how its numbers were chosen, and what `vicinal index --refine own` finds.

`choose` searches with many numbers on labels that are no test classes: the calibration parts of dogs and
characters, and draws of 20 labels of the groceries, whose official test half is another visit. `gates` trains
gates and a level on the labels of the same galleries instead, which takes minutes. `test`
indexes the galleries of the test classes as a user would, searches them for the protocol's queries with the
own refiner, without any, and with that of the bundle, and compares FNIR at FPIR 5 % on the same queries,
paired over labels. It also says what the labels cost of the index job. `promise` calibrates the groceries'
gallery by leaving items out, and tries the promise.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.common.record import save_result
from benchmarks.quality.another_day import Photos
from benchmarks.quality.protocol_data import extract_part
from vicinal.calibration.label_codes import label_codes
from vicinal.calibration.rates.paired_bootstrap import LabelDraws, Searches, mean_figure
from vicinal.indexer.jobs.refinement import refine_gallery
from vicinal.models.bundle import ModelBundle, default_bundle_path
from vicinal.models.embedder import Embedder
from vicinal.refine.context_refiner import Neighbors
from vicinal.refine.neighbor_features import neighborhood_radii
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.galleries.own_refiner import GalleryRefiner
from vicinal.service.local_gallery import LocalGallery
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.records.record import promised_range
from vicinal.service.operations import index
from vicinal.service.operations.place import Place, Progress
from vicinal.service.settings import Settings
from vicinal.training.datasets.layouts.protocol import ProtocolConfig
from vicinal.training.refiner.embedding_set import EmbeddingSet, nearest_items
from vicinal.training.refiner.own import Numbers, own_refiner
from vicinal.training.refiner.validation import Refine, refine_by

SETS = ("grocery", "dogfacenet", "omniglot")
_ROLES = ("gallery", "query", "absent")
_FPIR = 0.05
_BATCH = 64
_SCALES = (0.5, 1.0, 2.0, 4.0)
_GRID = [Numbers(*one) for one in itertools.product((4, 8, 16), (0.1, 0.2), _SCALES, _SCALES)]


class Searched:
    """Queries with their labels, those with a mate first, in the gallery of some items."""

    def __init__(self, labels: np.ndarray, roles: np.ndarray) -> None:
        self.gallery, known, absent = (np.flatnonzero(roles == role) for role in _ROLES)
        self.queries, self.n = np.concatenate([known, absent]), len(known)
        self.labels = labels

    def searches(self, best_mates: np.ndarray, best: np.ndarray) -> Searches:
        """Scores (q,) as they are compared; those of mates are of no account without one."""
        codes = np.asarray(label_codes(self.labels[self.queries])[1], np.int64)
        return Searches(best_mates[: self.n], codes[: self.n], best[self.n :], codes[self.n :])


def changes(lines: dict[str, tuple[Searches, np.ndarray]]) -> dict[str, dict]:
    """FNIR at FPIR 5 % and R@1 of each line beside the first, intervals of each alone."""
    first = next(iter(lines.values()))[0]
    draws = LabelDraws(first.mate_labels, first.other_labels, seed=0)
    found: dict[str, dict] = {}
    for name, (searches, hits) in lines.items():
        before, top = next(iter(lines.values()))
        pairs = {
            "fnir": [one.error_when_held("fpir", _FPIR) for one in (before, searches)],
            "hit_rate_1": [mean_figure(one, before.mate_labels) for one in (top, hits)],
        }
        found[name] = {figure: asdict(draws.changes(pair)[1]) for figure, pair in pairs.items()}
    return found


def choosing_sets(data: Path, embedder: Embedder, draws: int) -> Iterator[tuple[str, np.ndarray, Searched]]:
    """Embeddings and searches of labels that are no test classes."""
    for name in ("dogfacenet", "omniglot"):
        config = ProtocolConfig(kind="protocol", root=data / name, split="calibration", roles=_ROLES)
        rows = config.rows()
        with config.open() as read:
            parts = [
                embedder.embed([read(row) for row in rows[start : start + _BATCH]])
                for start in range(0, len(rows), _BATCH)
            ]
        labels, roles = (np.array([getattr(row, key) for row in rows], object) for key in ("label", "role"))
        yield name, np.concatenate(parts), Searched(labels, roles)
    photos = Photos(data / "grocery", embedder)
    for seed in range(draws):
        drawn = np.random.default_rng(seed).permutation(np.unique(photos.labels))
        is_known, is_absent = np.isin(photos.labels, drawn[:20]), np.isin(photos.labels, drawn[20:28])
        roles = np.full(len(photos.labels), "unused", object)
        roles[is_known] = np.where(photos.is_later[is_known], "query", "gallery")
        roles[is_absent & photos.is_later] = "absent"
        yield f"grocery {seed}", photos.embeddings, Searched(photos.labels, roles)


def choose(
    data: Path,
    bundle: ModelBundle,
    draws: int,
    tried: Callable[[ModelBundle, np.ndarray, Searched], list[dict]],
) -> list[dict]:
    """FNIR and R@1 of what is tried on all choosing sets."""
    rows = []
    for name, unit, searched in choosing_sets(data, Embedder(bundle, device="cpu", threads=1), draws):
        rows += [{"set": name, **row} for row in tried(bundle, unit, searched)]
        print(name, rows[-3:], flush=True)
    return rows


class Tried:
    """Searches of one set by what is refined, and by which refiner."""

    def __init__(self, unit: np.ndarray, searched: Searched) -> None:
        self.gallery, self.queries = unit[searched.gallery], unit[searched.queries]
        own, nothing = np.arange(len(self.gallery)), np.full(len(self.queries), -1)
        self.near, alike = nearest_items(self.gallery, self.gallery, 32, query_groups=own, item_groups=own)
        self.asked, _ = nearest_items(self.queries, self.gallery, 32, query_groups=nothing, item_groups=own)
        self.radii, self.searched = neighborhood_radii(alike), searched
        self.mates = searched.labels[searched.queries][:, None] == searched.labels[searched.gallery]

    def figures(self, items: np.ndarray, moved: np.ndarray) -> dict[str, float]:
        """FNIR at FPIR 5 % and R@1."""
        scores, searched = moved @ items.T, self.searched
        found = searched.searches(np.where(self.mates, scores, -1.0).max(axis=1), scores.max(axis=1))
        draws = LabelDraws(found.mate_labels, found.other_labels, seed=0)
        hits = np.take_along_axis(self.mates, scores.argmax(axis=1)[:, None], axis=1)[: searched.n]
        fnir = draws.measured([found.error_when_held("fpir", _FPIR)])[0]
        return {"fnir": round(float(fnir), 4), "hit_rate_1": round(float(hits.mean()), 4)}

    def rows(self, refine: Refine, k: int) -> list[dict]:
        """The figures of each choice of sides."""

        def of(ids: np.ndarray) -> Neighbors:
            places = np.maximum(ids[:, :k], 0)
            return Neighbors(self.gallery[places], ids[:, :k] >= 0, self.radii[places])

        items = refine(self.gallery, of(self.near), as_queries=False)
        moved = refine(self.queries, of(self.asked), as_queries=True)
        pairs = {"gallery": (items, self.queries), "query": (self.gallery, moved), "both": (items, moved)}
        return [{"sides": sides, **self.figures(*pair)} for sides, pair in pairs.items()]


def numbers_tried(bundle: ModelBundle, unit: np.ndarray, searched: Searched) -> list[dict]:
    """All numbers and sides on one set."""
    tried = Tried(unit, searched)
    rows = [{"sides": "off", **tried.figures(tried.gallery, tried.queries)}]
    for numbers in _GRID:
        found = tried.rows(refine_by(own_refiner(bundle, numbers)), numbers.n_neighbors)
        # The level is one of queries.
        rows += [
            {**row, **asdict(numbers)}
            for row in found
            if row["sides"] != "gallery" or numbers.level == _SCALES[0]
        ]
    return rows


def gates_trained(bundle: ModelBundle, unit: np.ndarray, searched: Searched) -> list[dict]:
    """Gates and a level that learned from the gallery's labels (torch), and seconds of a processor."""
    from vicinal.training.refiner.config import RefinerRecipe
    from vicinal.training.refiner.cross_fitting import cross_fit
    from vicinal.training.refiner.trainer import RefinerTrainer, refine_with

    del bundle
    tried = Tried(unit, searched)
    items = EmbeddingSet.of(tried.gallery, searched.labels[searched.gallery])
    settings = [
        "optimizer.steps=100",
        "validation.every=50",
        "validation.folds=4",
        "optimizer.warmup_steps=20",
    ]
    recipe, began = RefinerRecipe.load(None, settings=settings), time.process_time()
    trained = cross_fit(RefinerTrainer(recipe), items)
    seconds = round(time.process_time() - began, 1)
    verdict = {"verdict": trained.verdict.sides, "processor_seconds": seconds}
    found = tried.rows(refine_with(trained.network), recipe.refiner.n_neighbors)
    return [
        {"sides": "off", **tried.figures(tried.gallery, tried.queries)},
        *({**row, **verdict} for row in found),
    ]


def scored(
    matcher: Matcher, rows: np.ndarray, labels: Sequence[str], **options: str
) -> tuple[np.ndarray, ...]:
    """Best score of a mate, best score, and whether the first item is a mate, of each query."""
    found = []
    for start in range(0, len(rows), _BATCH):
        answers = matcher.search(embeddings=rows[start : start + _BATCH], limit=100, threshold=0.0, **options)
        for answer, label in zip(answers, labels[start : start + _BATCH], strict=True):
            mates = [one.score for one in answer.matches if one.label == label]
            first = answer.matches[0]
            found.append((max(mates, default=0.0), first.score, first.label == label))
    return tuple(np.array(one, np.float64) for one in zip(*found, strict=True))


def test(root: Path, folder: Path, bundle: Path) -> dict:
    """What one set's gallery of test classes gains, and what that costs."""
    part = extract_part(root, "test", folder / "photos")
    bundles = ServedBundles(Settings(data_dir=folder / "data", bundle=bundle))
    gallery = bundles.gallery("test", is_new=True)
    request = index.Request(source=str(part.gallery), refine="own")
    spent, choose_as_ever = [], GalleryRefiner.choose

    def timed(*arguments: Any) -> Any:
        began = time.process_time()
        chosen = choose_as_ever(*arguments)
        spent.append(time.process_time() - began)
        return chosen

    with patch.object(GalleryRefiner, "choose", timed):
        began = time.process_time()
        made = index.run(Place(bundles, gallery), request, Progress())
        whole = time.process_time() - began
    config = ProtocolConfig(kind="protocol", root=root, split="test", roles=_ROLES)
    rows = config.rows()
    labels, roles = (np.array([getattr(row, key) for row in rows], object) for key in ("label", "role"))
    searched = Searched(labels, roles)
    own = bundles.matcher(gallery)
    with config.open() as read:
        asked = np.concatenate(
            [
                own.embedder.embed([read(rows[i]) for i in searched.queries[start : start + _BATCH]])
                for start in range(0, len(searched.queries), _BATCH)
            ]
        )
    plain = bundles.without_own(gallery, bundles.resolve(gallery, gallery.snapshot().manifest))
    lines = {"none": (own, {"refine": "off", "rerank": "off"}), "own": (own, {"rerank": "off"})}
    if plain.refinement is not None:
        refine_gallery(gallery, plain.refinement)
        bare = Matcher(gallery, plain.embedder, plain.pipeline, refiner=plain.refiner)
        lines["bundle"] = (bare, {"rerank": "off"})
    wanted = labels[searched.queries].tolist()
    answers = {name: scored(matcher, asked, wanted, **options) for name, (matcher, options) in lines.items()}
    compared = {
        name: (searched.searches(mates, best), hits[: searched.n])
        for name, (mates, best, hits) in answers.items()
    }
    # The own refiner beside that of the bundle, too.
    beside = {name: compared[name] for name in ("bundle", "own") if name in compared}
    return {
        "n_items": made.n_items,
        "n_labels": made.n_labels,
        "seconds": made.seconds,
        "processor_seconds": {"whole": whole, "refiner": spent[0], "share": spent[0] / whole},
        "own_refiner": made.own_refiner,
        "n_known": searched.n,
        "n_absent": len(searched.queries) - searched.n,
        "over_none": changes(compared),
        "over_bundle": changes(beside)["own"],
    }


def promise(root: Path, folder: Path, bundle: Path) -> list[dict]:
    """What leave-one-out promises for FPIR 5 % with the own refiner and without any, and what comes of it."""
    part = extract_part(root, "test", folder / "photos")
    shop = LocalGallery("test", ServedBundles(Settings(data_dir=folder / "data", bundle=bundle)))
    config = ProtocolConfig(kind="protocol", root=root, split="test", roles=_ROLES)
    asked = [row for row in config.rows() if row.role != "gallery"]
    with config.open() as read:
        photos = shop.bundles.own.embedder.embed([read(row) for row in asked])
    found = []
    for refine, options in (("own", {}), ("bundle", {"refine": "off"})):
        shop.index(part.gallery, refine=refine)
        record = shop.calibrate("fpir=5%", try_rerank=False, **options)
        counted: dict[str, list[bool]] = {"fnir": [], "fpir": []}
        for start in range(0, len(photos), _BATCH):
            answers = shop.matcher.search(
                embeddings=photos[start : start + _BATCH],
                limit=100,
                threshold=record.threshold,
                rerank="off",
                **options,
            )
            for answer, row in zip(answers, asked[start : start + _BATCH], strict=True):
                labels = {one.label for one in answer.matches}
                if row.role == "query":
                    counted["fnir"].append(row.label not in labels)
                else:
                    counted["fpir"].append(bool(labels))
        rates = {rate: float(np.mean(events)) for rate, events in counted.items()}
        promised = {rate: promised_range(record, rate) for rate in rates}
        ends = {rate: [one.low, one.high] for rate, one in promised.items()}
        found.append({"refine": refine, "threshold": record.threshold, "shown": rates, "promised": ends})
    return found


def main() -> None:
    """Choose or test, print, and save the raw results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("mode", choices=("choose", "gates", "test", "promise"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--bundle", type=Path, default=default_bundle_path())
    parser.add_argument("--draws", type=int, default=8, help="draws of labels of the groceries")
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    arguments = parser.parse_args()
    if arguments.mode == "promise":
        with tempfile.TemporaryDirectory() as folder:
            rows = promise(arguments.data / "grocery", Path(folder), arguments.bundle)
        print(save_result("own_refiner_promise", {"rows": rows}), rows)
        return
    if arguments.mode != "test":
        tried, suffix = (numbers_tried, "choice") if arguments.mode == "choose" else (gates_trained, "gates")
        rows = choose(arguments.data, ModelBundle.open(arguments.bundle), arguments.draws, tried)
        print(save_result(f"own_refiner_{suffix}", {"rows": rows}))
        return
    found = {}
    for name in arguments.sets:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = test(arguments.data / name, Path(folder), arguments.bundle)
        print(name, found[name], flush=True)
    print(save_result("own_refiner", found))


if __name__ == "__main__":
    main()
