"""Sampling floor of OPIS: what it would be, on the same pairs, if all classes were equal.

A class with few images has few positive pairs, so its sensitivity psi_i is known only roughly, and OPIS,
a variance over classes, contains that noise. It falls with more images a class whatever the embedding does.
The floor is the mean OPIS of a world in which nothing but this noise is left:

- Every class has the same sensitivity F(t), the mean of the measured psi_i(t), and the pairs that it really
  has.
- Pairs share images: an image far from its class loses all of its pairs at once. By Hoeffding (1948), where
  all n_i images of a class form pairs,

      Var psi_i = (2 zeta_2 + 4 (n_i - 2) zeta_1) / (n_i (n_i - 1))

  with zeta_2 the variance of one pair's acceptance and zeta_1 the covariance of two pairs that share an
  image. Measured within classes, two pairs that share an image also share their class; two pairs of four
  images share the class alone. The difference of the two mean products is zeta_1, free of what
  distinguishes the classes. The variance that the classes' differences took up is given back in proportion:
  zeta_1 grows by F (1 - F) / (F (1 - F) - the variance between classes).
- A pair is accepted at t when sqrt(rho) (u_a + u_b) + sqrt(1 - 2 rho) e_ab <= Phi^-1(F(t)), all variables
  standard normal. This has the sensitivity F(t) at every threshold, and rho is set so that the covariance
  of pairs that share an image, averaged over the thresholds, is the one measured.
- The specificity of a class is the mean of its images' specificities. The images, each with its
  specificities at all thresholds, are dealt out to the classes at random.

What this takes for granted: images are drawn independently of each other within a class (bursts of one photo
session are not, and make the true floor higher); an image's share in its pairs is additive on the
normal scale; sensitivity and specificity of an image do not go together. A class whose neighbors are closer
than those of other classes counts as different, not as noise. With two images in every class nothing can be
told apart: one pair is accepted or not, and the floor is the measured OPIS. Classes of two or three images
among larger ones make the floor high and the spread wide.

On the pairs of a calibration the model is the same; these are the pairs of queries with items, in one
direction or in both, some left out by groups or by a sample. A pair that stands in both directions is one
pair whose acceptance is the mean of the two; what distinguishes its directions is not drawn, which makes the
floor a little higher than it is where scores are asymmetric. Specificities are those of queries; an item's
part in the specificity of its class is dealt with them. Both are exact for distances in leave-one-out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from vicinal.calibration.arrays import Codes, Floats, Ints
from vicinal.calibration.consistency.image_rates import ImageRates, measure_images
from vicinal.calibration.consistency.opis import (
    ClassUtilities,
    Opis,
    accepted_trials,
    epsilon_opis,
    opis_of,
    utility,
)
from vicinal.calibration.errors import CalibrationError
from vicinal.calibration.trials import Trials

_CORRELATIONS = np.linspace(0.0, 0.5, 501)[:-1]
# The part of an acceptance's variance that can be ascribed to differences of the classes.
_MOST_BETWEEN = 0.95
# A larger class is drawn with so many images: beyond, Var psi falls as 1 / n_i to good accuracy.
_MOST_IMAGES = 300
# Numbers that are counted in a table rather than sorted: it has at most so many cells for each.
_SPARSE = 4
# Drawn pairs at a time.
_BLOCK = 2**16
# Drawn values are looked up in steps of a thousandth up to eight, beyond which hardly any lies.
_FINE, _WIDEST = 1000, 8


@dataclass(frozen=True)
class OpisFloor:
    """OPIS beside what equal classes would show on the same pairs."""

    measured: Opis  # OPIS as it is
    opis_draws: Floats  # (B,) OPIS of the simulated worlds of equal classes
    epsilon_opis_draws: Floats  # (B,) epsilon-OPIS of the same
    # rho, the share of an image in the normal score of each of its pairs, in [0, 0.5].
    image_correlation: float

    @property
    def opis(self) -> float:
        """Mean OPIS of equal classes."""
        return float(self.opis_draws.mean())

    @property
    def opis_spread(self) -> float:
        """Standard deviation of the OPIS of equal classes."""
        return float(self.opis_draws.std(ddof=1))

    @property
    def epsilon_opis(self) -> float:
        """Mean epsilon-OPIS of equal classes."""
        return float(self.epsilon_opis_draws.mean())

    @property
    def epsilon_opis_spread(self) -> float:
        """Standard deviation of the epsilon-OPIS of equal classes."""
        return float(self.epsilon_opis_draws.std(ddof=1))


@dataclass(frozen=True)
class PositivePairs:
    """Unordered positive pairs of T classes."""

    images: Ints  # (m, 2) numbers of both images, from 0 on without gaps
    rows: Ints  # (m,) class of each pair
    strict: Ints  # (m,) first of the N thresholds, from the strictest on, that a pair reaches; N for none
    loose: Ints  # (m,) the same of its other direction, where scores have two: the looser one
    weights: Floats  # (m,) weight in the sensitivity of its class
    shrinkage: Floats  # (T,) factor on what a drawn class deviates: below 1 where its pairs stand for more


def opis_floor(
    embeddings: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    n_thresholds: int = 100,
    epsilon: float = 0.1,
    n_repetitions: int = 50,
    seed: int = 0,
) -> OpisFloor:
    """Measure OPIS and epsilon-OPIS, and simulate them for equal classes of the same sizes.

    A figure is comparable to another only on identical pairs, and so is its floor. See `opis.opis` for the
    arguments; at least two worlds are simulated.
    """
    rates = measure_images(embeddings, labels, (0.01, 0.1), n_thresholds)
    n_negative = (len(rates.classes) - rates.sizes[rates.classes])[:, None]
    return simulate_floor(
        opis_of(rates, epsilon),
        _all_pairs(rates),
        1.0 - rates.negative / n_negative,
        rates.sizes[rates.kept],
        epsilon=epsilon,
        n_repetitions=n_repetitions,
        seed=seed,
    )


def simulate_floor(
    measured: Opis,
    pairs: PositivePairs,
    specificities: Floats,
    sizes: Ints,
    *,
    epsilon: float,
    n_repetitions: int,
    seed: int,
) -> OpisFloor:
    """Draw worlds of equal classes of (T,) sizes on given pairs, with (n, N) specificities of all images."""
    if n_repetitions < 2:
        raise CalibrationError(f"n_repetitions is {n_repetitions}, a spread needs at least 2")
    sensitivity = measured.sensitivity.mean(axis=0)
    cuts = _normal_quantiles(sensitivity)
    correlation = _image_correlation(_shared_covariance(pairs, sensitivity), cuts)
    rng = np.random.default_rng(seed)
    draws = np.empty((n_repetitions, 2))
    for draw in draws:
        deviation = _draw_sensitivities(rng, pairs, cuts, correlation) - sensitivity
        drawn = sensitivity + pairs.shrinkage[:, None] * deviation
        dealt = _deal(rng, specificities, sizes)
        draw[:] = utility(dealt, drawn).var(axis=0).mean(), epsilon_opis(dealt, drawn, epsilon)
    return OpisFloor(measured, draws[:, 0], draws[:, 1], correlation)


def _all_pairs(rates: ImageRates) -> PositivePairs:
    """All pairs of images of the classes that have any, of large classes those of some images."""
    sizes = rates.sizes[rates.kept]
    by_class = np.split(np.argsort(rates.classes, kind="stable"), rates.sizes.cumsum()[:-1])
    images, slots = [], []
    n_images = 0
    for members in (one for one in by_class if len(one) > 1):
        n = min(len(members), _MOST_IMAGES)
        unit = rates.unit[members[np.linspace(0, len(members) - 1, n).astype(int)]]
        ends = np.stack(np.triu_indices(n, k=1), axis=1)
        distances = np.sqrt(np.clip(2.0 - 2.0 * (unit @ unit.T), 0.0, 4.0))[ends[:, 0], ends[:, 1]]
        images.append(ends + n_images)
        slots.append(np.searchsorted(rates.thresholds, distances, side="left"))
        n_images += n
    rows = np.repeat(np.arange(len(sizes)), [len(one) for one in slots])
    first = np.concatenate(slots)
    shrinkage = np.sqrt(np.minimum(sizes, _MOST_IMAGES) / sizes)
    return PositivePairs(np.concatenate(images), rows, first, first, np.ones(len(rows)), shrinkage)


def _shared_covariance(pairs: PositivePairs, sensitivity: Floats) -> Floats:
    """(N,) covariance zeta_1 of the acceptance of two pairs that share an image, among equal classes.

    Means over classes are weighted by their numbers of images. Sums over pairs of pairs come from sums over
    the pairs of each image: the square of those counts every two that share it.
    """
    ends, n_thresholds = pairs.images.ravel(), len(sensitivity)
    class_of = np.empty(int(ends.max()) + 1, np.int64)
    class_of[ends] = pairs.rows.repeat(2)
    slots = pairs.strict.repeat(2), pairs.loose.repeat(2)
    by_image, squares = _accepted(ends, *slots, n_thresholds)
    sharing = _class_sums(by_image**2 - squares, class_of)
    total, own = _accepted(pairs.rows, pairs.strict, pairs.loose, n_thresholds)
    n = np.bincount(ends).astype(np.float64)
    n_sharing = _class_sums((n * (n - 1.0))[:, None], class_of)
    m = np.bincount(pairs.rows)[:, None].astype(np.float64)
    n_apart = m * m - m - n_sharing
    both = (n_sharing > 0.0)[:, 0] & (n_apart > 0.0)[:, 0]
    if not both.any():
        # No two pairs apart: all that pairs share is put down to the images, an upper bound.
        some = n_sharing[:, 0] > 0.0
        shared = (sharing[some] / n_sharing[some]).mean(axis=0) if some.any() else sensitivity**2
        return np.asarray(shared - sensitivity**2)
    with_image = sharing[both] / n_sharing[both]
    apart = (total**2 - own - sharing)[both] / n_apart[both]
    sizes = np.bincount(class_of)[both, None]
    weights = sizes / sizes.sum()
    covariance = (weights * (with_image - apart)).sum(axis=0)
    between = (weights * apart).sum(axis=0) - _mean_product((total / m)[both], weights)
    variance = sensitivity * (1.0 - sensitivity)
    within = variance - np.clip(between, 0.0, _MOST_BETWEEN * variance)
    return np.asarray(covariance * np.divide(variance, within, out=np.ones_like(within), where=within > 0.0))


def _accepted(rows: Ints, strict: Ints, loose: Ints, n_thresholds: int) -> tuple[Floats, Floats]:
    """(r, N) sums of the acceptance of pairs and of its square; 1/2 where one direction is accepted."""
    width = n_thresholds + 1
    size = (int(rows.max()) + 1) * width
    loosely, strictly = (
        np.bincount(rows * width + slots, minlength=size).reshape(-1, width)[:, :-1].cumsum(axis=1)
        for slots in (loose, strict)
    )
    return 0.5 * loosely + 0.5 * strictly, 0.25 * loosely + 0.75 * strictly


def _class_sums(table: Floats, class_of: Ints) -> Floats:
    sums = np.zeros((int(class_of.max()) + 1, table.shape[1]))
    np.add.at(sums, class_of, table)
    return sums


def _mean_product(rates: Floats, weights: Floats) -> Floats:
    """Weighted mean of the product of two different classes' rates (T, N); of the square with one class."""
    if len(rates) < 2:
        return (rates**2).sum(axis=0)
    total, squares = (weights * rates).sum(axis=0), ((weights * rates) ** 2).sum(axis=0)
    return (total**2 - squares) / (1.0 - (weights**2).sum())


def _normal_quantiles(shares: Floats) -> Floats:
    """Standard normal quantiles of shares in [0, 1], infinite at the ends."""
    normal = NormalDist()
    ends = {0.0: -np.inf, 1.0: np.inf}
    return np.array([ends[p] if p in ends else normal.inv_cdf(p) for p in shares.tolist()])


def _image_correlation(covariance: Floats, cuts: Floats) -> float:
    """The rho at which two pairs that share an image have the given covariance, averaged over the cuts.

    The derivative of P(z_1 <= c, z_2 <= c) with respect to the correlation is the bivariate normal density
    at (c, c) (Plackett, 1954), integrated here by the trapezoidal rule.
    """
    r = _CORRELATIONS[:, None]
    density = np.exp(-(cuts**2) / (1.0 + r)) / (2.0 * np.pi * np.sqrt(1.0 - r**2))
    steps = (density[1:] + density[:-1]) / 2.0 * np.diff(r, axis=0)
    by_correlation = np.concatenate([[0.0], steps.mean(axis=1).cumsum()])
    return float(np.interp(covariance.mean(), by_correlation, _CORRELATIONS))


def _draw_sensitivities(
    rng: np.random.Generator, pairs: PositivePairs, cuts: Floats, correlation: float
) -> Floats:
    """(T, N) sensitivities of classes that are all alike."""
    of_images = np.sqrt(correlation) * rng.standard_normal(int(pairs.images.max()) + 1)
    width = len(cuts) + 1
    counts, n_below = np.zeros(len(pairs.shrinkage) * width), _counter(cuts)
    for start in range(0, len(pairs.rows), _BLOCK):
        part = slice(start, start + _BLOCK)
        drawn = of_images[pairs.images[part, 0]] + of_images[pairs.images[part, 1]]
        drawn += np.sqrt(1.0 - 2.0 * correlation) * rng.standard_normal(len(drawn))
        cells = pairs.rows[part] * width + n_below(drawn)
        counts += np.bincount(cells, weights=pairs.weights[part], minlength=len(counts))
    table = counts.reshape(-1, width)
    return np.asarray(table[:, :-1].cumsum(axis=1) / table.sum(axis=1, keepdims=True))


def _counter(cuts: Floats) -> Callable[[Floats], Ints]:
    """Number of ascending cuts below each of some normal values, as `np.searchsorted` gives it: for nearly
    all of them it follows from the thousandth that they lie in, which no cut lies in.
    """
    n = 2 * _WIDEST * _FINE

    def place(values: Floats) -> Ints:
        # Never falls where values rise, however it is rounded.
        places = values + _WIDEST
        places *= _FINE
        return np.clip(places, 0, n - 1, out=places).astype(np.int64)

    n_in = np.bincount(place(cuts), minlength=n)
    before, is_cut = np.cumsum(n_in) - n_in, n_in > 0

    def n_below(values: Floats) -> Ints:
        places = place(values)
        found = before[places]
        open_ = np.flatnonzero(is_cut[places])
        found[open_] = np.searchsorted(cuts, values[open_])
        return found

    return n_below


def _deal(rng: np.random.Generator, specificities: Floats, sizes: Ints) -> Floats:
    """(T, N) mean specificity of each class, whose images are drawn from all without replacement."""
    order = rng.permutation(len(specificities))[: sizes.sum()]
    starts = np.minimum(np.concatenate([[0], sizes.cumsum()[:-1]]), len(order) - 1)
    sums = np.add.reduceat(specificities[order], starts, axis=0)
    return np.asarray(sums / np.diff(np.append(starts, len(order)))[:, None])


# Drawn pairs of all repetitions together.
_MOST_DRAWN = 20_000_000
_LEAST_REPETITIONS = 10


@dataclass(frozen=True)
class MatePairs:
    """Pairs of two images each, whichever comes first, behind the M positive pairs of some trials."""

    images: Ints  # (P, 2) numbers of the two images, ascending
    places: Ints  # (M,) pair of each positive pair
    times: Ints  # (P,) how many positive pairs each stands for

    @classmethod
    def of(cls, queries: Ints, items: Ints) -> MatePairs:
        """Pairs of (M,) numbers of query images and of items."""
        (first, second), n = _numbered(np.stack([queries, items]))
        # One number a pair: rows of two take twenty times as long to sort, and a large class has millions.
        unique, places, times = _distinct(np.minimum(first, second) * n + np.maximum(first, second), n**2)
        return cls(np.stack(np.divmod(unique, max(1, n))).T, places, times)


@dataclass(frozen=True)
class PairImages:
    """The images behind the pairs of some trials."""

    mates: MatePairs
    non_mate_queries: Codes  # (P,) row of the query of each listed negative pair
    query_labels: Codes  # (Q,) label of each query
    n_negatives: Ints  # (Q,) all negative pairs of each query


def pair_opis_floor(
    found: ClassUtilities, trials: Trials, images: PairImages, *, n_repetitions: int = 30
) -> OpisFloor:
    """Simulate OPIS and epsilon-OPIS of equal classes on a calibration's pairs; of millions fewer worlds."""
    if trials.low_pairs is not None and found.thresholds[-1] < trials.low_pairs.ceiling:
        raise CalibrationError("the calibration range reaches below the pairs that were listed one by one")
    pairs = _unordered_pairs(found, trials, images)
    return simulate_floor(
        found,
        pairs,
        _query_specificities(found, trials, images),
        np.bincount(images.query_labels, minlength=int(found.codes.max()) + 1)[found.codes],
        epsilon=0.1,
        n_repetitions=min(n_repetitions, max(_LEAST_REPETITIONS, _MOST_DRAWN // len(pairs.rows))),
        seed=0,
    )


def _unordered_pairs(found: ClassUtilities, trials: Trials, images: PairImages) -> PositivePairs:
    if trials.labels is None:
        raise CalibrationError("a floor of OPIS needs the labels of the trials")
    row_of, mates = np.full(len(trials.labels.names), -1), images.mates
    row_of[found.codes] = np.arange(len(found.codes))
    n, n_thresholds = len(mates.times), len(found.thresholds)
    # First threshold, from the strictest on, that each score reaches; N for none.
    slots = n_thresholds - np.searchsorted(found.thresholds[::-1], trials.mate_scores, side="right")
    strict, loose = np.zeros(n, np.int64), np.full(n, n_thresholds)
    np.maximum.at(strict, mates.places, slots)
    np.minimum.at(loose, mates.places, slots)
    rows = np.empty(n, np.int64)
    rows[mates.places] = row_of[trials.labels.mates]
    kept = rows >= 0
    ends, _ = _numbered(mates.images.T[:, kept])
    weights, shrinkage = mates.times[kept].astype(np.float64), np.ones(len(found.codes))
    return PositivePairs(ends.T, rows[kept], strict[kept], loose[kept], weights, shrinkage)


def _numbered(images: Ints) -> tuple[Ints, int]:
    """Images numbered from 0 on in their order, and how many there are."""
    is_there = np.zeros(int(images.max(initial=-1)) + 1, bool)
    is_there[images] = True
    return (np.cumsum(is_there) - 1)[images], int(is_there.sum())


def _distinct(numbers: Ints, n: int) -> tuple[Ints, Ints, Ints]:
    """Distinct numbers below n, ascending, the place of each number among them, and how often each occurs."""
    if n > _SPARSE * len(numbers):
        return np.unique(numbers, return_inverse=True, return_counts=True)
    counts = np.bincount(numbers, minlength=n)
    places = np.cumsum(counts > 0) - 1
    distinct = np.flatnonzero(counts)
    return distinct, places[numbers], counts[distinct]


def _query_specificities(found: ClassUtilities, trials: Trials, images: PairImages) -> Floats:
    """(Q, N) share of each query's negative pairs that are rejected, for queries with such pairs."""
    rows, rising = (images.non_mate_queries,), found.thresholds[::-1]
    accepted = accepted_trials(trials.non_mate_scores, rows, rising, len(images.n_negatives))
    some = images.n_negatives > 0
    return np.asarray(1.0 - accepted[some, ::-1] / images.n_negatives[some, None])
