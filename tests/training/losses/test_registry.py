"""Registry: what every loss keeps to, and how losses are put together by a configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

torch = pytest.importorskip("torch")
pytest.importorskip("pytorch_metric_learning")

from torch import Tensor, nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from vicinal.models.errors import ConfigError  # noqa: E402
from vicinal.training.losses.config import LossConfig  # noqa: E402
from vicinal.training.losses.registry import (  # noqa: E402
    available_losses,
    build_loss,
    check_loss_fits_sampler,
    loss_arguments,
)
from vicinal.training.refiner.config import RefinerRecipe  # noqa: E402
from vicinal.training.samplers import SamplerConfig  # noqa: E402

Evaluate = Callable[..., tuple[float, NDArray[np.float64]]]
FACTS = {"n_classes": 4, "dim": 6, "class_sizes": [4, 9, 5, 6], "max_per_class": 4}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "arcface": {},
    "balanced_contrastive": {"batch_design": {"kind": "group", "m": 4, "n": 4}, "margin": 4.0},
    "circle": {},
    "contextual": {},
    "contrastive": {},
    "cosface": {},
    "cosine_contrastive": {},
    "cross_batch_memory": {"loss": "contrastive", "memory_size": 40},
    "fast_ap": {},
    "margin": {},
    "mean_similarity": {},
    "multi_similarity": {},
    "normalized_softmax": {},
    "proxy_anchor": {},
    "proxy_nca": {},
    "recall_at_k": {},
    "smooth_ap": {},
    "threshold_consistent_margin": {},
    "triplet": {},
}
WRONG_TRIPLET = {"name": "triplet", "arguments": {"swap": 3}}
ANY_BATCH = ["contextual", "mean_similarity", "threshold_consistent_margin"]
OWN = ["balanced_contrastive", "recall_at_k", "smooth_ap", *ANY_BATCH]
every_loss = pytest.mark.parametrize("name", list(ARGUMENTS))


def _build(name: str, **changes: Any) -> nn.Module:
    torch.manual_seed(0)
    return build_loss(LossConfig(name=name, arguments={**ARGUMENTS[name], **changes}), **FACTS)


def _breaks_contract(loss: Callable[[Tensor, Tensor], Tensor], batch: tuple[Any, Any]) -> str:
    """What is wrong with the loss of a batch, or nothing."""
    embeddings, labels = torch.from_numpy(batch[0]).requires_grad_(), torch.from_numpy(batch[1])
    value = loss(embeddings, labels)
    if value.shape != () or value.dtype != embeddings.dtype or not torch.isfinite(value):
        return f"value {value}"
    value.backward()
    if not torch.isfinite(embeddings.grad).all():
        return "gradient"
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    shuffled = loss(embeddings.detach()[order], labels[order]).item()
    return "" if shuffled == pytest.approx(value.item(), rel=1e-9) else "order"


def test_contract_is_tested_for_every_loss() -> None:
    assert sorted(ARGUMENTS) == available_losses()


@every_loss
@pytest.mark.parametrize("spread", [0.3, 1.0, 3.0])
def test_loss_is_a_finite_scalar_that_does_not_depend_on_the_order(
    make_batch: Callable[..., Any], name: str, spread: float
) -> None:
    # Each call gets a loss of its own: a memory would hold the batch before.
    assert _breaks_contract(lambda *batch: _build(name)(*batch), make_batch(spread=spread)) == ""


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (lambda rows, _: rows.sum(dim=1), "value"),
        (lambda rows, _: rows.sum() / 0, "value"),
        (lambda rows, _: (rows - rows).norm(dim=1).sqrt().sum(), "gradient"),
        (lambda rows, _: rows[0].sum(), "order"),
        (lambda rows, _: rows.float().square().sum(), "value"),
    ],
)
def test_wrong_losses_break_the_contract(
    make_batch: Callable[..., Any], wrong: Callable[[Tensor, Tensor], Tensor], what: str
) -> None:
    """Negative control of the test above."""
    assert _breaks_contract(wrong, make_batch()).startswith(what)


@every_loss
@pytest.mark.parametrize("rows", ["duplicates", "zeros", "copies of a class"])
def test_degenerate_batch_has_a_finite_gradient(value_and_gradient: Evaluate, name: str, rows: str) -> None:
    labels = np.repeat(np.arange(4), 4)
    classes = np.random.default_rng(0).normal(size=(4, 6))
    embeddings = {
        "duplicates": np.ones((16, 6)),
        "zeros": np.zeros((16, 6)),
        "copies of a class": classes[labels],
    }
    value, gradient = value_and_gradient(_build(name), embeddings[rows], labels, "float32")
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()


@every_loss
def test_autocast_changes_nothing(make_batch: Callable[..., Any], name: str) -> None:
    """Embeddings come in bfloat16 from the network; what follows is computed in float32."""
    embeddings, labels = make_batch()
    short = torch.from_numpy(embeddings).bfloat16().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        value = _build(name)(short, torch.from_numpy(labels))
    value.backward()
    assert short.grad.dtype == torch.bfloat16
    assert torch.isfinite(short.grad).all()
    expected = _build(name)(short.detach().float(), torch.from_numpy(labels))
    assert (value.dtype, value.item()) == (torch.float32, expected.item())


@pytest.mark.parametrize("name", [name for name in ARGUMENTS if name != "balanced_contrastive"])
def test_length_of_the_rows_does_not_matter(
    make_batch: Callable[..., Any], value_and_gradient: Evaluate, name: str
) -> None:
    embeddings, labels = make_batch()
    lengths = np.random.default_rng(1).uniform(0.2, 5.0, (16, 1))
    value, _ = value_and_gradient(_build(name), embeddings, labels)
    scaled, _ = value_and_gradient(_build(name), lengths * embeddings, labels)
    assert scaled == pytest.approx(value, rel=1e-9)


class _NoWaiting(TorchDispatchMode):
    """Refuses what would make the host wait for an accelerator."""

    waiting = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "is_nonzero", "equal", "bincount")

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.__name__.partition(".")[0]
        indices = args[1] if name in ("index", "index_put", "index_put_") else []
        if name.startswith(self.waiting) or any(x is not None and x.dtype == torch.bool for x in indices):
            raise AssertionError(f"{function} waits for the accelerator")
        return function(*args, **(kwargs or {}))


def _without_waiting(loss: Callable[[Tensor, Tensor], Tensor], batch: tuple[Any, Any]) -> Tensor:
    embeddings, labels = torch.from_numpy(batch[0]).requires_grad_(), torch.from_numpy(batch[1])
    with _NoWaiting():
        value = loss(embeddings, labels)
        value.backward()
    return value.detach()


@pytest.mark.parametrize("name", [*OWN, "recall_at_k with SiMix", "smooth_ap with SiMix"])
def test_host_does_not_wait_for_an_accelerator(
    make_batch: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Shown on the CPU: labels are taken as unreadable, and operations that read values are refused."""
    monkeypatch.setattr("vicinal.training.losses.base.readable", lambda _: False)
    loss = _build(name.split()[0], **({"simix": True} if "SiMix" in name else {}))
    assert torch.isfinite(_without_waiting(loss, make_batch()))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda rows, _: rows.sum() * rows.max().item(),
        lambda rows, labels: rows[labels == 0].sum(),
        lambda rows, labels: rows.sum() if (labels == 0).any() else rows.mean(),
        lambda rows, labels: rows[torch.nonzero(labels)].sum(),
    ],
)
def test_losses_that_look_at_values_are_caught(
    make_batch: Callable[..., Any], wrong: Callable[[Tensor, Tensor], Tensor]
) -> None:
    """Negative control of the test above."""
    with pytest.raises(AssertionError, match="waits for the accelerator"):
        _without_waiting(wrong, make_batch())


@pytest.mark.parametrize("name", [name for name in OWN if name not in ANY_BATCH])
def test_wrong_batch_is_nan_where_labels_cannot_be_read(
    make_batch: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("vicinal.training.losses.base.readable", lambda _: False)
    assert torch.isnan(_without_waiting(_build(name), make_batch((5, 3, 4, 4))))


@every_loss
@pytest.mark.parametrize(
    ("embeddings", "labels"),
    [((0, 6), (0,)), ((4,), (4,)), ((4, 6), (3,)), ((4, 6), (4, 1)), ((1, 4, 6), (1,))],
)
def test_shapes_that_are_no_batch_are_refused(
    name: str, embeddings: tuple[int, ...], labels: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match=r"expects embeddings \(n, d\) and labels \(n,\)"):
        _build(name)(torch.ones(embeddings), torch.ones(labels, dtype=torch.long))


def test_additions_are_weighted_and_summed(make_batch: Callable[..., Any]) -> None:
    batch = tuple(map(torch.from_numpy, make_batch()))
    config = LossConfig.model_validate(
        {
            "name": "recall_at_k",
            "arguments": {"ks": [1, 2]},
            "add": [
                {"name": "threshold_consistent_margin", "weight": 0.5, "arguments": {"neg_margin": 0.2}},
                {"name": "contextual"},
            ],
        }
    )
    parts = [
        _build("recall_at_k", ks=[1, 2])(*batch),
        0.5 * _build("threshold_consistent_margin", neg_margin=0.2)(*batch),
        _build("contextual")(*batch),
    ]
    assert build_loss(config, **FACTS)(*batch).item() == pytest.approx(sum(parts).item(), rel=1e-12)


@every_loss
@pytest.mark.parametrize("wrong", ["a", [[1]], float("nan"), {"x": "y"}], ids=str)
def test_an_argument_of_another_type_is_refused_by_name(name: str, wrong: Any) -> None:
    for argument in loss_arguments(name).keys() - {"loss"}:
        with pytest.raises(ConfigError, match=f"'{name}': {argument} is "):
            _build(name, **{argument: wrong})


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        ({"arguments": {"mining_margin": "none"}}, "mining_margin is 'none': .*valid number"),
        ({"name": "circle", "arguments": {"margin": "a"}}, "'circle': margin is 'a': .*valid number"),
        ({"name": "recall_at_k", "arguments": {"ks": [4.5]}}, r"ks is \[4.5\]: .*valid integer"),
        ({"add": [{"name": "tcm", "arguments": {"pairs": "some"}}]}, "pairs is 'some': .*'all' or"),
        ({"name": "cross_batch_memory", "arguments": {"loss": "triplet", "memory_size": -1}}, "memory_size"),
        ({"name": "cross_batch_memory", "arguments": {"loss": WRONG_TRIPLET}}, "'triplet': swap is 3: "),
        ({"name": "fast_ap", "arguments": {"bins": 0}}, "bins is 0: .*greater than 0"),
        ({"name": "recall_at_k", "arguments": {"rank_temperature": 0.0}}, "rank_temperature is 0.0"),
        ({"name": "hinge"}, "unknown loss 'hinge': choose one of .*multi_similarity"),
    ],
)
def test_both_recipes_refuse_a_wrong_argument_when_they_are_read(loss: dict[str, Any], message: str) -> None:
    sampler = TypeAdapter(SamplerConfig).validate_python({"kind": "group"})
    with pytest.raises(ConfigError, match=message):
        check_loss_fits_sampler(LossConfig.model_validate(loss), sampler)
    with pytest.raises(ValidationError, match=message):
        RefinerRecipe.model_validate({"loss": loss})


@pytest.mark.parametrize(
    ("name", "missing"),
    [("arcface", "n_classes"), ("proxy_anchor", "dim"), ("balanced_contrastive", "class_sizes")],
)
def test_loss_that_lacks_facts_of_the_data_names_them(name: str, missing: str) -> None:
    with pytest.raises(ConfigError, match=f"loss '{name}': .*{missing}"):
        build_loss(LossConfig(name=name, arguments=ARGUMENTS[name]))
