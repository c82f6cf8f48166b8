"""Pipeline: what a threshold means, and which pipeline a call uses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.service.pipelines import CONTEXTUAL
from vicinal.models.bundle import ModelBundle
from vicinal.service.errors import RequestError
from vicinal.service.search.pipeline import Pipeline, Refine, Rerank, choose_pipeline, service_pipeline

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


def test_an_unknown_method_is_refused_by_name() -> None:
    with pytest.raises(RequestError, match="'k_means', expected auto, off or contextual"):
        choose_pipeline(Pipeline(), "k_means")


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


@pytest.mark.parametrize("refine", ["off", "gallery", "query", "both"])
def test_a_call_chooses_what_is_refined(refiner_bundle: ModelBundle, refine: str) -> None:
    default = service_pipeline(Pipeline(), refiner_bundle)
    chosen = choose_pipeline(default, "auto", refine=refine, bundle=refiner_bundle)
    assert (chosen.refine.sides, chosen.rerank) == (refine, default.rerank)
    assert choose_pipeline(chosen, "auto", refine="both", bundle=refiner_bundle) == default


def test_sides_steps_and_refiner_are_part_of_the_key(refiner_bundle: ModelBundle) -> None:
    refine = service_pipeline(Pipeline(), refiner_bundle).refine
    others: list[dict[str, object]] = [{"sides": "query"}, {"steps": 1}, {"refiner": "0123456789abcdef"}]
    keys = {Pipeline(refine=refine.model_copy(update=one)).key for one in [{}, *others]}
    assert len(keys | {CONTEXTUAL.key}) == 5


@pytest.mark.parametrize(
    "fields", [{"sides": "query"}, {"steps": 2}, {"sides": "both", "steps": 2}, {"sides": "off", "steps": -1}]
)
def test_refinement_without_refiner_or_steps_is_no_pipeline(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Refine.model_validate(fields)
