"""What answers to kept searches tell and give, with a simulated person, on many drawn galleries.

Galleries of some labels of an image set are drawn at random. Searched for are photos of these labels that
were taken on other occasions (of characters: by other hands; of drawn products: other views), and of labels
that the gallery lacks, three of them to seven. 1,000 searches are kept, drawn with replacement from all
photos. A person is asked about those that `next_draws` names, twice of one in ten and of what got a match and
was called absent, and errs in some of the answers, which all count: what is there is called absent or, as
often, taken for the best wrong candidate, and what is not is taken for the best candidate. What was said last
holds.

Of each run are kept: the intervals of FNIR and FPIR at the threshold that was in force while the answers were
given (the bundle's) and at the one calibrated from them for an FPIR of 5 %, beside the rates of all photos;
and the rates at the calibrated threshold when two known photos a label have become items, with the threshold
of the same searches, on the photos that none was kept of. `broken` is whether a promise made of the first
half of the answers was ever found broken while the other half came in.

Constants were chosen with `--part calibration`, which has no test class. Galleries of test classes are drawn
with `--part test`. `--added` chooses which known photos become items, and then judges by others.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.common.record import save_result
from vicinal.calibration import CalibrationError, Target, TrialLabels, Trials, choose_threshold
from vicinal.calibration.rates.answered_searches import SEARCH_RATES, AnsweredSearches, next_draws
from vicinal.calibration.rates.promise import check_promise_by_interval
from vicinal.models.bundle import ModelBundle, default_bundle_path
from vicinal.models.demo_catalog import make_catalog, render_view
from vicinal.models.embedder import Embedder
from vicinal.service.answering.promise_watch import _ERROR_RATE
from vicinal.service.search.scorer import similarity_score
from vicinal.training.datasets.layouts.protocol import ProtocolConfig

SETS = ("grocery", "dogfacenet", "omniglot", "products")
ANSWERS, ERRS = (60, 120, 240), (0.0, 0.05)
# Drawn at random; so, of half; those of the lowest scores; those that raise the scores of the others most.
ADDED = ("random", "half", "missed", "helpful")
TARGET = Target(rate="fpir", value=0.05)
_N_KEPT, _STRANGERS, _AGAIN = 1000, 0.3, 0.1
# Of the characters, whose drawings cost as much to embed as photos.
_MOST_LABELS = {"gallery": 120, "absent": 50}
_BATCH = 64
_N_PRODUCTS, _N_VIEWS, _N_ON_SHELF = 160, 8, 4


@dataclass(frozen=True)
class Photos:
    """Photos of one part: (n, d) embeddings, labels, and whether each may be an item."""

    embeddings: np.ndarray
    labels: np.ndarray
    is_item: np.ndarray


def read_photos(data: Path, name: str, part: str, embedder: Embedder, cache: Path) -> Photos:
    """The photos of a part, embedded once."""
    kept = cache / f"{name}-{part}.npz"
    if not kept.exists():
        labels, roles, rows = [], [], []
        images = _drawn(part) if name == "products" else _stored(data / name, part, embedder)
        for label, role, image in images:
            labels.append(label)
            roles.append(role)
            rows.append(embedder.prepare(image))
        batches = [rows[start : start + _BATCH] for start in range(0, len(rows), _BATCH)]
        embedded = np.concatenate([embedder.finish(embedder.infer(one)) for one in batches])
        np.savez(kept, embeddings=embedded, labels=np.array(labels), is_item=np.array(roles) == "gallery")
    with np.load(kept) as found:
        return Photos(found["embeddings"], found["labels"].astype(object), found["is_item"])


def _stored(root: Path, part: str, embedder: Embedder) -> Iterator[tuple]:
    chosen = None
    for role in ("gallery", "query", "absent"):
        config = ProtocolConfig(kind="protocol", root=root, split=part, roles=(role,))
        rows = config.rows()
        if root.name == "omniglot" and (chosen is None or role == "absent"):
            names = sorted({row.label for row in rows})
            chosen = set(np.random.default_rng(0).permutation(names)[: _MOST_LABELS[role]])
        if chosen is not None:
            rows = [row for row in rows if row.label in chosen]
        with config.open() as read:
            for row in rows:
                yield row.label, role, embedder.decode(read(row))


def _drawn(part: str) -> Iterator[tuple]:
    for product in make_catalog(1 if part == "test" else 2, _N_PRODUCTS):
        for view in range(_N_VIEWS):
            role = "gallery" if view < _N_ON_SHELF else "query"
            yield product.id, role, render_view(product, view)


@dataclass(frozen=True)
class Pool:
    """All photos that are searched for in one gallery, with what is found for each.

    Attributes:
        rows: (n,) positions of the photos.
        known: (n,) whether the gallery has the label.
        labels: (n,) labels.
        best: (n,) best score of an item of the label; -inf without one.
        top: (n,) best score.
        top_labels: (n,) label of the best item.
        wrong: (n,) best score of an item of another label.
    """

    rows: np.ndarray
    known: np.ndarray
    labels: np.ndarray
    best: np.ndarray
    top: np.ndarray
    top_labels: np.ndarray
    wrong: np.ndarray

    @classmethod
    def of(cls, photos: Photos, items: np.ndarray, rows: np.ndarray) -> Pool:
        """Search for some photos among others."""
        cosines = photos.embeddings[rows] @ photos.embeddings[items].T
        scores, own = similarity_score(cosines, 0.0).astype(np.float64), photos.labels[items]
        is_mate = own == photos.labels[rows][:, None]
        return cls(
            rows,
            np.isin(photos.labels[rows], photos.labels[items]),
            photos.labels[rows],
            np.where(is_mate, scores, -np.inf).max(axis=1),
            scores.max(axis=1),
            own[scores.argmax(axis=1)],
            np.where(is_mate, 0.0, scores).max(axis=1),
        )

    def take(self, rows: np.ndarray) -> Pool:
        """Some of them."""
        return Pool(**{name: one[rows] for name, one in vars(self).items()})

    def rates(self, threshold: float) -> dict[str, float]:
        """FNIR and FPIR over all of them."""
        return {
            "fnir": round(float((self.best[self.known] < threshold).mean()), 4),
            "fpir": round(float((self.top[~self.known] >= threshold).mean()), 4),
        }


def draw_gallery(photos: Photos, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the items of some labels, and of what is searched for: photos of them, and of others."""
    names = np.unique(photos.labels[photos.is_item])
    drawn = rng.permutation(names)
    known = drawn[: rng.integers(len(names) // 2, 3 * len(names) // 4 + 1)]
    is_known = np.isin(photos.labels, known)
    asked, strangers = (np.flatnonzero(one & ~photos.is_item) for one in (is_known, ~is_known))
    n = min(len(strangers), round(len(asked) * _STRANGERS / (1.0 - _STRANGERS)))
    strangers = rng.choice(strangers, n, replace=False)
    return np.flatnonzero(is_known & photos.is_item), np.concatenate([asked, strangers])


def say(rng: np.random.Generator, kept: Pool, place: int, errs: float) -> tuple[str | None, float]:
    """What a person says of a search: a label with its best score, or that the gallery lacks it."""
    if rng.random() >= errs:
        return (kept.labels[place], kept.best[place]) if kept.known[place] else (None, 0.0)
    if not kept.known[place]:
        return kept.top_labels[place], kept.top[place]
    return (None, 0.0) if rng.random() < 0.5 else (f"like {kept.labels[place]}", kept.wrong[place])


def ask(rng: np.random.Generator, kept: Pool, threshold: float, n: int, errs: float) -> AnsweredSearches:
    """Answers of a person to searches as they are drawn; one in ten is asked about twice."""
    order, is_drawn = rng.random(len(kept.rows)), np.zeros(len(kept.rows), bool)
    asked, said, n_given, n_again, n_disagreed = list[int](), list[tuple[str | None, float]](), 0, 0, 0
    waiting: list[int] = []
    while n_given < n:
        waiting = waiting or next_draws(kept.top, threshold, order, is_drawn, n=20).tolist()
        place = waiting.pop(0)
        is_drawn[place] = True
        first = say(rng, kept, place, errs)
        n_given, is_surprising = n_given + 1, first[0] is None and kept.top[place] >= threshold
        if n_given < n and (is_surprising or rng.random() < _AGAIN):
            again = say(rng, kept, place, errs)
            n_given += 1
            if first[0] is not None:
                n_again, n_disagreed = n_again + 1, n_disagreed + (again[0] != first[0])
            first = again
        asked.append(place)
        said.append(first)
    drawn = np.array(asked)
    names = [f"search {place}" if one is None else one for place, (one, _) in zip(drawn, said, strict=True)]
    known = np.array([one is not None for one, _ in said])
    return AnsweredSearches(
        top_scores=kept.top[drawn],
        mate_scores=np.array([score for _, score in said]),
        is_known=known,
        is_absent=~known,
        is_unsure=np.zeros(len(drawn), bool),
        codes=np.unique(names, return_inverse=True)[1],
        sample_scores=kept.top,
        threshold=threshold,
        n_again=n_again,
        n_disagreed=n_disagreed,
    )


def calibrated(found: AnsweredSearches) -> float:
    """The threshold for an FPIR of 5 %."""
    none, codes = np.empty(0), found.codes.astype(np.int64)
    known, absent = found.is_known, found.is_absent
    labels = TrialLabels(
        np.arange(codes.max() + 1).astype(object), *[codes[:0]] * 3, codes[known], codes[absent], codes[:0]
    )
    trials = Trials(
        mate_scores=none,
        non_mate_scores=none,
        best_mate_scores=found.mate_scores[known],
        best_scores_without_mate=found.top_scores[absent],
        best_mate_weights=found.weights[known],
        without_mate_weights=found.weights[absent],
        labels=labels,
    )
    return choose_threshold(trials, TARGET)


def ever_broken(found: AnsweredSearches, threshold: float) -> bool:
    """Whether a promise of the first half of the answers is found broken while the others come in."""
    n = len(found.codes)

    def first(m: int) -> AnsweredSearches:
        names = ("top_scores", "mate_scores", "is_known", "is_absent", "is_unsure", "codes")
        return replace(found, **{name: getattr(found, name)[:m] for name in names})

    half = first(n // 2)
    promised = {rate: half.interval(rate, threshold) for rate in SEARCH_RATES}
    for m in (n // 8 * part for part in (5, 6, 7, 8)):
        so_far = first(m)
        for rate, one in promised.items():
            shown = so_far.interval(rate, threshold)
            if one and shown:
                test = check_promise_by_interval(shown, one, n=m, error_rate=_ERROR_RATE / 2.0)
                if test.verdict == "broken":
                    return True
    return False


@dataclass(frozen=True)
class World:
    """A gallery: what is searched for, and the same with two known photos a label as items."""

    n_labels: int
    pool: Pool
    later: Pool

    @classmethod
    def draw(cls, photos: Photos, seed: int, added: str = "random") -> World:
        """A gallery of some labels; `added` says which two photos of each become items."""
        rng = np.random.default_rng(seed)
        items, rows = draw_gallery(photos, rng)
        pool = Pool.of(photos, items, rows)
        order = rng.permutation(np.flatnonzero(pool.known))
        by_label = [order[pool.labels[order] == label] for label in np.unique(pool.labels[order])]
        tried = np.empty(0, np.int64)
        if added != "random":
            # What is left by a choice is no fair sample: rates are of the half that nobody chose from.
            by_label = [places[: max(2, len(places) // 2)] for places in by_label]
            tried = np.concatenate(by_label)
        if added == "missed":
            by_label = [places[np.argsort(pool.best[places], kind="stable")] for places in by_label]
        if added == "helpful":
            by_label = [_helpful_first(photos, pool, places) for places in by_label]
        new = np.concatenate([places[:2] for places in by_label])
        left = np.setdiff1d(np.arange(len(rows)), np.concatenate([new, tried]))
        later = Pool.of(photos, np.concatenate([items, rows[new]]), rows[left])
        return cls(len(set(photos.labels[items])), pool, later)


def _helpful_first(photos: Photos, pool: Pool, places: np.ndarray) -> np.ndarray:
    """Two photos of a label, each the one that raises the best scores of the label's photos most."""
    vectors = photos.embeddings[pool.rows[places]]
    scores, best, chosen = similarity_score(vectors @ vectors.T, 0.0), pool.best[places], list[int]()
    for _ in range(min(2, len(places))):
        raised = np.maximum(scores, best).sum(axis=1)
        raised[chosen] = -np.inf
        chosen.append(int(raised.argmax()))
        best = np.maximum(best, scores[chosen[-1]])
    return places[chosen]


def run(world: World, start: float, n: int, errs: float, seed: int) -> dict:
    """One person in one gallery."""
    rng, pool = np.random.default_rng([seed, n, round(100 * errs)]), world.pool
    found = ask(rng, pool.take(rng.integers(0, len(pool.rows), _N_KEPT)), start, n, errs)
    row: dict = {"n_labels": world.n_labels}
    row |= {"known": int(found.is_known.sum()), "absent": int(found.is_absent.sum())}
    right = float(np.sort(pool.top[~pool.known])[::-1][int(0.05 * (~pool.known).sum())]) + 1e-9
    row["right"] = pool.rates(right)
    row["in_force"] = _stated(found, pool, start)
    try:
        threshold = calibrated(found)
    except CalibrationError:
        return row
    row["calibrated"] = _stated(found, pool, threshold)
    row["broken"] = ever_broken(found, threshold)
    later = ask(rng, world.later.take(rng.integers(0, len(world.later.rows), _N_KEPT)), start, n, errs)
    with suppress(CalibrationError):
        row["added"] = world.later.rates(calibrated(later))
    return row


def _stated(found: AnsweredSearches, pool: Pool, threshold: float) -> dict:
    truth, row = pool.rates(threshold), {}
    for rate in SEARCH_RATES:
        one = found.interval(rate, threshold)
        row[rate] = {"true": truth[rate]}
        if one is not None:
            ends = {"rate": one.rate, "low": one.low, "high": one.high}
            row[rate] |= {name: round(value, 4) for name, value in ends.items()}
    return row


def show(name: str, n: int, errs: float, rows: list[dict]) -> dict:
    """Print and give the summary of one setting."""
    summary: dict = {"set": name, "answers": n, "errs": errs, "runs": len(rows)}
    for where in ("in_force", "calibrated"):
        for rate in SEARCH_RATES:
            own = [row[where][rate] for row in rows if where in row and "low" in row[where][rate]]
            if own:
                low, high, true = (np.array([one[key] for one in own]) for key in ("low", "high", "true"))
                summary[f"{where}_{rate}"] = {
                    "held": round(float(((low <= true) & (true <= high)).mean()), 3),
                    "width": round(float((high - low).mean()), 3),
                    "true": round(float(true.mean()), 3),
                }
    made = [row for row in rows if "calibrated" in row]
    summary["calibrated"] = len(made)
    for key in ("right", "added"):
        for rate in SEARCH_RATES:
            own = [row[key][rate] for row in made if rate in row.get(key, {})]
            summary[f"{key}_{rate}"] = round(float(np.mean(own)), 3) if own else None
    summary["broken"] = round(float(np.mean([row["broken"] for row in made])), 3) if made else None
    print(summary, flush=True)
    return summary


def main() -> None:
    """Measure all sets, print the summaries, and save every row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--bundle", type=Path, default=default_bundle_path())
    parser.add_argument("--part", choices=("calibration", "test"), default="calibration")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--answers", nargs="+", type=int, default=ANSWERS)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--added", choices=ADDED, default="random", help="which known photos become items")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()))
    arguments = parser.parse_args()
    bundle = ModelBundle.open(arguments.bundle)
    embedder = Embedder(bundle, device="cpu", threads=1)
    refiner = bundle.manifest.refiner
    start = (refiner and refiner.starting_threshold("off", "off")) or 0.65
    chosen = {"part": arguments.part, "runs": arguments.runs, "bundle": bundle.name, "threshold": start}
    chosen["added"] = arguments.added
    suffix = "" if arguments.part == "test" else "_calibration"
    if arguments.added != "random":
        suffix += f"_{arguments.added}"
    worlds = {}
    for name in arguments.sets:
        photos = read_photos(arguments.data, name, arguments.part, embedder, arguments.cache)
        worlds[name] = [World.draw(photos, seed, arguments.added) for seed in range(arguments.runs)]
    rows, summaries = [], []
    for n in arguments.answers:
        for name, own_worlds in worlds.items():
            for errs in ERRS:
                own = [run(world, start, n, errs, seed) for seed, world in enumerate(own_worlds)]
                summaries.append(show(name, n, errs, own))
                rows += [{"set": name, "answers": n, "errs": errs, **row} for row in own]
                print(save_result(f"answered_use{suffix}", {**chosen, "summaries": summaries, "rows": rows}))


if __name__ == "__main__":
    main()
