"""`plan`: what a gallery takes, which way it is served, and where one machine no longer does."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from vicinal.service.errors import RequestError
from vicinal.service.operations.plan import Figure, Plan, Request, run

BYTES = ("memory of a process", "memory of a replica", "disk of a replica", "memory of a build")
TIMES = ("build on one core", "build on one machine")


def plan(items: int = 1_000_000, dim: int = 512, qps: float = 50.0, **more: Any) -> Plan:
    return run(Request(items=items, dim=dim, qps=qps, **more))


@given(n=st.integers(100_001, 10**8), dim=st.integers(32, 500), qps=st.floats(0, 1e5), refine=st.booleans())
def test_more_items_longer_ones_and_more_searches_never_take_less(
    n: int, dim: int, qps: float, refine: bool
) -> None:
    """With one engine: where another takes the index over, more processes have room."""
    options = {"refine": refine, "engine": "faiss"}
    base = plan(n, 4 * dim, qps, **options)
    for more in (plan(4 * n, 4 * dim, qps, **options), plan(n, 8 * dim, qps, **options)):
        assert more.replicas >= base.replicas
        assert more.build_machines >= base.build_machines
        assert len(more.limits) >= len(base.limits)
        # A replica has fewer processes where each is larger.
        for name in (set(BYTES) - {"memory of a replica"}) | set(TIMES):
            assert more.figure(name).high >= base.figure(name).high
        assert more.figure("searches of a process").low <= base.figure("searches of a process").low
    busier = plan(n, 4 * dim, 2 * qps, **options)
    assert busier.replicas >= base.replicas
    assert busier.figures == base.figures


@given(n=st.integers(1, 2**31 - 1), dim=st.integers(1, 65_536), engine=st.sampled_from(["auto", "faiss"]))
def test_every_figure_is_a_range_above_nothing(n: int, dim: int, engine: Any) -> None:
    for figure in plan(n, dim, engine=engine).figures:
        assert 0.0 < figure.low <= figure.high
        assert figure.unit in ("bytes", "hours", "searches/s")


@pytest.mark.parametrize("n", [1_000_000, 10_000_000, 100_000_000, 1_000_000_000])
def test_vectors_alone_are_on_the_disk_twice(n: int) -> None:
    """Units: bytes, of float32."""
    assert plan(n).figure("disk of a replica").low > 2 * 4 * n * 512


def test_refined_galleries_and_pictures_take_more() -> None:
    base, refined, pictures = plan(), plan(refine=True), plan(images=True)
    for name in ("disk of a replica", "build on one core"):
        assert refined.figure(name).low > base.figure(name).low
        assert pictures.figure(name).low > base.figure(name).low
    assert pictures.figure("searches of a process").high < base.figure("searches of a process").low


def test_a_slower_model_takes_longer() -> None:
    quick, slow = plan(images=True, embed_ms=5.0), plan(images=True, embed_ms=50.0)
    assert slow.figure("build on one core").low > 5 * quick.figure("build on one core").low
    assert slow.figure("searches of a process").high < quick.figure("searches of a process").low


def test_a_small_gallery_is_served_by_one_machine_without_limits() -> None:
    found = plan(100_000, 256, 10)
    assert (found.way, found.replicas, found.shards, found.build_machines) == ("one machine", 1, 0, 1)
    assert found.limits == ()


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"qps": 1e5}, "searches"),
        ({"spare": 1}, "uptime"),
        ({"items": 10_000_000, "cores": 2, "build_hours": 0.5}, "build hours"),
        ({"items": 10_000_000, "memory_gb": 8}, "memory of a build"),
        ({"disk_gb": 1}, "disk"),
        ({"items": 1_000_000_000}, "memory"),
        ({"engine": "postgres", "memory_gb": 2}, "memory of PostgreSQL"),
    ],
)
def test_the_limit_that_is_reached_is_named(options: dict[str, Any], limit: str) -> None:
    assert any(one.startswith(f"{limit}: ") for one in plan(**options).limits)


def test_searches_and_uptime_take_replicas_over_a_home() -> None:
    found = plan(qps=10_000, spare=2)
    assert found.way == "replicas"
    assert found.replicas == plan(qps=10_000).replicas + 2


def test_an_index_beyond_the_memory_of_a_machine_goes_to_an_engine() -> None:
    found = plan(1_000_000_000, 512)
    assert found.way == "milvus"
    assert found.shards * 64e9 >= found.figure("memory of the engine").high


@pytest.mark.parametrize("engine", ["postgres", "milvus"])
def test_an_engine_that_is_named_is_taken(engine: Any) -> None:
    found = plan(engine=engine)
    assert found.way == engine
    assert found.figure("memory of the engine").low > 4 * 512 * 1_000_000
    assert any("beside an engine" in one for one in found.notes)


def test_what_was_measured_and_what_not_is_told() -> None:
    assert plan(100_000, 256).figure("disk of a replica").is_measured
    far = plan(100_000_000)
    assert not any(one.is_measured for one in far.figures)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"items": 2**31}, "a gallery holds at most 2,147,483,647 items"),
        ({"dim": 3000, "engine": "postgres"}, "engine 'postgres' takes vectors of at most 2,000 numbers"),
        ({"embed_ms": 5.0}, "ready embeddings have no pictures"),
        ({"picture_bytes": 5.0}, "ready embeddings have no pictures"),
    ],
)
def test_an_impossible_wish_is_refused_in_a_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RequestError, match=re.escape(sentence)):
        plan(**options)


@pytest.mark.parametrize(
    "options", [{"items": 0}, {"dim": 0}, {"qps": -1.0}, {"qps": float("nan")}, {"memory_gb": 0.0}]
)
def test_a_number_that_is_none_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        plan(**options)


@pytest.mark.parametrize(
    ("low", "high", "unit", "words"),
    [
        (1e9, 2.5e12, "bytes", "1.0 GB to 2.5 TB"),
        (0.5, 90.0, "hours", "30.0 minutes to 90.0 hours"),
        (123.4, 123.4, "searches/s", "123 searches/s"),
        (5e5, 5e6, "bytes", "500 kB to 5.0 MB"),
    ],
)
def test_a_range_in_words(low: float, high: float, unit: str, words: str) -> None:
    assert Figure(name="it", unit=unit, low=low, high=high, is_measured=True).span == words
