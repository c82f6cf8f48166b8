"""Pipeline: what a threshold means, and which pipeline a call uses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from vicinal.service.search.pipeline import Pipeline, Rerank, choose_pipeline

RERANKS = st.builds(
    Rerank,
    method=st.sampled_from(["off", "contextual"]),
    k=st.integers(2, 32),
    beta=st.floats(0.0, 1.0),
    eps=st.floats(0.0, 4.0),
)
SETTINGS = {"off": (), "contextual": ("k", "beta", "eps")}


def decisive(rerank: Rerank) -> tuple[object, ...]:
    """The settings that change a score."""
    return rerank.method, *(repr(getattr(rerank, name)) for name in SETTINGS[rerank.method])


@given(RERANKS, RERANKS)
def test_pipelines_share_a_key_only_when_they_score_alike(first: Rerank, second: Rerank) -> None:
    same_key = Pipeline(rerank=first).key == Pipeline(rerank=second).key
    assert same_key == (decisive(first) == decisive(second))


@pytest.mark.parametrize("changed", [{"k": 9}, {"beta": float(np.nextafter(0.3, 1.0))}, {"eps": 1e-9}])
def test_the_smallest_change_of_a_setting_is_another_pipeline(changed: dict[str, float]) -> None:
    rerank = Rerank(k=8, beta=0.3, eps=0.0)
    assert Pipeline(rerank=rerank.model_copy(update=changed)).key != Pipeline(rerank=rerank).key


@pytest.mark.parametrize("method", ["off", "contextual"])
def test_a_chosen_method_keeps_the_settings_of_the_service(method: str) -> None:
    default = Pipeline(rerank=Rerank(k=5, beta=0.7))
    chosen = choose_pipeline(default, method).rerank
    assert chosen == default.rerank.model_copy(update={"method": method})


@pytest.mark.parametrize(
    "fields",
    [
        {"k": 1},
        {"k": 33},
        {"beta": -0.1},
        {"beta": 1.1},
        {"eps": -1.0},
        {"kk": 8},
    ],
)
def test_settings_out_of_range_and_unknown_ones_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Rerank.model_validate(fields)
