"""Sampling floor of OPIS: what it would be, on the same class sizes, if all classes were equal.

A class with few images has few positive pairs, so its sensitivity psi_i is known only roughly, and OPIS,
a variance over classes, contains that noise. It falls with more images a class whatever the embedding does.
The floor is the mean OPIS of a world in which nothing but this noise is left:

- Every class has the same sensitivity F(t), the mean of the measured psi_i(t), and the number of images
  that it really has.
- Pairs share images: an image far from its class loses all of its pairs at once. By Hoeffding (1948),

      Var psi_i = (2 zeta_2 + 4 (n_i - 2) zeta_1) / (n_i (n_i - 1))

  with zeta_2 the variance of one pair's acceptance and zeta_1 the covariance of two pairs that share an
  image. Measured within classes, two pairs that share an image also share their class; two pairs of four
  images share the class alone. The difference of the two mean products is zeta_1, free of what
  distinguishes the classes. The variance that the classes' differences took up is given back in proportion:
  zeta_1 grows by F (1 - F) / (F (1 - F) - the variance between classes).
- A pair is accepted at t when sqrt(rho) (u_a + u_b) + sqrt(1 - 2 rho) e_ab <= Phi^-1(F(t)), all variables
  standard normal. This has the sensitivity F(t) at every threshold, and rho is set so that the covariance
  of pairs that share an image, averaged over the thresholds, is the one measured.
- The specificity of a class is the mean of its images' specificities, exactly. The images, each with
  its specificities at all thresholds, are dealt out to the classes at random.

What this takes for granted: images are drawn independently of each other within a class (bursts of one photo
session are not, and make the true floor higher); an image's share in its pairs is additive on the
normal scale; sensitivity and specificity of an image do not go together. A class whose neighbors are closer
than those of other classes counts as different, not as noise. With two images in every class nothing can be
told apart: one pair is accepted or not, and the floor is the measured OPIS. Classes of two or three images
among larger ones make the floor high and the spread wide.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from vicinal.calibration.consistency.equal_classes import image_correlation, mean_product, normal_quantiles
from vicinal.calibration.consistency.image_rates import ImageRates, measure_images
from vicinal.calibration.consistency.opis import Opis, epsilon_opis, opis_of, utility
from vicinal.calibration.errors import CalibrationError

__all__ = ["OpisFloor", "opis_floor"]

Floats = npt.NDArray[np.float64]
Sizes = npt.NDArray[np.int64]

_BLOCK = 2**20
# A larger class is drawn with so many images: beyond, Var psi falls as 1 / n_i to good accuracy.
_MOST_IMAGES = 300
# The part of an acceptance's variance that can be ascribed to differences of the classes.
_MOST_BETWEEN = 0.95


@dataclass(frozen=True)
class OpisFloor:
    """OPIS beside what equal classes of the same sizes would show.

    Attributes:
        measured: OPIS of the embeddings.
        opis_draws: (B,) OPIS of the simulated worlds of equal classes.
        epsilon_opis_draws: (B,) epsilon-OPIS of the same.
        image_correlation: rho, the share of an image in the normal score of each of its pairs, in [0, 0.5].
    """

    measured: Opis
    opis_draws: Floats
    epsilon_opis_draws: Floats
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


def opis_floor(
    embeddings: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    far_range: tuple[float, float] = (0.01, 0.1),
    n_thresholds: int = 100,
    epsilon: float = 0.1,
    n_repetitions: int = 50,
    seed: int = 0,
) -> OpisFloor:
    """Measure OPIS and epsilon-OPIS, and simulate them for equal classes of the same sizes.

    A figure is comparable to another only on identical pairs, and so is its floor.

    Args:
        embeddings: (n, d), normalized or not.
        labels: (n,) class labels.
        far_range: Shares of negative pairs accepted at the ends of the calibration range.
        n_thresholds: Number N of thresholds.
        epsilon: Share of the classes in the best and in the worst group; at least one class each.
        n_repetitions: Number B of simulated worlds, at least 2.
        seed: Seed of the simulation.

    Raises:
        CalibrationError: No negative pairs, no class with two embeddings, or a parameter is out of range.
    """
    if n_repetitions < 2:
        raise CalibrationError(f"n_repetitions is {n_repetitions}, a spread needs at least 2")
    rates = measure_images(embeddings, labels, far_range, n_thresholds)
    measured = opis_of(rates, epsilon)
    sensitivity = rates.sensitivity.mean(axis=0)
    cuts = normal_quantiles(sensitivity)
    correlation = image_correlation(_shared_covariance(rates, sensitivity), cuts)
    rng = np.random.default_rng(seed)
    draws = np.empty((n_repetitions, 2))
    for row in draws:
        drawn = _draw_sensitivities(rng, rates.sizes[rates.kept], cuts, correlation)
        dealt = _deal_specificities(rng, rates)
        row[:] = utility(dealt, drawn).var(axis=0).mean(), epsilon_opis(dealt, drawn, epsilon)
    return OpisFloor(measured, draws[:, 0], draws[:, 1], correlation)


def _shared_covariance(rates: ImageRates, sensitivity: Floats) -> Floats:
    """(N,) covariance zeta_1 of the acceptance of two pairs that share an image, in a world of equal classes.

    Means over classes are weighted by their numbers of images.
    """
    variance = sensitivity * (1.0 - sensitivity)
    sharing = rates.class_sums(rates.positive * (rates.positive - 1))
    n = rates.sizes[:, None].astype(np.float64)
    four = rates.sizes >= 4
    if not four.any():
        # Three images have no two pairs apart: all that their pairs share is put down to the images,
        # which makes the floor an upper bound.
        three = rates.sizes == 3
        return sharing[three].mean(axis=0) / 6 - sensitivity**2 if three.any() else np.zeros_like(variance)
    n, sharing = n[four], sharing[four]
    accepted = rates.class_sums(rates.positive)[four] / 2
    triples = n * (n - 1) * (n - 2)
    with_image = sharing / triples
    apart = (accepted**2 - accepted - sharing) / (triples * (n - 3) / 4)
    weights = n / n.sum()
    shared = (weights * (with_image - apart)).sum(axis=0)
    between = (weights * apart).sum(axis=0) - mean_product(2 * accepted / (n * (n - 1)), weights)
    within = variance - np.clip(between, 0.0, _MOST_BETWEEN * variance)
    return shared * np.divide(variance, within, out=np.ones_like(within), where=within > 0.0)


def _draw_sensitivities(rng: np.random.Generator, sizes: Sizes, cuts: Floats, correlation: float) -> Floats:
    """(T, N) sensitivity of classes of the given sizes, all drawn alike."""
    drawn = np.empty((len(sizes), len(cuts)))
    for size in np.unique(sizes).tolist():
        members = np.flatnonzero(sizes == size)
        n_images = min(size, _MOST_IMAGES)
        at_once = max(1, _BLOCK // (n_images * n_images))
        for start in range(0, len(members), at_once):
            some = members[start : start + at_once]
            drawn[some] = _draw_alike(rng, (len(some), n_images), cuts, correlation)
        if size > n_images:
            expected = _normal_shares(cuts)
            drawn[members] = expected + np.sqrt(n_images / size) * (drawn[members] - expected)
    return drawn


def _draw_alike(rng: np.random.Generator, shape: tuple[int, int], cuts: Floats, correlation: float) -> Floats:
    """(classes, N) sensitivity of some classes of one size."""
    n_classes, size = shape
    first, second = np.triu_indices(size, k=1)
    images = np.sqrt(correlation) * rng.standard_normal(shape)
    pairs = np.sqrt(1.0 - 2.0 * correlation) * rng.standard_normal((n_classes, len(first)))
    pairs += images[:, first] + images[:, second]
    width = len(cuts) + 1
    slots = np.searchsorted(cuts, pairs) + width * np.arange(n_classes)[:, None]
    counts = np.bincount(slots.ravel(), minlength=n_classes * width).reshape(n_classes, width)
    return counts[:, :-1].cumsum(axis=1) / len(first)


def _normal_shares(cuts: Floats) -> Floats:
    normal = NormalDist()
    return np.array([normal.cdf(cut) for cut in cuts.tolist()])


def _deal_specificities(rng: np.random.Generator, rates: ImageRates) -> Floats:
    """(T, N) specificity of each kept class, its images drawn from all without replacement."""
    n_negative = (len(rates.classes) - rates.sizes[rates.classes])[:, None]
    specificities = 1.0 - rates.negative / n_negative
    dealt = rates.class_sums(specificities[rng.permutation(len(specificities))])
    return dealt[rates.kept] / rates.sizes[rates.kept, None]
