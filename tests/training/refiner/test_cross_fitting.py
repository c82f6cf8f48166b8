"""Cross-fitting: who decides on what, and that nothing is promised where there is nothing to learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("pytorch_metric_learning")

from vicinal.models.refiner_manifest import Sides  # noqa: E402
from vicinal.training.refiner import cross_fitting  # noqa: E402
from vicinal.training.refiner.config import RefinerRecipe  # noqa: E402
from vicinal.training.refiner.cross_fitting import cross_fit  # noqa: E402
from vicinal.training.refiner.embedding_set import EmbeddingSet  # noqa: E402
from vicinal.training.refiner.trainer import RefinerTrainer, TrainingResult  # noqa: E402
from vicinal.training.refiner.validation import SIDES, SideFigures  # noqa: E402

pytestmark = pytest.mark.slow


def recipe(**changes: Any) -> RefinerRecipe:
    fields: dict[str, Any] = {
        "objective": "search",
        "refiner": {
            "form": "gated",
            "level": True,
            "n_steps": 1,
            "n_neighbors": 5,
            "init": "softmax_qe",
            "temperature": 0.2,
        },
        "search": {"n_queries": 48, "n_candidates": 12},
        "optimizer": {"steps": 20, "warmup_steps": 2, "learning_rate": 0.01},
        "validation": {"folds": 3, "every": 10, "draws": 2, "fpir": 0.1},
    }
    return RefinerRecipe.model_validate({**fields, **changes})


def regions(seed: int = 0, n_regions: int = 8) -> EmbeddingSet:
    """Regions of eight classes, some denser than others, so that one similarity does not fit all."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(8 * n_regions), 6)
    centers, spread = rng.normal(size=(n_regions, 24)), rng.uniform(0.1, 1.2, size=n_regions)[:, None]
    classes = np.repeat(centers, 8, 0) + np.repeat(spread, 8, 0) * rng.normal(size=(8 * n_regions, 24))
    return EmbeddingSet.of(
        classes[labels] + 0.9 * spread[labels // 8] * rng.normal(size=(len(labels), 24)), labels
    )


@pytest.fixture(scope="module")
def items() -> EmbeddingSet:
    return regions()


@pytest.fixture(scope="module")
def result(items: EmbeddingSet) -> TrainingResult:
    return cross_fit(RefinerTrainer(recipe()), items)


def test_every_class_is_searched_for_as_known_and_as_absent(
    items: EmbeddingSet, result: TrainingResult
) -> None:
    """With two draws: half of its items as queries with a mate, and all as queries without."""
    assert result.verdict.figures["queries"] == {"n_known": len(items) / 2, "n_absent": float(len(items))}
    assert (result.n_items, result.n_classes) == (len(items), 64)


def test_the_gain_is_the_difference_of_the_figures(result: TrainingResult) -> None:
    figures, gain = result.verdict.figures, result.gains["unrefined"]
    assert gain.fnir.before == pytest.approx(figures["off"]["fnir"])
    assert gain.fnir.after == pytest.approx(figures[result.verdict.sides]["fnir"])
    assert gain.map_at_r.after == pytest.approx(figures[result.verdict.sides]["map_at_r"])
    assert gain.fnir.low <= gain.fnir.after - gain.fnir.before <= gain.fnir.high
    line = figures["rerank" if result.verdict.rerank == "contextual" else result.verdict.sides]
    assert result.gains["present"].fnir.after == pytest.approx(line["fnir"])


def test_a_fold_is_measured_at_the_step_that_the_others_like(
    items: EmbeddingSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fold at its best at the end, while the others are at their best at step 10."""
    looks: dict[int, list[float]] = {0: [0.5, 0.5, 0.0], 1: [0.5, 0.1, 0.5], 2: [0.5, 0.1, 0.5]}

    def figures_of(self: Any, found: Any) -> dict[Sides, SideFigures]:
        fnir = float(np.mean([looks[one["number"]][one["look"]] for one in found]))
        return {sides: SideFigures(0.9 if sides == "off" else fnir, 0.5, 0.5, 0.8) for sides in SIDES}

    monkeypatch.setattr(cross_fitting._CrossFitting, "_figures", figures_of)
    trying = cross_fitting._CrossFitting(RefinerTrainer(recipe()), items, None)
    trying.steps = [0, 10, 20]
    folds: list[Any] = []
    for number in looks:
        fold = cross_fitting._Fold(number, None, None)
        fold.losses, fold.found = [0.0] * 3, [{"number": number, "look": look} for look in range(3)]
        folds.append(fold)
    assert trying._best_look(folds[1:]) == 1
    assert trying._best_look([folds[0]]) == 2


def test_noise_promises_nothing() -> None:
    """Classes that nothing distinguishes: whatever is chosen, the interval of the gain holds 0."""
    rng = np.random.default_rng(3)
    noise = EmbeddingSet.of(rng.normal(size=(240, 24)), np.repeat(np.arange(40), 6))
    gain = cross_fit(RefinerTrainer(recipe()), noise).gains["unrefined"]
    assert gain.fnir.low <= 0.0 <= gain.fnir.high


def test_classes_stay_whole_and_folds_are_even_in_each_space() -> None:
    both = EmbeddingSet.join([regions(), regions(1, n_regions=2)])
    folds = both.deal_classes(4, seed=0)
    for one in np.unique(both.class_ids):
        assert len(set(folds[both.class_ids == one])) == 1
    for space in (0, 1):
        classes = {(fold, one) for fold, one in zip(folds, both.class_ids, strict=True)}
        kept = [fold for fold, one in classes if both.spaces[both.class_ids == one][0] == space]
        assert len(set(np.bincount(kept).tolist())) == 1
