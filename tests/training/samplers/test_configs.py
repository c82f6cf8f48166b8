"""Configuration of samplers: a batch follows from it, and a loss that needs other batches is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

pytest.importorskip("torch")

from vicinal.training.losses.config import LossConfig
from vicinal.training.losses.registry import check_loss_fits_sampler
from vicinal.training.samplers import SamplerConfig

read = TypeAdapter(SamplerConfig).validate_python
PAIRS = {"kind": "random_pairs", "n_pairs": 10, "p": 0.25}
GROUP = {"kind": "group", "m": 4, "n": 8}


def _refusal(fields: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as caught:
        read(fields)
    return caught.value.errors()[0]["msg"]


@given(batch_size=st.integers(4, 200), per_class=st.integers(2, 12))
def test_sampler_is_accepted_exactly_when_classes_fill_the_batch(batch_size: int, per_class: int) -> None:
    try:
        read({"batch_size": batch_size, "per_class": per_class})
        accepted = True
    except ValidationError:
        accepted = False
    assert accepted == (batch_size % per_class == 0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"batch_size": 30, "per_class": 4}, "per_class 4 does not divide batch_size 30: use 28"),
        (
            {"kind": "hierarchical", "batch_size": 12, "per_class": 4},
            "twice per_class 4 does not divide batch_size 12: use 8",
        ),
        ({"batch_size": 8, "classes_per_source": {"a": 3}}, "batches of 12 images, batch_size is 8"),
        ({"kind": "random_pairs", "p": 1.0}, "less than 1"),
    ],
)
def test_batches_that_cannot_be_are_refused(fields: dict[str, Any], message: str) -> None:
    assert message in _refusal(fields)


@pytest.mark.parametrize("sampler", [GROUP, PAIRS])
@pytest.mark.parametrize("added", [False, True])
def test_batch_design_may_be_left_out_or_be_that_of_the_sampler(sampler: dict[str, Any], added: bool) -> None:
    for arguments in ({"batch_design": read(sampler).batch_design}, {}):
        own = {"name": "balanced_contrastive", "arguments": {"margin": 4.0, **arguments}}
        check_loss_fits_sampler(LossConfig.model_validate({"add": [own]} if added else own), read(sampler))


@pytest.mark.parametrize(
    ("loss", "sampler", "message"),
    [
        ({"name": "balanced_contrastive"}, {}, "set sampler.kind to 'group' or 'random_pairs'"),
        (
            {"name": "balanced_contrastive", "arguments": {"batch_design": {**GROUP, "m": 2}}},
            GROUP,
            "leave batch_design out, or change the sampler",
        ),
        ({"name": "contextual"}, {"per_class": 8}, "set k in loss.arguments to 8, or sampler.per_class to 4"),
        ({"add": ["contextual"]}, PAIRS, "set sampler.kind to 'class_balanced'"),
    ],
)
def test_loss_that_needs_other_batches_is_refused(
    loss: dict[str, Any], sampler: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        check_loss_fits_sampler(LossConfig.model_validate(loss), read(sampler))
