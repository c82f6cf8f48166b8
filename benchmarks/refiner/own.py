"""A gallery's own refiner: how its numbers were chosen, and what `vicinal index --refine own` finds.

`choose` searches with many numbers on labels that are no test classes: the calibration parts of dogs and
characters, and draws of 20 labels of the groceries, whose official test half is another visit. `gates` trains
gates and a level instead, on the gallery's own labels and on others of its image set, for drawn galleries
that are about as large as those of test classes; and it says what the gallery's labels would have said of
the numbers. That takes a quarter of an hour. `test`
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
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.common.record import save_result
from benchmarks.quality.another_day import Photos
from benchmarks.quality.protocol_data import extract_part
from vicinal.calibration.label_codes import label_codes
from vicinal.calibration.rates.paired_bootstrap import (
    Figure,
    LabelDraws,
    Searches,
    mean_figure,
    paired_interval,
)
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
from vicinal.training.datasets.files import LabelledFile
from vicinal.training.datasets.layouts.protocol import ProtocolConfig
from vicinal.training.refiner.embedding_set import EmbeddingSet, nearest_items
from vicinal.training.refiner.own import Numbers, choose_refiner, own_refiner
from vicinal.training.refiner.validation import Refine, refine_by

SETS = ("grocery", "dogfacenet", "omniglot")
_ROLES = ("gallery", "query", "absent")
_FPIR = 0.05
_BATCH = 64
_SCALES = (0.5, 1.0, 2.0, 4.0)
_TRAININGS = (("gallery", 1200), ("set", 400))
# Labels of a drawn gallery, and others that are searched for.
_DRAWN = {"grocery": (20, 8), "dogfacenet": (300, 108), "omniglot": (180, 66)}
_MOST_OF_PART = 3000
_GRID = [Numbers(*one) for one in itertools.product((4, 8, 16), (0.1, 0.2), _SCALES, _SCALES)]


class Searched:
    """Queries with their labels, those with a mate first, in the gallery of some items."""

    def __init__(self, labels: np.ndarray, roles: np.ndarray, days: np.ndarray | None = None) -> None:
        self.gallery, known, absent = (np.flatnonzero(roles == role) for role in _ROLES)
        self.queries, self.n = np.concatenate([known, absent]), len(known)
        self.labels, self.days = labels, days

    def others(self, unit: np.ndarray) -> EmbeddingSet:
        """Embeddings of the labels that play no part; a day's are a visit where days are known."""
        part = np.concatenate([self.gallery, self.queries])
        left = ~np.isin(self.labels, self.labels[part])
        return EmbeddingSet.of(
            unit[left], self.labels[left], visits=None if self.days is None else self.days[left]
        )

    def searches(self, best_mates: np.ndarray, best: np.ndarray) -> Searches:
        """Scores (q,) as they are compared; those of mates are of no account without one."""
        codes = np.asarray(label_codes(self.labels)[1], np.int64)[self.queries]
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


def embedded(config: ProtocolConfig, rows: Sequence[LabelledFile], embedder: Embedder) -> np.ndarray:
    """(n, d) embeddings of photos."""
    with config.open() as read:
        parts = [
            embedder.embed([read(row) for row in rows[start : start + _BATCH]])
            for start in range(0, len(rows), _BATCH)
        ]
    return np.concatenate(parts)


def choosing_sets(data: Path, embedder: Embedder, draws: int) -> Iterator[tuple[str, np.ndarray, Searched]]:
    """Embeddings and searches of labels that are no test classes: the protocol's, and drawn groceries."""
    for name in ("dogfacenet", "omniglot"):
        config = ProtocolConfig(kind="protocol", root=data / name, split="calibration", roles=_ROLES)
        rows = config.rows()
        labels, roles = (np.array([getattr(row, key) for row in rows], object) for key in ("label", "role"))
        yield name, embedded(config, rows, embedder), Searched(labels, roles)
    photos = Photos(data / "grocery", embedder)
    yield from drawn_galleries("grocery", photos.embeddings, photos.labels, photos.is_later, draws)


def drawn_galleries(
    name: str, unit: np.ndarray, labels: np.ndarray, is_later: np.ndarray | None, draws: int
) -> Iterator[tuple[str, np.ndarray, Searched]]:
    """Searches of drawn labels for their later photos, or for half of them where no day is known."""
    n_known, n_absent = _DRAWN[name]
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        drawn, later = rng.permutation(np.unique(labels)), is_later
        if later is None:
            order = np.lexsort([rng.random(len(labels)), labels.astype(str)])
            later = np.zeros(len(labels), bool)
            later[order[1::2]] = True
        is_known = np.isin(labels, drawn[:n_known])
        is_absent = np.isin(labels, drawn[n_known : n_known + n_absent])
        roles = np.full(len(labels), "unused", object)
        roles[is_known] = np.where(later[is_known], "query", "gallery")
        roles[is_absent & later] = "absent"
        days = None if is_later is None else is_later.astype(np.int64)
        yield f"{name} {seed}", unit, Searched(labels, roles, days)


def large_sets(
    data: Path, embedder: Embedder, draws: int, sets: Sequence[str]
) -> Iterator[tuple[str, np.ndarray, Searched]]:
    """Drawn galleries of all image sets, about as large as those of test classes."""
    parts = (("calibration", _ROLES), ("train", ("train",)))
    for name in sets:
        if name == "grocery":
            photos = Photos(data / name, embedder)
            unit, labels, is_later = photos.embeddings, photos.labels, photos.is_later
        else:
            configs = [
                ProtocolConfig(kind="protocol", root=data / name, split=split, roles=roles)
                for split, roles in parts
            ]
            listed = [config.rows()[:_MOST_OF_PART] for config in configs]
            units = [embedded(one, rows, embedder) for one, rows in zip(configs, listed, strict=True)]
            unit, is_later = np.concatenate(units), None
            labels = np.array([row.label for rows in listed for row in rows], object)
        yield from drawn_galleries(name, unit, labels, is_later, draws)


def choose(data: Path, bundle: ModelBundle, draws: int) -> list[dict]:
    """FNIR and R@1 of all numbers and sides on all choosing sets."""
    rows = []
    for name, unit, searched in choosing_sets(data, Embedder(bundle, device="cpu", threads=1), draws):
        rows += [{"set": name, **row} for row in numbers_tried(bundle, unit, searched)]
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

    def searches(self, items: np.ndarray, moved: np.ndarray) -> tuple[Searches, np.ndarray]:
        """Scores, and whether the first item is a mate of each query that has one."""
        scores = moved @ items.T
        found = self.searched.searches(
            np.where(self.mates, scores, -1.0).max(axis=1), scores.max(axis=1).astype(np.float64)
        )
        hits = np.take_along_axis(self.mates, scores.argmax(axis=1)[:, None], axis=1)
        return found, hits[: self.searched.n, 0].astype(np.float64)

    def figures(self, items: np.ndarray, moved: np.ndarray) -> dict[str, float]:
        """FNIR at FPIR 5 % and R@1."""
        found, hits = self.searches(items, moved)
        draws = LabelDraws(found.mate_labels, found.other_labels, seed=0)
        fnir = draws.measured([found.error_when_held("fpir", _FPIR)])[0]
        return {"fnir": round(float(fnir), 4), "hit_rate_1": round(float(hits.mean()), 4)}

    def pairs(self, refine: Refine, k: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Items and queries by what is refined."""

        def of(ids: np.ndarray) -> Neighbors:
            places = np.maximum(ids[:, :k], 0)
            return Neighbors(self.gallery[places], ids[:, :k] >= 0, self.radii[places])

        items = refine(self.gallery, of(self.near), as_queries=False)
        moved = refine(self.queries, of(self.asked), as_queries=True)
        return {"gallery": (items, self.queries), "query": (self.gallery, moved), "both": (items, moved)}


def numbers_tried(bundle: ModelBundle, unit: np.ndarray, searched: Searched) -> list[dict]:
    """All numbers and sides on one set."""
    tried = Tried(unit, searched)
    rows = [{"sides": "off", **tried.figures(tried.gallery, tried.queries)}]
    for numbers in _GRID:
        found = tried.pairs(refine_by(own_refiner(bundle, numbers)), numbers.n_neighbors)
        # The level is one of queries.
        rows += [
            {"sides": sides, **tried.figures(*pair), **asdict(numbers)}
            for sides, pair in found.items()
            if sides != "gallery" or numbers.level == _SCALES[0]
        ]
    return rows


def trained(items: EmbeddingSet, steps: int) -> Refine:
    """Gates and a level (torch) that start as the expansion with the numbers."""
    from vicinal.training.refiner.config import RefinerRecipe
    from vicinal.training.refiner.trainer import RefinerTrainer, refine_with

    numbers = Numbers()
    settings = {
        "refiner.n_neighbors": numbers.n_neighbors,
        "refiner.temperature": numbers.temperature,
        "refiner.expansion_weight": numbers.weight,
        "optimizer.steps": steps,
        "validation.every": steps,
    }
    recipe = RefinerRecipe.load(None, settings=[f"{key}={value}" for key, value in settings.items()])
    training = RefinerTrainer(recipe).begin(items)
    for _ in training.checkpoints():
        pass
    return refine_with(training.network)


def gates(data: Path, bundle: ModelBundle, draws: int, sets: Sequence[str]) -> list[dict]:
    """FNIR and R@1 with the numbers and with gates, beside searches without either; and what labels say."""
    embedder = Embedder(bundle, device="cpu", threads=1)
    # The first of each set before the second of any.
    galleries = sorted(large_sets(data, embedder, draws, sets), key=lambda one: one[0].split()[1])
    k, rows, found = Numbers().n_neighbors, list[dict](), dict[str, list[dict]]()
    for name, unit, searched in galleries:
        tried, images = Tried(unit, searched), name.split()[0]
        own = EmbeddingSet.of(tried.gallery, searched.labels[searched.gallery])
        sources = {"gallery": own, "set": searched.others(unit)}
        said = choose_refiner(bundle, own)
        rows.append({"set": name, "labels_say": said.sides if said.helps else "off", **said.over_none.flat()})
        lines = {("off", "off"): tried.searches(tried.gallery, tried.queries)}
        tries = {"numbers": refine_by(own_refiner(bundle))}
        # Of other groceries the bundle that ships has seen some.
        for source, steps in _TRAININGS:
            tries[f"{source}, {steps} steps"] = trained(sources[source], steps)
        for line, refine in tries.items():
            for sides, pair in tried.pairs(refine, k).items():
                lines[line, sides] = tried.searches(*pair)
        found.setdefault(images, []).append(lines)
        rows += [{"set": name, **row} for row in pooled([lines])]
        print(*rows[-len(lines) - 1 :], sep="\n", flush=True)
    return rows + [{"set": images, **row} for images, draws in found.items() for row in pooled(draws)]


def pooled(draws: list[dict]) -> list[dict]:
    """Figures of each line beside the first, means of galleries whose labels are drawn together."""
    known, absent = (
        np.concatenate([getattr(one["off", "off"][0], key) for one in draws])
        for key in ("mate_labels", "other_labels")
    )

    def mean(figures: list[Figure]) -> Figure:
        return lambda times: np.mean([figure(times) for figure in figures], axis=0)

    kinds = {
        "fnir": lambda searches, _: searches.error_when_held("fpir", _FPIR),
        "hit_rate_1": lambda searches, hits: mean_figure(hits, searches.mate_labels),
    }
    rows = [{"line": line, "sides": sides} for line, sides in draws[0]]
    drawn = LabelDraws(known, absent, seed=0)
    for kind, figure in kinds.items():
        figures = [mean([figure(*one[key]) for one in draws]) for key in draws[0]]
        values, changed = drawn.measured(figures), drawn.drawn(figures)
        for row, value, after in zip(rows, values, changed, strict=True):
            low, high = paired_interval(changed[0], after)
            row[kind] = {
                "value": float(value),
                "difference": float(value - values[0]),
                "low": low,
                "high": high,
            }
    return rows


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
    asked = embedded(config, [rows[i] for i in searched.queries], own.embedder)
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
        bundle = ModelBundle.open(arguments.bundle)
        if arguments.mode == "choose":
            name, rows = "choice", choose(arguments.data, bundle, arguments.draws)
        else:
            name, rows = "longer_gates", gates(arguments.data, bundle, arguments.draws, arguments.sets)
        if arguments.bundle != default_bundle_path():
            name += f"_{bundle.name}"
        print(save_result(f"own_refiner_{name}", {"rows": rows}))
        return
    found = {}
    for name in arguments.sets:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = test(arguments.data / name, Path(folder), arguments.bundle)
        print(name, found[name], flush=True)
    print(save_result("own_refiner", found))


if __name__ == "__main__":
    main()
