"""Recall@k surrogate: reference vectors, a loop over triplets, SiMix, and the memory it takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from vicinal.models.errors import ConfigError  # noqa: E402
from vicinal.training.losses import recall_at_k  # noqa: E402
from vicinal.training.losses.recall_at_k import RecallAtKLoss, mix_positives  # noqa: E402
from vicinal.training.losses.soft_ranks import VirtualExamples, classmates  # noqa: E402

Evaluate = Callable[..., tuple[float, NDArray[np.float64]]]
Vectors = dict[str, NDArray[Any]]
KS, SIMIX_KS = (1, 2, 4, 8, 16), (1, 2, 4, 8, 12, 16, 20, 24, 28, 32)
TOLERANCES = {"float64": {"rel": 1e-9, "abs": 1e-12}, "float32": {"rel": 1e-4, "abs": 2e-6}}


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def _slow_loss(
    rows: NDArray[np.float64],
    labels: Sequence[int],
    *,
    ks: Sequence[int] = (1, 2, 4, 8, 16),
    temperature: float = 0.01,
    flaw: str = "",
) -> float:
    """Every query, positive and other item in turn; the rows are compared as they are."""
    cosines = rows @ rows.T
    losses = []
    for q in range(len(rows)):
        database = [z for z in range(len(rows)) if z != q or flaw == "query in its own ranks"]
        positives = [x for x in range(len(rows)) if x != q and labels[x] == labels[q]]
        if not positives:
            continue
        ranks = [
            sum(_sigmoid((cosines[q, z] - cosines[q, x]) / temperature) for z in database if z != x)
            for x in positives
        ]
        recalls = []
        for k in ks:
            reached = sum(_sigmoid(k - 1 - rank) for rank in ranks)
            clipped = reached if flaw == "no clipping" else min(k, reached)
            recalls.append(clipped / (len(positives) if flaw == "all positives" else min(k, len(positives))))
        losses.append(1 - sum(recalls) / len(ks))
    return sum(losses) / len(losses) if losses else 0.0


def _unit(embeddings: NDArray[np.float64]) -> NDArray[np.float64]:
    return embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)


def _fixed_mixtures(monkeypatch: pytest.MonkeyPatch, virtual: VirtualExamples) -> None:
    monkeypatch.setattr(recall_at_k, "mix_positives", lambda *_: virtual)


@pytest.fixture(scope="module")
def vectors(load_vectors: Callable[[str], Vectors]) -> Vectors:
    return load_vectors("rsk")


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_loss_equals_the_reference_vectors(
    vectors: Vectors, value_and_gradient: Evaluate, dtype: str
) -> None:
    value, gradient = value_and_gradient(RecallAtKLoss(), vectors["X"], vectors["labels"], dtype)
    assert value == pytest.approx(float(vectors["plain_paper_loss"]), **TOLERANCES[dtype])
    assert gradient == pytest.approx(vectors["plain_paper_dX"], **TOLERANCES[dtype])


@pytest.mark.parametrize("sizes", [(4, 4, 4, 4), (1, 2, 3, 7, 5), (6,), (1, 1, 1)])
@pytest.mark.parametrize("temperature", [0.01, 0.2])
def test_loss_equals_the_slow_loop(
    make_batch: Callable[..., Any], value_and_gradient: Evaluate, sizes: tuple[int, ...], temperature: float
) -> None:
    """Classes of any sizes; an item without mates is a database item and no query."""
    embeddings, labels = make_batch(sizes)
    loss = RecallAtKLoss(ks=(1, 3, 5), similarity_temperature=temperature)
    value, _ = value_and_gradient(loss, embeddings, labels)
    expected = _slow_loss(_unit(embeddings), labels.tolist(), ks=(1, 3, 5), temperature=temperature)
    assert value == pytest.approx(expected, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("flaw", ["query in its own ranks", "no clipping", "all positives"])
def test_flawed_formula_fails_the_slow_comparison(
    make_batch: Callable[..., Any], value_and_gradient: Evaluate, flaw: str
) -> None:
    """Negative control: each slip shows in the value."""
    # Positives that cannot be told apart share a middle rank, and more than k of them reach it.
    embeddings, labels = make_batch((9, 9), spread=0.001)
    rows, ks = _unit(embeddings), (1, 6)
    value, _ = value_and_gradient(RecallAtKLoss(ks), embeddings, labels)
    assert value == pytest.approx(_slow_loss(rows, labels.tolist(), ks=ks), rel=1e-9)
    assert value != pytest.approx(_slow_loss(rows, labels.tolist(), ks=ks, flaw=flaw), rel=1e-3)


@pytest.mark.parametrize("sizes", [(4, 4, 4), (1, 2, 3, 5), (6,)])
def test_simix_equals_the_slow_loop_over_built_embeddings(
    make_batch: Callable[..., Any],
    value_and_gradient: Evaluate,
    monkeypatch: pytest.MonkeyPatch,
    sizes: tuple[int, ...],
) -> None:
    """Virtual examples as real rows, not normalized again, each a query and a database item."""
    embeddings, labels = make_batch(sizes)
    virtual = mix_positives(classmates(torch.from_numpy(labels), max(sizes)), torch.float64)
    _fixed_mixtures(monkeypatch, virtual)
    rows, kept = _unit(embeddings), virtual.exist.numpy()
    first, second, share = (x.numpy()[kept] for x in (virtual.first, virtual.second, virtual.share))
    mixed = share[:, None] * rows[first] + (1 - share[:, None]) * rows[second]
    value, _ = value_and_gradient(RecallAtKLoss(simix=True), embeddings, labels)
    expected = _slow_loss(np.vstack([rows, mixed]), [*labels, *labels[first]], ks=SIMIX_KS)
    assert value == pytest.approx(expected, rel=1e-9)


@given(sizes=st.lists(st.integers(1, 7), min_size=1, max_size=5), seed=st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_simix_mixes_every_positive_pair_once(sizes: list[int], seed: int) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    virtual = mix_positives(classmates(torch.from_numpy(labels), max(sizes)), torch.float32)
    kept = virtual.exist.numpy()
    mixed = zip(virtual.first.numpy()[kept], virtual.second.numpy()[kept], strict=True)
    positive = [(i, j) for i in range(len(labels)) for j in range(i) if labels[i] == labels[j]]
    assert sorted((max(pair), min(pair)) for pair in mixed) == positive


def test_simix_draws_anew_and_follows_the_seed(make_batch: Callable[..., Any]) -> None:
    embeddings, labels = map(torch.from_numpy, make_batch())
    loss = RecallAtKLoss(simix=True)
    torch.manual_seed(3)
    drawn = [loss(embeddings, labels).item() for _ in range(2)]
    torch.manual_seed(3)
    assert drawn[0] == loss(embeddings, labels).item() != drawn[1]


@pytest.mark.parametrize("simix", [False, True])
def test_gradient_equals_finite_differences(
    make_batch: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, simix: bool
) -> None:
    embeddings, labels = map(torch.from_numpy, make_batch((1, 2, 5)))
    _fixed_mixtures(monkeypatch, mix_positives(classmates(labels, 5), torch.float64))
    loss = RecallAtKLoss(similarity_temperature=0.2, simix=simix)
    assert torch.autograd.gradcheck(lambda rows: loss(rows, labels), embeddings.requires_grad_())


@pytest.mark.parametrize("simix", [False, True])
def test_blocks_do_not_change_the_result(
    make_batch: Callable[..., Any],
    value_and_gradient: Evaluate,
    monkeypatch: pytest.MonkeyPatch,
    simix: bool,
) -> None:
    embeddings, labels = make_batch((3, 4, 6))
    _fixed_mixtures(monkeypatch, mix_positives(classmates(torch.from_numpy(labels), 6), torch.float64))
    whole = value_and_gradient(RecallAtKLoss(simix=simix), embeddings, labels)
    monkeypatch.setattr("vicinal.training.losses.soft_ranks._BLOCK", 300)
    blocks = value_and_gradient(RecallAtKLoss(simix=simix), embeddings, labels)
    assert blocks[0] == pytest.approx(whole[0], rel=1e-12)
    assert blocks[1] == pytest.approx(whole[1], rel=1e-9, abs=1e-14)


class _LargestTensor(TorchDispatchMode):
    """Notes the number of elements of the largest tensor that comes out of an operation."""

    largest = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, Tensor):
                # Expanded views take no memory of their own.
                self.largest = max(self.largest, tensor.untyped_storage().nbytes() // tensor.itemsize)
        return result


@pytest.mark.parametrize("simix", [False, True])
def test_no_tensor_grows_faster_than_the_similarities(
    make_batch: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, simix: bool
) -> None:
    """With blocks of n^2 elements nothing is larger: not for the ranks, and not for virtual examples."""
    embeddings, labels = map(torch.from_numpy, make_batch((4,) * 48))
    monkeypatch.setattr("vicinal.training.losses.soft_ranks._BLOCK", len(labels) ** 2)
    with _LargestTensor() as seen:
        RecallAtKLoss(simix=simix)(embeddings.requires_grad_(), labels).backward()
    assert seen.largest == len(labels) ** 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ks": ()}, "one or more ranks"),
        ({"ks": (0, 1)}, "ranks from 1 on"),
    ],
)
def test_arguments_without_meaning_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RecallAtKLoss(**arguments)
