"""Training of a refiner: batches, the loss of absent queries, determinism, and that it learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("pytorch_metric_learning")

from vicinal.training.refiner.batches import ClassBatch, ClassBatches  # noqa: E402
from vicinal.training.refiner.config import RefinerRecipe  # noqa: E402
from vicinal.training.refiner.embedding_set import EmbeddingSet  # noqa: E402
from vicinal.training.refiner.trainer import RefinerTrainer, absent_loss  # noqa: E402

CPU = torch.device("cpu")


def recipe(**changes: Any) -> RefinerRecipe:
    fields: dict[str, Any] = {
        "refiner": {"n_steps": 2, "n_heads": 2, "n_neighbors": 4, "zero_init_output": True},
        "batches": {"batch_size": 32},
        "optimizer": {"steps": 6, "warmup_steps": 1, "learning_rate": 3e-3},
        "validation": {"share": 0.3, "every": 3},
    }
    return RefinerRecipe.model_validate({**fields, **changes})


def confusing(n_classes: int = 60, size: int = 6, seed: int = 0) -> EmbeddingSet:
    """Classes that lie in a few dimensions, under noise in all others, which a refiner can learn to drop."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_classes), size)
    centers = np.pad(rng.normal(size=(n_classes, 8)), ((0, 0), (0, 16)))
    noise = rng.normal(size=(len(labels), 24)) * np.repeat([0.3, 0.8], [8, 16])
    return EmbeddingSet.of(centers[labels] + noise, labels)


@pytest.fixture(scope="module")
def items() -> EmbeddingSet:
    return confusing()


def test_batches_are_class_balanced_and_see_their_neighbors(items: EmbeddingSet) -> None:
    batches = list(ClassBatches(items, recipe(), CPU))
    assert len(batches) == 6
    for batch in batches:
        assert torch.unique(batch.labels, return_counts=True)[1].tolist() == [4] * 8
        similarities = batch.context @ batch.query[..., None]
        assert (similarities[:, :-1] >= similarities[:, 1:] - 1e-6).all()
        assert batch.mask.all()
        assert not batch.absent.any()


def test_absent_queries_have_no_mate_in_their_context(items: EmbeddingSet) -> None:
    by_embedding = {one.tobytes(): label for one, label in zip(items.embeddings, items.labels, strict=True)}
    absent = 0
    for batch in ClassBatches(items, recipe(absent={"share": 0.5}), CPU):
        for query, context, is_absent in zip(batch.query, batch.context, batch.absent, strict=True):
            labels = {by_embedding[one.numpy().tobytes()] for one in context}
            absent += int(is_absent)
            assert not is_absent or by_embedding[query.numpy().tobytes()] not in labels
    assert absent == pytest.approx(96, abs=30)


def absent_by_loop(refined: Any, batch: ClassBatch, margin: float) -> float:
    rises = []
    for e, start, context, mask, is_absent in zip(
        refined, batch.query, batch.context, batch.mask, batch.absent, strict=True
    ):
        if is_absent:
            neighbors = [c for c, there in zip(context, mask, strict=True) if there]
            before, after = (max(float(c @ one) for c in neighbors) for one in (start, e))
            rises.append(max(0.0, after - before - margin))
    return sum(rises) / len(rises)


@pytest.mark.parametrize("margin", [0.0, 0.1])
def test_absent_loss_equals_the_loop(make_contexts: Any, margin: float) -> None:
    query, context, mask = (torch.from_numpy(one[:-1]) for one in make_contexts(12))
    absent = torch.arange(11) % 3 != 0
    batch = ClassBatch(query, context, mask, torch.zeros(11), absent)
    refined = torch.nn.functional.normalize(query + 0.8 * context[:, 0], dim=-1)
    expected = absent_by_loop(refined, batch, margin)
    assert expected > 0
    assert float(absent_loss(refined, batch, margin)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.slow
def test_training_refines_better_than_nothing(items: EmbeddingSet) -> None:
    """On classes that it never saw."""
    learned = recipe(
        optimizer={"steps": 60, "warmup_steps": 5, "learning_rate": 3e-3},
        validation={"share": 0.4, "every": 20},
    )
    result = RefinerTrainer(learned).run(items)
    off, both = result.best.figures["off"], result.best.figures["both"]
    assert result.best.step > 0
    assert result.verdict.sides != "off"
    assert both.map_at_r > off.map_at_r + 0.03
    assert both.fnir < off.fnir


def test_the_network_of_the_best_validation_is_kept(items: EmbeddingSet) -> None:
    """A learning rate that destroys everything leaves the network as it started."""
    wild = recipe(optimizer={"steps": 6, "warmup_steps": 0, "learning_rate": 3.0, "clip_norm": 0.0})
    result = RefinerTrainer(wild).run(items)
    assert result.best.step == 0
    assert not any(step.output.any() for step in result.network.steps)
    assert [record.step for record in result.records] == [0, 3, 6]
