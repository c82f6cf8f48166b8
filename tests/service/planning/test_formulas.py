"""Formulas of what a gallery takes: those of the code that builds it, and unit costs of the raw results."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.speed import fitted_unit_costs
from vicinal.indexer.graph import neighbor_graph, vector_index
from vicinal.service.planning import engines, formulas
from vicinal.service.planning.formulas import COSTS, Range, cost, unit_costs


def test_limits_are_those_of_the_code_that_builds() -> None:
    assert (formulas.FLAT_LIMIT, formulas.EXACT_LIMIT, formulas.N_NEIGHBORS) == (
        vector_index.FLAT_LIMIT,
        neighbor_graph.EXACT_LIMIT,
        neighbor_graph.N_NEIGHBORS,
    )


@pytest.mark.parametrize("dim", [64, 97, 128, 130, 256, 512, 770])
@pytest.mark.parametrize("n", [10_000, 10_001, 50_000, 50_001, 1_000_000, 10**9])
def test_lists_and_codes_are_those_of_the_index_that_is_made(n: int, dim: int) -> None:
    spec = vector_index.automatic_factories(n, dim)[0]
    if spec == "Flat":
        expected = "Flat"
        assert formulas.code_bytes(n, dim) == 4 * dim
    else:
        code = formulas.code_bytes(n, dim)
        expected = f"IVF{formulas.n_lists(n)}," + ("SQ8" if dim % 2 else f"PQ{2 * code}x4fsr")
    assert spec == expected or (dim % 4 and spec == f"IVF{formulas.n_lists(n)},PQ{dim // 2}x4fsr")


@pytest.mark.slow
def test_an_index_has_the_size_of_the_formula(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(200, 64)).repeat(60, axis=0)
    rows += 0.1 * np.random.default_rng(1).normal(size=rows.shape)
    unit = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    index = vector_index.FaissIndex.build(unit)
    index.save(tmp_path / "index")
    assert (tmp_path / "index").stat().st_size == pytest.approx(formulas.index_bytes(len(unit), 64), rel=0.05)


@pytest.mark.parametrize("name", COSTS)
def test_shipped_unit_costs_are_those_of_the_raw_results(name: str) -> None:
    runs = [*fitted_unit_costs.result("unit_costs")["runs"], *fitted_unit_costs.earlier_runs()]
    assert unit_costs()["costs"][name] == fitted_unit_costs.shipped(name, runs)


def test_shipped_constants_are_those_of_the_raw_results() -> None:
    runs = fitted_unit_costs.result("unit_costs")["runs"]
    made = fitted_unit_costs.others(unit_costs()["costs"], runs)
    assert unit_costs()["measured"] == {name: pytest.approx(pair, rel=1e-3) for name, pair in made.items()}


def test_shipped_unit_costs_say_from_which_results_they_are() -> None:
    for name, told in unit_costs()["results"].items():
        result = fitted_unit_costs.result(name)
        assert {key: result[key] for key in told} == told


@pytest.mark.parametrize("name", COSTS)
def test_what_was_measured_lies_in_the_range(name: str) -> None:
    for n, dim, value in fitted_unit_costs.points(name, fitted_unit_costs.result("unit_costs")["runs"]):
        found = cost(name, n, dim)
        assert found.is_measured
        assert 0.99 * found.low <= value <= 1.01 * found.high


@pytest.mark.parametrize("name", COSTS)
@given(n=st.integers(100_001, 10**8), dim=st.integers(32, 512))
def test_four_times_as_many_items_and_longer_ones_never_cost_less(name: str, n: int, dim: int) -> None:
    """Four times, because there are powers of two of lists."""
    found, more, longer = cost(name, n, 4 * dim), cost(name, 4 * n, 4 * dim), cost(name, n, 8 * dim)
    assert 0.0 <= found.low <= found.high
    assert more.high >= found.high
    assert longer.high >= found.high


def test_a_size_that_was_not_measured_is_by_formula() -> None:
    assert not cost("table, bytes", 10**9, 256).is_measured
    assert not cost("table, bytes", 100_000, 4096).is_measured
    assert cost("table, bytes", 100_000, 256).is_measured


def test_a_sum_is_measured_where_all_parts_are() -> None:
    parts = Range(low=1, high=2) + Range(low=3, high=5)
    assert (parts.low, parts.high, parts.is_measured) == (4, 7, True)
    assert not (parts + Range.exactly(1).by_formula()).is_measured


@pytest.mark.parametrize(
    ("n", "dim", "published"),
    [
        # https://github.com/pgvector/pgvector: one item a page.
        (1_000_000, 1536, 8192e6),
        # unrealshape/bachelor-db-benchmark: 550,000 x 1024, 4,249 MiB, with any number of links.
        (550_000, 1024, 4249.43 * 2**20),
    ],
)
def test_graphs_of_pgvector_are_as_large_as_published(n: int, dim: int, published: float) -> None:
    assert engines.postgres_graph_bytes(n, dim) == pytest.approx(published, rel=0.02)


def test_graphs_of_pgvector_are_as_large_as_measured() -> None:
    for run in fitted_unit_costs.result("postgres_costs")["runs"]:
        found = engines.postgres_graph_bytes(run["items"], run["dim"])
        assert found == pytest.approx(run["bytes"]["graph"], rel=0.03)


def test_the_shipped_file_is_json_that_ends_a_line() -> None:
    text = fitted_unit_costs.SHIPPED.read_text(encoding="utf-8")
    assert json.loads(text) == unit_costs()
    assert text.endswith("}\n")
