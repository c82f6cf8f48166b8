"""Context refiner at inference: numpy gives what torch gives, and the same bits in every company."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from vicinal.models.bundle import ModelBundle
from vicinal.refine.context_refiner import ContextRefiner
from vicinal.refine.errors import RefinementError, RefinerMismatchError, RefinerNotFoundError
from vicinal.refine.step import moved_rows, normalized_rows
from vicinal.refine.weights import load_weights, save_weights
from vicinal.training.refiner.config import RefinerConfig

Contexts = Callable[..., tuple[np.ndarray, np.ndarray, np.ndarray]]


@pytest.fixture(scope="module")
def refiner(refined_bundle: ModelBundle) -> ContextRefiner:
    return ContextRefiner(refined_bundle)


@pytest.fixture(scope="module")
def gallery(make_contexts: Contexts) -> tuple[np.ndarray, np.ndarray]:
    """70 items, each with up to 7 neighbors, item 3 without any."""
    embeddings, _, _ = make_contexts(70)
    similarities = embeddings @ embeddings.T
    np.fill_diagonal(similarities, -np.inf)
    ids = np.argsort(-similarities, axis=1)[:, :7].astype(np.int32)
    ids[5, 2:], ids[3] = -1, -1
    return embeddings, ids


def test_every_form_gives_what_torch_gives(
    every_form: RefinerConfig, make_bundle: Any, make_network: Any, make_contexts: Contexts
) -> None:
    torch = pytest.importorskip("torch")
    inputs = make_contexts(11, k=6)
    with torch.inference_mode():
        steps, attention = make_network(every_form)(*(torch.from_numpy(one) for one in inputs))
    refinement = ContextRefiner(make_bundle(every_form)).attend(*inputs)
    np.testing.assert_allclose(refinement.steps, steps, rtol=0, atol=2e-6)
    np.testing.assert_allclose(refinement.attention, attention, rtol=0, atol=2e-6)


@pytest.mark.parametrize("n", range(1, 65))
def test_a_query_refines_to_the_same_bits_alone_and_in_a_batch(
    refiner: ContextRefiner, make_contexts: Contexts, n: int
) -> None:
    queries, contexts, mask = make_contexts(64)
    together = refiner.attend(queries[:n], contexts[:n], mask[:n])
    alone = refiner.attend(queries[n - 1 : n], contexts[n - 1 : n], mask[n - 1 : n])
    np.testing.assert_array_equal(together.steps[-1:], alone.steps)
    np.testing.assert_array_equal(together.attention[-1:], alone.attention)


def differs_in_a_batch(refine: Callable[[slice], np.ndarray]) -> bool:
    """Whether any of 64 rows gets other bits in some batch than alone."""
    alone = np.concatenate([refine(slice(row, row + 1)) for row in range(64)])
    return not all(np.array_equal(refine(slice(0, n)), alone[:n]) for n in (2, 3, 7, 16, 33, 64))


@pytest.mark.parametrize("dim", [64, 256])
def test_wide_embeddings_refine_to_the_same_bits_in_every_batch(
    make_network: Any, make_contexts: Contexts, dim: int
) -> None:
    """Where a processor's fast paths begin; straight through a step, without a bundle."""
    network = make_network(RefinerConfig(n_steps=1), dim=dim)
    (weights,) = network.step_arrays()
    queries, contexts, _ = make_contexts(64, k=8, dim=dim)
    there = np.ones((64, 8), np.float32)

    def refine(part: slice) -> np.ndarray:
        rows = queries[part, None]
        inputs = (rows, rows, contexts[part], there[part])
        return normalized_rows(moved_rows(np, weights, network.architecture, *inputs, together=False)[0])

    assert not differs_in_a_batch(refine)


def test_the_check_of_batches_sees_the_last_bit(make_contexts: Contexts) -> None:
    """Negative control: a step that rounds otherwise in large batches."""
    queries, _, _ = make_contexts(64)

    def refine(part: slice) -> np.ndarray:
        rows = queries[part].copy()
        rows[-1] = np.nextafter(rows[-1], 2.0, dtype=np.float32) if len(rows) > 32 else rows[-1]
        return rows

    assert differs_in_a_batch(refine)


def test_an_item_refines_alike_as_a_query_and_in_a_gallery(
    refiner: ContextRefiner, gallery: tuple[np.ndarray, np.ndarray]
) -> None:
    embeddings, ids = gallery
    nearest = ids[:, : refiner.n_neighbors]
    online = refiner.attend(embeddings, embeddings[nearest], nearest >= 0).steps[:, -1]
    np.testing.assert_allclose(refiner.refine_gallery(embeddings, ids), online, rtol=0, atol=1e-6)


def test_a_gallery_larger_than_a_chunk_is_refined_whole(
    refiner: ContextRefiner, gallery: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = refiner.refine_gallery(*gallery)
    monkeypatch.setattr("vicinal.refine.context_refiner._CHUNK", 32)
    reported: list[tuple[int, int]] = []
    refined = refiner.refine_gallery(*gallery, on_progress=lambda *done: reported.append(done))
    np.testing.assert_allclose(refined, expected, rtol=0, atol=1e-6)
    assert reported == [(32, 70), (64, 70), (70, 70)]


def test_some_rows_of_a_gallery_refine_as_in_the_whole(
    refiner: ContextRefiner, gallery: tuple[np.ndarray, np.ndarray]
) -> None:
    embeddings, ids = gallery
    rows = np.array([9, 3, 66])
    some = refiner.refine_gallery(embeddings, ids[rows], rows=rows)
    whole = refiner.refine_gallery(embeddings, ids)
    np.testing.assert_allclose(some, whole[rows], rtol=0, atol=1e-6)


def test_a_query_without_neighbors_stays_as_it_is(refiner: ContextRefiner, make_contexts: Contexts) -> None:
    queries, contexts, mask = make_contexts(4)
    refinement = refiner.attend(queries, contexts, mask)
    np.testing.assert_array_equal(refinement.steps[-1], np.repeat(queries[-1:], 2, axis=0))
    assert not refinement.attention[-1].any()
    assert (refinement.steps[0] != queries[0]).any()


@pytest.mark.parametrize("filling", [0.0, 7.0, np.nan])
def test_what_stands_where_there_is_no_neighbor_does_not_matter(
    refiner: ContextRefiner, make_contexts: Contexts, filling: float
) -> None:
    queries, contexts, mask = make_contexts(6)
    filled = np.where(mask[..., None], contexts, np.float32(filling))
    np.testing.assert_array_equal(
        refiner.attend(queries, filled, mask).steps, refiner.attend(queries, contexts, mask).steps
    )


def test_neighbors_filled_with_zeros_would_take_weight(
    refiner: ContextRefiner, make_contexts: Contexts
) -> None:
    """Negative control of the test above."""
    queries, contexts, mask = make_contexts(6)
    filled = np.where(mask[..., None], contexts, np.float32(0.0))
    difference = refiner.attend(queries, filled).steps - refiner.attend(queries, filled, mask).steps
    assert np.abs(difference).max() > 1e-3


def test_the_order_of_neighbors_does_not_matter(refiner: ContextRefiner, make_contexts: Contexts) -> None:
    queries, contexts, mask = make_contexts(6)
    order = np.array([3, 0, 4, 2, 1])
    turned = refiner.attend(queries, contexts[:, order], mask[:, order])
    straight = refiner.attend(queries, contexts, mask)
    np.testing.assert_allclose(turned.steps, straight.steps, rtol=0, atol=1e-6)
    np.testing.assert_allclose(turned.attention, straight.attention[..., order], rtol=0, atol=1e-6)


@pytest.mark.parametrize("n_steps", [1, 2])
def test_an_early_exit_gives_the_first_steps(
    refiner: ContextRefiner, make_contexts: Contexts, gallery: tuple[np.ndarray, np.ndarray], n_steps: int
) -> None:
    queries, contexts, mask = make_contexts(6)
    early = refiner.attend(queries, contexts, mask, n_steps=n_steps).steps
    np.testing.assert_array_equal(early, refiner.attend(queries, contexts, mask).steps[:, :n_steps])
    embeddings, ids = gallery
    online = refiner.attend(embeddings, embeddings[ids[:, :5]], ids[:, :5] >= 0, n_steps=n_steps).steps
    refined = refiner.refine_gallery(embeddings, ids, n_steps=n_steps)
    np.testing.assert_allclose(refined, online[:, -1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("n_steps", [-1, 0, 3])
def test_a_number_of_steps_that_is_not_there_is_refused(
    refiner: ContextRefiner, make_contexts: Contexts, n_steps: int
) -> None:
    with pytest.raises(RefinementError, match=rf"has 2 steps, got n_steps {n_steps}: use 1 to 2"):
        refiner.attend(*make_contexts(2), n_steps=n_steps)


@pytest.mark.parametrize(
    ("queries", "contexts", "mask", "named"),
    [
        ((2, 16), (2, 5, 24), (2, 5), r"queries \(n, d\) with d = 24, got \(2, 16\)"),
        ((2, 24), (2, 5, 16), (2, 5), r"contexts \(n, k, d\) with d = 24, got \(2, 5, 16\)"),
        ((24,), (2, 5, 24), (2, 5), r"got \(24,\)"),
        ((3, 24), (2, 5, 24), (2, 5), r"for 3 queries, got contexts \(2, 5, 24\)"),
        ((2, 24), (2, 5, 24), (2, 4), r"a mask \(2, 4\)"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    refiner: ContextRefiner, queries: Any, contexts: Any, mask: Any, named: str
) -> None:
    with pytest.raises(RefinementError, match=named):
        refiner.attend(np.zeros(queries), np.zeros(contexts), np.full(mask, True))


@pytest.mark.parametrize(("ids", "rows"), [([[70]], [0]), ([[1]], [70]), ([[1]], [-1])])
def test_positions_outside_of_the_gallery_are_refused(
    refiner: ContextRefiner, gallery: tuple[np.ndarray, np.ndarray], ids: Any, rows: Any
) -> None:
    with pytest.raises(RefinementError, match="must name items 0 to 69"):
        refiner.refine_gallery(gallery[0], np.array(ids), rows=np.array(rows))


def test_a_bundle_without_a_refiner_says_how_to_train_one(tiny_bundle: ModelBundle) -> None:
    with pytest.raises(RefinerNotFoundError, match=r"bundle 'tiny' has no refiner: .*train_refiner"):
        ContextRefiner(tiny_bundle)


@pytest.fixture
def copied(refined_bundle: ModelBundle, tmp_path: Path) -> Path:
    return Path(shutil.copytree(refined_bundle.path, tmp_path / "copied"))


def test_a_refiner_of_another_bundle_is_refused(copied: Path) -> None:
    manifest = json.loads((copied / "bundle.json").read_text())
    manifest["refiner"]["backbone_fingerprint"] = "0123456789abcdef"
    (copied / "bundle.json").write_text(json.dumps(manifest))
    with pytest.raises(RefinerMismatchError, match=r"of bundle 0123456789abcdef, .*train it again"):
        ContextRefiner(ModelBundle.open(copied))


def test_weights_of_another_architecture_are_refused(refined_bundle: ModelBundle, tmp_path: Path) -> None:
    architecture = ContextRefiner(refined_bundle).architecture
    steps = load_weights(refined_bundle.path / "refiner.npy", architecture)
    save_weights(tmp_path / "refiner.npy", steps[:1], architecture)
    with pytest.raises(RefinementError, match="train it again"):
        load_weights(tmp_path / "refiner.npy", architecture)
    (tmp_path / "refiner.npy").write_bytes(b"words")
    with pytest.raises(RefinementError, match="holds no weights"):
        load_weights(tmp_path / "refiner.npy", architecture)
