"""The objective `search`: galleries that are drawn, losses against loops, and that a refiner learns by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("pytorch_metric_learning")

from vicinal.training.refiner.config import RefinerRecipe, SearchConfig  # noqa: E402
from vicinal.training.refiner.embedding_set import EmbeddingSet  # noqa: E402
from vicinal.training.refiner.network import ContextRefinerNetwork  # noqa: E402
from vicinal.training.refiner.search import (  # noqa: E402  # noqa: E402
    Neighborhood,
    SearchBatch,
    SearchBatches,
    mate_loss,
    rank_loss,
    search_loss,
)
from vicinal.training.refiner.trainer import RefinerTrainer  # noqa: E402

CPU = torch.device("cpu")


def recipe(**changes: Any) -> RefinerRecipe:
    fields: dict[str, Any] = {
        "objective": "search",
        "refiner": {
            "form": "gated",
            "level": True,
            "n_steps": 1,
            "n_neighbors": 4,
            "init": "softmax_qe",
            "temperature": 0.1,
        },
        "search": {"n_queries": 40, "n_candidates": 12},
        "optimizer": {"steps": 4, "warmup_steps": 1},
        "validation": {"share": 0.3, "every": 50},
    }
    return RefinerRecipe.model_validate({**fields, **changes})


def blobs(n_classes: int = 24, size: int = 6, noise: float = 0.8, seed: int = 0) -> EmbeddingSet:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_classes), size)
    centers = rng.normal(size=(n_classes, 16))
    return EmbeddingSet.of(centers[labels] + noise * rng.normal(size=(len(labels), 16)), labels)


@pytest.fixture(scope="module")
def items() -> EmbeddingSet:
    return blobs()


class Drawn:
    """A batch, in positions of the training set."""

    def __init__(self, batches: SearchBatches, items: EmbeddingSet) -> None:
        galleries: list[tuple[Any, Any]] = []
        draw = batches._draw_gallery

        def watched() -> tuple[Any, Any]:
            galleries.append(draw())
            return galleries[-1]

        batches._draw_gallery = watched  # type: ignore[method-assign]
        self.batch = batches._draw()
        self.in_gallery, self.is_absent_class = (one.numpy() for one in galleries[0])
        places = {row.tobytes(): n for n, row in enumerate(items.embeddings)}

        def positions(rows: Any) -> np.ndarray:
            flat = [places[row.tobytes()] for row in rows.reshape(-1, rows.shape[-1]).numpy()]
            return np.array(flat).reshape(rows.shape[:-1])

        batch = self.batch
        self.queries, self.items = positions(batch.queries.rows), positions(batch.items.rows)
        self.contexts = positions(batch.queries.context), positions(batch.items.context)
        self.masks = batch.queries.mask.numpy(), batch.items.mask.numpy()
        self.radii = batch.queries.radii.numpy(), batch.items.radii.numpy()
        there = (batch.is_mate | batch.is_other).numpy()
        self.candidates = np.where(there, self.items[batch.candidates.numpy()], -1)


def nearest_by_loop(items: EmbeddingSet, row: int, gallery: np.ndarray, k: int) -> list[int]:
    """Of the gallery items in the same space, other than the item itself."""
    others = [n for n in np.flatnonzero(gallery) if n != row and items.spaces[n] == items.spaces[row]]
    return sorted(others, key=lambda n: -float(items.embeddings[n] @ items.embeddings[row]))[:k]


@pytest.fixture(scope="module")
def drawn(items: EmbeddingSet) -> Drawn:
    return Drawn(SearchBatches(items, recipe(), CPU), items)


def test_queries_are_not_in_the_gallery_and_half_are_of_classes_left_out(
    drawn: Drawn, items: EmbeddingSet
) -> None:
    assert not drawn.in_gallery[drawn.queries].any()
    absent = drawn.is_absent_class[items.class_ids[drawn.queries]]
    np.testing.assert_array_equal(drawn.batch.absent.numpy(), absent)
    assert absent.sum() == 20
    assert len(set(drawn.queries.tolist())) == len(drawn.queries)


def test_candidates_and_contexts_are_the_nearest_of_the_gallery(drawn: Drawn, items: EmbeddingSet) -> None:
    context, item_context = drawn.contexts
    for n, query in enumerate(drawn.queries):
        nearest = nearest_by_loop(items, query, drawn.in_gallery, 12)
        assert drawn.candidates[n].tolist() == nearest
        assert context[n].tolist() == nearest[:4]
    for n, item in enumerate(drawn.items):
        assert item_context[n].tolist() == nearest_by_loop(items, item, drawn.in_gallery, 4)


def test_radii_are_those_of_the_drawn_gallery(drawn: Drawn, items: EmbeddingSet) -> None:
    for context, radii in zip(drawn.contexts, drawn.radii, strict=True):
        for item, actual in zip(context.ravel(), radii.reshape(-1, 3), strict=True):
            nearest = nearest_by_loop(items, item, drawn.in_gallery, 8)
            expected = [
                float(items.embeddings[nearest[rank - 1]] @ items.embeddings[item]) for rank in (1, 4, 8)
            ]
            np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)


def test_a_gallery_with_few_items_has_masked_places_and_the_last_known_radii() -> None:
    """Three items or fewer: no fourth neighbor, and no eighth."""
    few = blobs(n_classes=3, size=4)
    one = Drawn(SearchBatches(few, recipe(search={"n_queries": 8, "gallery_share": [0.5, 0.5]}), CPU), few)
    n_gallery = int(one.in_gallery.sum())
    assert 1 < n_gallery < 8
    assert (one.masks[0].sum(axis=1) == min(4, n_gallery)).all()
    assert ((one.candidates >= 0).sum(axis=1) == n_gallery).all()
    for item, radii in zip(one.contexts[0][one.masks[0]], one.radii[0][one.masks[0]], strict=True):
        nearest = nearest_by_loop(few, item, one.in_gallery, 8)
        similarities = [float(few.embeddings[n] @ few.embeddings[item]) for n in nearest]
        expected = [similarities[min(rank, len(nearest)) - 1] for rank in (1, 4, 8)]
        np.testing.assert_allclose(radii, expected, rtol=0, atol=1e-6)


def random_search(n: int = 9, n_candidates: int = 10, seed: int = 0) -> tuple[Any, SearchBatch]:
    """Similarities of queries to candidates, and who is a mate; the last four queries have none.

    The first of these is no query of a class that was left out: it lacks a mate by chance.
    """
    generator = torch.Generator().manual_seed(seed)
    similarities = torch.rand(n, n_candidates, generator=generator) * 0.8 + 0.1
    kind = torch.rand(n, n_candidates, generator=generator)
    is_mate, is_other = kind < 0.3, (kind >= 0.3) & (kind < 0.9)
    is_mate[-4:] = False
    is_mate[:-4, 0], is_other[:-4, 0] = True, False
    empty = Neighborhood(*(torch.empty(0) for _ in range(4)))
    absent = torch.arange(n) >= n - 3
    candidates = torch.zeros(n, n_candidates, dtype=torch.int64)
    return similarities, SearchBatch(empty, empty, candidates, is_mate, is_other, absent)


def mate_loss_by_loop(scores: Any, batch: SearchBatch, config: SearchConfig) -> float:
    with_mate, without = [], []
    for n, row in enumerate(scores):
        mates = [float(s) for s, is_mate in zip(row, batch.is_mate[n], strict=True) if is_mate]
        others = [float(s) for s, is_other in zip(row, batch.is_other[n], strict=True) if is_other]
        with_mate += [max(mates)] if mates else []
        without += [max(others)] if batch.absent[n] and others else []
    hardest = sorted(without, reverse=True)[: max(1, round(config.hardest * len(without)))]
    sharpness = config.level_sharpness
    terms = [np.logaddexp(0.0, sharpness * (a - m)) / sharpness for a in hardest for m in with_mate]
    return 10.0 * sum(terms) / len(terms)


def test_rank_loss_equals_the_smooth_formula() -> None:
    similarities, batch = random_search()
    lost = []
    for row, mates, others in zip(similarities.numpy(), batch.is_mate, batch.is_other, strict=True):
        for j in np.flatnonzero(mates):
            before = 1.0 / (1.0 + np.exp(-20.0 * (row - row[j])))
            p = sum(before[i] for i in np.flatnonzero(mates) if i != j)
            r = sum(before[i] for i in np.flatnonzero(others))
            lost.append(1.0 - (1.0 + p) / (1.0 + p + r))
    loss = float(rank_loss(similarities, batch.is_mate, batch.is_other, 20.0))
    assert loss == pytest.approx(np.mean(lost), abs=1e-6)


@pytest.mark.parametrize(("hardest", "sharpness"), [(0.2, 10.0), (0.7, 10.0), (1.0, 200.0)])
def test_mate_loss_equals_the_loop(hardest: float, sharpness: float) -> None:
    scores, batch = random_search()
    config = SearchConfig(hardest=hardest, level_sharpness=sharpness)
    assert float(mate_loss(scores.log(), batch, config)) == pytest.approx(
        mate_loss_by_loop(scores.log(), batch, config), rel=1e-5
    )


@pytest.fixture
def one_batch(items: EmbeddingSet) -> SearchBatch:
    return next(iter(SearchBatches(items, recipe(), CPU)))


@pytest.fixture
def learned(make_network: Callable[..., Any]) -> ContextRefinerNetwork:
    network: ContextRefinerNetwork = make_network(recipe().refiner, dim=16)
    return network.train()


def gradients(network: ContextRefinerNetwork, loss: Any) -> dict[str, Any]:
    network.zero_grad()
    loss.backward()
    return {name: one.grad for name, one in network.named_parameters() if one.grad is not None}


def test_search_loss_is_the_sum_of_both_losses(
    learned: ContextRefinerNetwork, one_batch: SearchBatch
) -> None:
    """Query by query: refined items, inner products, and the logarithm of the length."""
    config, queries, items = SearchConfig(), one_batch.queries, one_batch.items
    with torch.no_grad():
        steps, _, lengths = learned(queries.rows, queries.context, queries.mask, queries.radii)
        refined = learned(items.rows, items.context, items.mask)[0][:, -1]
        rows = zip(one_batch.candidates, steps[:, -1], strict=True)
        similarities = torch.stack([refined[some] @ query for some, query in rows])
        scores = similarities.clamp(min=0.02).log() + lengths[:, -1:].log()
        expected = mate_loss(scores, one_batch, config) + rank_loss(
            similarities, one_batch.is_mate, one_batch.is_other, config.rank_sharpness
        )
    assert search_loss(learned, one_batch, config).item() == pytest.approx(expected.item(), rel=1e-5)


def test_no_gradient_goes_from_the_level_to_the_direction(
    learned: ContextRefinerNetwork, one_batch: SearchBatch
) -> None:
    """The direction learns from ranks alone: its gradient does not know how sharp the level is."""
    soft, sharp = (
        gradients(learned, search_loss(learned, one_batch, SearchConfig(level_sharpness=one)))
        for one in (1.0, 100.0)
    )
    of_level = {name for name in soft if name.startswith("steps.0.level_")}
    assert of_level
    assert set(soft) > of_level
    assert all(torch.equal(soft[name], sharp[name]) for name in set(soft) - of_level)
    assert not any(torch.equal(soft[name], sharp[name]) for name in of_level)


def uneven(seed: int, n_regions: int = 10) -> EmbeddingSet:
    """Regions of eight classes, some so dense that strangers are more alike there than mates elsewhere."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(8 * n_regions), 6)
    regions, spread = rng.normal(size=(n_regions, 16)), rng.uniform(0.1, 1.2, size=n_regions)[:, None]
    classes = np.repeat(regions, 8, 0) + np.repeat(spread, 8, 0) * rng.normal(size=(8 * n_regions, 16))
    noise = 0.5 * spread[labels // 8] * rng.normal(size=(len(labels), 16))
    return EmbeddingSet.of(classes[labels] + noise, labels)


@pytest.mark.slow
def test_a_refiner_learns_to_search_classes_that_it_never_saw() -> None:
    """Fewer mates are missed than without refining, and than by the untrained expansion that it starts as."""
    settings = recipe(
        search={"n_queries": 96, "n_candidates": 16},
        optimizer={"steps": 75, "warmup_steps": 5, "learning_rate": 0.01},
        validation={"every": 75, "fpir": 0.1},
    )
    result = RefinerTrainer(settings).run(uneven(2), uneven(3))
    start, end = result.records[0].figures, result.best.figures
    assert result.best.step == 75
    assert result.n_classes == 80
    assert end["both"].fnir < 0.5 * start["both"].fnir
    assert end["both"].fnir < 0.5 * end["off"].fnir
    assert result.verdict.sides in ("query", "both")
