"""What answers to kept searches tell and give, with a simulated person, on many drawn galleries.

Galleries of some labels of an image set are drawn at random. Searched for are photos of these labels that
were taken on other occasions (of characters: by other hands; of drawn products: other views), and of labels
that the gallery lacks, three of them to seven. 1,000 searches are kept, drawn with replacement from all
photos. A person is asked about those that `next_draws` names, twice of one in ten and of what got a match and
was called absent, and errs in some of the answers, which all count: what is there is called absent or, as
often, taken for the best wrong candidate, and what is not is taken for the best candidate. What was said last
holds.

Of each run are kept: the intervals of FNIR and FPIR at the threshold that was in force while the answers were
given (the bundle's) and at the one calibrated from them for an FPIR of 5 %, beside the rates of all photos.
`broken` is whether a promise made of the first half of the answers was ever found broken while the other half
came in.

`--rounds` simulates use: five times so many answers, then what is rightly told becomes items, what was missed
first, two a label with earlier ones, and a threshold is made of all answers so far. The first in force is the
one by leaving items out. Every photo is searched for as if it were no item itself, by the answers and by the
truth, which are the rates of all photos in the gallery of that round. Thresholds are chosen by these rules:

    now      the lowest at which the answers show the target
    stay     the one in force while the 80 % interval of its FPIR holds the target, as it is stated
    narrow   the same by the bootstrap alone, without the safety line
    shrink   answers, and the calibration without them as so many absent labels as it had

Constants and rules were chosen with `--part calibration`, which has no test class. Galleries of test classes
are drawn with `--part test`.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.common.record import save_result
from vicinal.calibration import CalibrationError, Target, Trials, choose_threshold
from vicinal.calibration.rates.answered_searches import SEARCH_RATES, AnsweredSearches, next_draws
from vicinal.calibration.rates.promise import check_promise_by_interval
from vicinal.calibration.targets import lowest_threshold, threshold_of_mean
from vicinal.models.bundle import ModelBundle, default_bundle_path
from vicinal.models.demo_catalog import make_catalog, render_view
from vicinal.models.embedder import Embedder
from vicinal.service.answering.promise_watch import _ERROR_RATE
from vicinal.service.measuring.evidence import ThresholdChoice
from vicinal.service.search.scorer import similarity_score
from vicinal.training.datasets.layouts.protocol import ProtocolConfig

SETS = ("grocery", "dogfacenet", "omniglot", "products")
ANSWERS, ERRS = (60, 120, 240), (0.0, 0.05)
TARGET = Target(rate="fpir", value=0.05)
_ENDS = ("true", "rate", "low", "high")
_N_KEPT, _STRANGERS, _AGAIN = 1000, 0.3, 0.1
# Of the characters, whose drawings cost as much to embed as photos.
_MOST_LABELS = {"gallery": 120, "absent": 50}
_BATCH = 64
_DRAWN_TOGETHER, _A_LABEL, _N_ROUNDS = 20, 2, 5
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
        less: (n,) best score of an item of the label without one that is drawn; 0 with fewer than two.
    """

    rows: np.ndarray
    known: np.ndarray
    labels: np.ndarray
    best: np.ndarray
    top: np.ndarray
    top_labels: np.ndarray
    wrong: np.ndarray
    less: np.ndarray

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
            without_one(np.where(is_mate, scores, -np.inf)),
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


def without_one(mates: np.ndarray) -> np.ndarray:
    """(n,) best of (n, m) scores of mates, -inf for others, without one of each row that is drawn."""
    drawn = np.where(np.isfinite(mates), np.random.default_rng(0).random(mates.shape), -1.0)
    left = mates.copy()
    left[np.arange(len(mates)), drawn.argmax(axis=1)] = -np.inf
    return np.maximum(left.max(axis=1), 0.0)


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


def say(rng: np.random.Generator, kept: Pool, place: int, errs: float) -> tuple[str | None, str]:
    """What a person says of a search, a label or that the gallery lacks it, and what that label scores as."""
    if rng.random() >= errs:
        return (kept.labels[place], "best") if kept.known[place] else (None, "")
    if not kept.known[place]:
        return kept.top_labels[place], "top"
    return (None, "") if rng.random() < 0.5 else (f"like {kept.labels[place]}", "wrong")


class Person:
    """A person who is asked about kept searches as they are drawn, about one in ten twice."""

    def __init__(self, rng: np.random.Generator, kept: np.ndarray, errs: float) -> None:
        self._rng, self.kept, self._errs = rng, kept, errs
        self._order, self._is_drawn = rng.random(len(kept)), np.zeros(len(kept), bool)
        self._waiting = list[int]()
        self.said: dict[int, tuple[str | None, str]] = {}
        self._n_again, self._n_disagreed = 0, 0

    def ask(self, kept: Pool, threshold: float, n: int) -> None:
        """Ask so many questions."""
        n_given = 0
        while n_given < n:
            if not self._waiting:
                draws = next_draws(kept.top, threshold, self._order, self._is_drawn, n=_DRAWN_TOGETHER)
                self._waiting = draws.tolist()
            place = self._waiting.pop(0)
            self._is_drawn[place] = True
            first = say(self._rng, kept, place, self._errs)
            n_given, is_surprising = n_given + 1, first[0] is None and kept.top[place] >= threshold
            if n_given < n and (is_surprising or self._rng.random() < _AGAIN):
                again = say(self._rng, kept, place, self._errs)
                n_given += 1
                if first[0] is not None:
                    self._n_again += 1
                    self._n_disagreed += again[0] != first[0]
                first = again
            self.said[place] = first

    def answers(self, kept: Pool, threshold: float, added: Sequence[int] = ()) -> AnsweredSearches:
        """All answers so far, as the gallery is now, where some photos have become items."""
        drawn = np.array([*self.said])
        names = [f"search {place}" if one is None else one for place, (one, _) in self.said.items()]
        scores = [getattr(kept, how)[place] if how else 0.0 for place, (_, how) in self.said.items()]
        known = np.array([one is not None for one, _ in self.said.values()])
        return AnsweredSearches(
            top_scores=kept.top[drawn],
            mate_scores=np.array(scores),
            is_known=known,
            is_absent=~known,
            is_unsure=np.zeros(len(drawn), bool),
            codes=np.unique(names, return_inverse=True)[1],
            sample_scores=kept.top,
            threshold=threshold,
            n_again=self._n_again,
            n_disagreed=self._n_disagreed,
            less_scores=np.where(known & np.isin(self.kept[drawn], added), kept.less[drawn], np.nan),
        )


def ask(rng: np.random.Generator, kept: Pool, threshold: float, n: int, errs: float) -> AnsweredSearches:
    """Answers of a person to searches as they are drawn."""
    person = Person(rng, kept.rows, errs)
    person.ask(kept, threshold, n)
    return person.answers(kept, threshold)


def calibrated(found: AnsweredSearches) -> float:
    """The threshold for an FPIR of 5 %."""
    return weighted_threshold(found.top_scores[found.is_absent], found.weights[found.is_absent])


def weighted_threshold(scores: np.ndarray, weights: np.ndarray) -> float:
    """The threshold for an FPIR of 5 % by (n,) best scores of strangers, which stand for several each."""
    none = np.empty(0)
    trials = Trials(
        mate_scores=none,
        non_mate_scores=none,
        best_mate_scores=none,
        best_scores_without_mate=scores,
        best_mate_weights=none,
        without_mate_weights=weights,
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
    """A gallery, and what is searched for in it.

    Attributes:
        own: (m,) labels and (m, m) scores of its items with each other.
        pool: What is found for (n,) photos.
        mates: (n, m) scores of their mates, -inf for other items.
        among: (n, n) scores of the photos with each other.
    """

    own: tuple[np.ndarray, np.ndarray]
    pool: Pool
    mates: np.ndarray
    among: np.ndarray

    @classmethod
    def draw(cls, photos: Photos, seed: int) -> World:
        """A gallery of some labels."""
        items, rows = draw_gallery(photos, np.random.default_rng(seed))
        own, among = (
            similarity_score(photos.embeddings[one] @ photos.embeddings[one].T, 0.0) for one in (items, rows)
        )
        np.fill_diagonal(among, -np.inf)
        scores = similarity_score(photos.embeddings[rows] @ photos.embeddings[items].T, 0.0)
        mates = np.where(photos.labels[items] == photos.labels[rows][:, None], scores, -np.inf)
        return cls((photos.labels[items], own), Pool.of(photos, items, rows), mates, among)

    @property
    def n_labels(self) -> int:
        """Labels of the gallery."""
        return len(set(self.own[0]))

    def grown(self, added: list[int]) -> Pool:
        """What is found where some photos have become items, each as if it were none itself."""
        if not added:
            return self.pool
        pool, scores = self.pool, self.among[:, added]
        is_mate = pool.labels[added] == pool.labels[:, None]
        best, other = scores.argmax(axis=1), np.where(is_mate, -np.inf, scores).max(axis=1)
        mates = np.where(is_mate, scores, -np.inf)
        return replace(
            pool,
            best=np.maximum(pool.best, mates.max(axis=1)),
            top=np.maximum(pool.top, scores.max(axis=1)),
            top_labels=np.where(scores.max(axis=1) > pool.top, pool.labels[added][best], pool.top_labels),
            wrong=np.maximum(pool.wrong, other),
            less=without_one(np.concatenate([self.mates, mates], axis=1)),
        )

    def left_out(self) -> tuple[np.ndarray, np.ndarray]:
        """(m,) best scores of each item with its label left out, and with the nearest label left out too."""
        labels, scores = self.own
        others = np.where(labels == labels[:, None], -np.inf, scores)
        nearest = labels[others.argmax(axis=1)]
        return others.max(axis=1), np.where(labels == nearest[:, None], -np.inf, others).max(axis=1)


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
    return row


def use(world: World, start: float, rule: str, n: int, errs: float, seed: int) -> list[dict]:
    """Rounds of one person in one gallery: answers, photos that become items, a threshold."""
    rng, rows, added = np.random.default_rng([seed, n, round(100 * errs)]), list[dict](), list[int]()
    kept = rng.integers(0, len(world.pool.rows), _N_KEPT)
    person, pool = Person(rng, kept, errs), world.pool
    before = world.left_out()
    strict, mean = lowest_threshold(before[0], TARGET.value) or 1.0, threshold_of_mean(before, TARGET)
    threshold = ThresholdChoice.of(strict, mean, start).threshold
    for number in range(_N_ROUNDS):
        shown = pool.take(kept)
        person.ask(shown, threshold, n)
        added += become_items(world, person, shown, added, threshold)
        pool = world.grown(added)
        found = person.answers(pool.take(kept), threshold, added)
        with suppress(CalibrationError):
            threshold = RULES[rule](found, threshold, before[0], world.n_labels)
        right = float(np.sort(pool.top[~pool.known])[::-1][int(0.05 * (~pool.known).sum())]) + 1e-9
        row = {"round": number + 1, "items": len(added), "threshold": round(threshold, 4)}
        row |= {"absent": int(found.is_absent.sum()), "right": pool.rates(right)}
        rows.append(row | _stated(found, pool, threshold))
    return rows


def become_items(world: World, person: Person, shown: Pool, added: list[int], threshold: float) -> list[int]:
    """Photos that become items: those rightly told, missed ones first, two a label with earlier ones."""
    n_of, new = Counter(world.pool.labels[added].tolist()), list[int]()
    told = [place for place, (_, how) in person.said.items() if how == "best"]
    is_found = (shown.top_labels == shown.labels) & (shown.top >= threshold)
    for place in sorted(told, key=lambda one: (is_found[one], shown.best[one])):
        label, photo = shown.labels[place], int(person.kept[place])
        if n_of[label] < _A_LABEL and photo not in (*added, *new):
            n_of[label] += 1
            new.append(photo)
    return new


def _as_now(found: AnsweredSearches, _threshold: float, _before: np.ndarray, _n: int) -> float:
    return calibrated(found)


def _stays(found: AnsweredSearches, threshold: float, _before: np.ndarray, _n: int) -> float:
    """Stay where the 80 % interval of FPIR holds the target."""
    new, one = calibrated(found), found.interval("fpir", threshold, 0.8)
    return threshold if one is not None and one.low <= TARGET.value <= one.high else new


def _shrinks(found: AnsweredSearches, _threshold: float, before: np.ndarray, n: int) -> float:
    """Count the calibration without answers as so many absent labels as it had."""
    absent = found.is_absent
    scores = np.concatenate([found.top_scores[absent], before])
    weights = found.weights[absent] / found.weights[absent].sum() * absent.sum()
    return weighted_threshold(scores, np.concatenate([weights, np.full(len(before), n / len(before))]))


def _stays_narrowly(found: AnsweredSearches, threshold: float, _before: np.ndarray, _n: int) -> float:
    """Stay where the 80 % interval of the bootstrap alone, without the safety line, holds the target."""
    new, drawn = calibrated(found), found._drawn[0]
    rates = (drawn @ found.events("fpir", threshold)) / np.maximum(drawn @ found.is_absent, 1e-300)
    low, high = np.quantile(rates, [0.1, 0.9])
    return threshold if low <= TARGET.value <= high else new


RULES = {"stay": _stays, "narrow": _stays_narrowly, "shrink": _shrinks, "now": _as_now}


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
    for rate in SEARCH_RATES:
        own = [row["right"][rate] for row in made]
        summary[f"right_{rate}"] = round(float(np.mean(own)), 3) if own else None
    summary["broken"] = round(float(np.mean([row["broken"] for row in made])), 3) if made else None
    print(summary, flush=True)
    return summary


def show_rounds(name: str, rule: str, errs: float, runs: list[list[dict]]) -> dict:
    """Print and give the summary of one way of use: of each round what holds, and what it errs by."""
    summary: dict = {"set": name, "rule": rule, "errs": errs, "runs": len(runs), "rounds": []}
    for rows in zip(*runs, strict=True):
        own: dict = {"items": round(float(np.mean([row["items"] for row in rows])), 1)}
        for rate in SEARCH_RATES:
            stated = [row[rate] for row in rows if "low" in row[rate]]
            low, high, true = (np.array([one[key] for one in stated]) for key in ("low", "high", "true"))
            own[rate] = {
                "true": round(float(true.mean()), 4),
                "held": round(float(((low <= true) & (true <= high)).mean()), 3),
                "width": round(float((high - low).mean()), 3),
            }
        off = [abs(row["fpir"]["true"] - TARGET.value) for row in rows]
        own |= {"off": round(float(np.mean(off)), 4), "most_off": round(float(np.quantile(off, 0.95)), 4)}
        own["right_fnir"] = round(float(np.mean([row["right"]["fnir"] for row in rows])), 4)
        summary["rounds"].append(own)
        print(name, rule, errs, own, flush=True)
    return summary


COLUMNS = ("items", "threshold", "absent", *(f"{rate} {end}" for rate in SEARCH_RATES for end in _ENDS))


def in_a_line(row: dict) -> str:
    """One round in the order of `COLUMNS`."""
    stated = [row[rate].get(end, "") for rate in SEARCH_RATES for end in _ENDS]
    return " ".join(str(one) for one in (row["items"], row["threshold"], row["absent"], *stated))


def main() -> None:
    """Measure all sets, print the summaries, and save every row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--bundle", type=Path, default=default_bundle_path())
    parser.add_argument("--part", choices=("calibration", "test"), default="calibration")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--answers", nargs="+", type=int, default=ANSWERS, help="in all, or in each round")
    parser.add_argument("--rounds", nargs="*", choices=RULES, help="use in rounds, with these rules")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()))
    arguments = parser.parse_args()
    bundle = ModelBundle.open(arguments.bundle)
    embedder = Embedder(bundle, device="cpu", threads=1)
    refiner = bundle.manifest.refiner
    start = (refiner and refiner.starting_threshold("off", "off")) or 0.65
    chosen: dict = {"part": arguments.part, "runs": arguments.runs, "bundle": bundle.name, "threshold": start}
    name = "answered_rounds" if arguments.rounds else "answered_use"
    name += "" if arguments.part == "test" else "_calibration"
    if arguments.rounds:
        chosen["columns"] = COLUMNS
    if len(arguments.sets) == 1:
        name += f"_{arguments.sets[0]}"
    worlds = {}
    for one in arguments.sets:
        photos = read_photos(arguments.data, one, arguments.part, embedder, arguments.cache)
        worlds[one] = [World.draw(photos, seed) for seed in range(arguments.runs)]
    rows, summaries = [], []
    for n, (one, own_worlds), errs in itertools.product(arguments.answers, worlds.items(), ERRS):
        setting = {"set": one, "answers": n, "errs": errs}
        if not arguments.rounds:
            own = [run(world, start, n, errs, seed) for seed, world in enumerate(own_worlds)]
            summaries.append(show(one, n, errs, own))
            rows += [{**setting, **row} for row in own]
        for rule in arguments.rounds or ():
            runs = [use(world, start, rule, n, errs, seed) for seed, world in enumerate(own_worlds)]
            summaries.append({**setting, **show_rounds(one, rule, errs, runs)})
            rows += [{**setting, "rule": rule, "rounds": [*map(in_a_line, rounds)]} for rounds in runs]
        print(save_result(name, {**chosen, "summaries": summaries, "rows": rows}))


if __name__ == "__main__":
    main()
