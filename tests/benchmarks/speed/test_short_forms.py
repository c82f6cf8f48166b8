"""Benchmarks of speed at tiny sizes: they run, and what they let be compared are numbers."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from benchmarks.common.record import RESULTS
from benchmarks.speed import (
    cost_by_size,
    decoding_memory,
    fitted_unit_costs,
    index_throughput,
    start_up,
    unit_costs,
)
from tests.indexer.filters.hostile import NO_FILTERS
from tests.postgres_server import PostgresServer
from vicinal.indexer.sources import SourceItem, read_source

pytestmark = pytest.mark.slow

ShortForm = Callable[..., dict[str, Any]]

SERVED = ("--items", 300, "--dim", 16, "--queries", 6)


def ratios(result: dict[str, Any]) -> list[str]:
    """Their names; each is a positive number."""
    assert all(math.isfinite(value) and value > 0.0 for value in result["ratios"].values())
    return list(result["ratios"])


def test_index_recall(short_form: ShortForm) -> None:
    result = short_form("speed.index_recall", "--items", 1500, "--dim", 32, "--queries", 5)
    assert ratios(result) == ["flat over what auto picks"]
    assert result["rows"][0]["recall_at_10"] == 1.0


def test_index_recall_of_embeddings_in_a_file(short_form: ShortForm, tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(1500, 32)).astype(np.float32)
    np.save(tmp_path / "photos.npy", vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    options = ("--queries", 5, "--embeddings", tmp_path / "photos.npy")
    result = short_form("speed.index_recall", *options)
    assert (result["name"], result["items"], result["dim"]) == ("index_recall_photos", 1495, 32)


def test_nothing_is_kept_where_none_is_asked_for(short_form: ShortForm) -> None:
    options = ("--items", 1500, "--dim", 32, "--queries", 5, "--no-result")
    assert short_form("speed.index_recall", *options) == {}


def test_ready_embeddings(short_form: ShortForm, tmp_path: Path) -> None:
    options = ("--items", 500, "--dim", 16, "--probes", 20, "--folder", tmp_path / "ready")
    result = short_form("speed.ready_embeddings", *options)
    assert ratios(result) == [
        "all pairs over neighbor lists, 500 items",
        "all items over the index, 500 items",
    ]
    assert result["runs"][0]["listed"]["recall_at_32"] == 1.0


def test_query_stages(short_form: ShortForm) -> None:
    # The first twenty do not count.
    result = short_form("speed.query_stages", *SERVED)
    assert ratios(result) == ["index over all stages", "all stages over the request"]


def test_group_decisions(short_form: ShortForm) -> None:
    result = short_form("speed.group_decisions", *SERVED, "--labels", 100)
    assert len(ratios(result)) == 4


def test_hostile_filters(short_form: ShortForm) -> None:
    result = short_form("speed.hostile_filters", "--filters", len(NO_FILTERS))
    # Each is asked for three times.
    assert result["hostile"]["statuses"] == {"422": 3 * len(NO_FILTERS)}
    assert not any(status.startswith("5") for status in result["costly"]["statuses"])


def test_start_up(short_form: ShortForm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_up, "CACHES", ("warm",))
    monkeypatch.setattr(start_up, "N_ADDED", 20)
    monkeypatch.setattr(start_up, "N_REMOVED", 5)
    options = ("--items", 1200, "--dim", 16, "--repeats", 1, "--folder", tmp_path / "start")
    result = short_form("speed.start_up", *options)
    assert ratios(result) == ["imports over a start, as built", "imports over a start, with live changes"]


def test_swap_under_load(short_form: ShortForm) -> None:
    options = (
        "--items",
        20,
        "--rate",
        10,
        "--seconds",
        1,
        "--ways",
        "server",
        "--turns",
        0,
        "--warm-up",
        0.5,
    )
    result = short_form("speed.swap_under_load", *options)
    assert ratios(result) == ["median before over during, server"]
    assert (result["ways"]["server"]["failed"], result["ways"]["server"]["wrong_version"]) == ([], 0)


def test_calibration_memory(short_form: ShortForm) -> None:
    result = short_form("speed.calibration_memory", "--items", 1200, "--dim", 16, "--queries", 50)
    # Every query against all others but itself, nine of which are mates.
    assert result["runs"][0]["n_negative_pairs"] == 50 * (1200 - 10)
    assert result["runs"][0]["peak_resident_mebibytes"] >= result["runs"][0]["mebibytes_before"] > 0


def test_decoding_memory(short_form: ShortForm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding_memory, "SIDES", (80, 50))
    result = short_form("speed.decoding_memory", "--pictures", "JPEG RGB", "PNG L")
    rows = result["runs"]["now"]["pictures"]
    assert [row["outcome"] for row in rows.values()] == ["embedded", "embedded"]


def test_decoding_costs(short_form: ShortForm) -> None:
    result = short_form("speed.decoding_costs", "--width", 80, "--repetitions", 2)
    assert ratios(result) == [
        "JPEG, sRGB over JPEG",
        "JPEG, Display P3 over JPEG",
        "PNG, sRGB over PNG",
        "PNG, Display P3 over PNG",
        "PNG, 16 bits over PNG",
        "PNG, gray of 16 bits over PNG, gray",
        "blank test over JPEG",
        "blank test of a blank picture over JPEG",
    ]


def test_crash_run(short_form: ShortForm) -> None:
    with pytest.raises(SystemExit) as end:
        short_form("speed.crash_run", "--kills", 1, "--no-result")
    assert end.value.code == 0


def test_index_throughput(short_form: ShortForm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(data: Path, folder: Path) -> list[SourceItem]:
        rng = np.random.default_rng(0)
        for number in range(4):
            (folder / "drawn").mkdir(exist_ok=True)
            pixels = rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "drawn" / f"{number}.png")
        return list(read_source(folder / "drawn"))

    monkeypatch.setattr(index_throughput, "photos", drawn)
    result = short_form("speed.index_throughput", "--data", tmp_path, "--side", 80, "--rounds", 1)
    assert ratios(result) == [
        "job over the slower part",
        "processor time of the job over decoding and embedding alone",
    ]
    assert result["photos"] == 4


def test_cost_by_size(short_form: ShortForm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_by_size, "N_STARTS", 1)
    monkeypatch.setattr(cost_by_size, "N_SAMPLED", 400)
    monkeypatch.setattr(cost_by_size, "in_fresh_process", lambda function, *given: function(*given))
    result = short_form("speed.cost_by_size", "--sizes", 400, 600, "--dim", 16, "--queries", 64)
    assert len(ratios(result)) == 10
    for run in result["runs"]:
        assert {"calibration, 400 queries, s", "calibration, every item, s"} <= run["costs"].keys()
        assert min(run["costs"].values()) > 0.0
    assert result["exponents"]["build, all, s"]["sizes"] == [400, 600]
    assert list(tmp_path.glob("*/galleries")) == []


def test_hard_calibrations(short_form: ShortForm) -> None:
    """The present state beside itself: what it finds is the same."""
    options = ("--against", Path(__file__).parents[3], "--cases", "long off 200", "--rounds", 1, "--alone")
    result = short_form("speed.hard_calibrations", *options)
    case = result["cases"]["long off 200"]
    assert case["are_equal"]
    assert set(case["runs"]) == {"before", "after"}


def test_block_scores(short_form: ShortForm) -> None:
    short_form("speed.block_scores", "--items", 300, "--dim", 16, "--queries", 64)


def test_an_exponent_is_the_slope_of_the_logarithms() -> None:
    runs = [{"items": n, "costs": {"linear": 3.0 * n, "square": n * n, "once": 1.0}} for n in (10, 100, 1000)]
    for run in runs[1:]:
        del run["costs"]["once"]
    del runs[0]["costs"]["square"]
    assert cost_by_size.exponents(runs) == {
        "linear": {"exponent": 1.0, "sizes": [10, 100, 1000]},
        "square": {"exponent": 2.0, "sizes": [100, 1000]},
    }


def test_engines(short_form: ShortForm, tmp_path: Path) -> None:
    """Milvus, which takes long to start, comes the same way."""
    options = ("--items", 400, "--dim", 16, "--engines", "faiss", "postgres", "over", "--connections", 2)
    options += ("--seconds", 1.2, "--turns", 1, "--folder", tmp_path / "engines")
    result = short_form("speed.engines", *options)
    assert len(ratios(result)) == 12
    assert min(run["recall_of_ten"] for run in result["runs"].values()) > 0.9


def test_engine_recall(short_form: ShortForm, postgres: PostgresServer) -> None:
    options = ("--address", postgres.url(), "--items", 300, "--dim", 16, "--queries", 5)
    row = short_form("speed.engine_recall", *options)["rows"][0]
    assert [share["percent"] for share in row["shares"]] == [100, 50, 20, 5]
    assert min(share["recall_at_10"] for share in row["shares"]) > 0.9


def test_postgres_costs(short_form: ShortForm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    postgres_costs = pytest.importorskip("benchmarks.speed.postgres_costs")
    monkeypatch.setattr(postgres_costs, "_LITTLE", 2**20)
    monkeypatch.setattr(postgres_costs, "_N_QUERIES", 10)
    options = ("--sizes", 4000, "--dims", 8, "--folder", tmp_path)
    run = short_form("speed.postgres_costs", *options)["runs"][0]
    assert run["bytes"]["graph"] > 4000 * 8 * 4
    assert 8 * 4 < run["build"]["bytes of an item"] < 1000


def test_unit_costs_are_measured_once(
    short_form: ShortForm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(unit_costs, "in_fresh_process", lambda function, *given: function(*given))
    monkeypatch.setattr(unit_costs, "RESULTS", tmp_path / "results")
    options = ("--sizes", 400, "--dims", 16, "--queries", 64, "--folder", tmp_path)
    run = short_form("speed.unit_costs", *options)["runs"][0]
    assert run["bytes"]["embeddings.npy"] > 400 * 16 * 4
    assert run["searches"]["milliseconds"]["re-ranked"]["of 1"]
    monkeypatch.setattr(unit_costs, "measured", pytest.fail)
    assert short_form("speed.unit_costs", *options)["runs"][0] == run


def test_the_unit_costs_that_ship_are_those_of_the_raw_results(
    short_form: ShortForm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shipped = fitted_unit_costs.SHIPPED.read_text(encoding="utf-8")
    monkeypatch.setattr(fitted_unit_costs, "SHIPPED", tmp_path / "unit_costs.json")
    result = short_form("speed.fitted_unit_costs")
    assert json.loads((tmp_path / "unit_costs.json").read_text(encoding="utf-8")) == json.loads(shipped)
    kept = json.loads((RESULTS / "unit_costs_check.json").read_text(encoding="utf-8"))
    assert result["not fitted to"] == kept["not fitted to"]


def test_thumbnail_bytes(short_form: ShortForm, tmp_path: Path) -> None:
    for name in ("grocery", "dogfacenet"):
        (tmp_path / name).mkdir()
        picture = BytesIO()
        Image.new("RGB", (900, 600), "teal").save(picture, "JPEG")
        with zipfile.ZipFile(tmp_path / name / "test.zip", "w") as archive:
            archive.writestr("1.jpg", picture.getvalue())
    sets = short_form("speed.thumbnail_bytes", "--data", tmp_path)["sets"]
    assert sets["grocery"]["files"] == 1
    assert 0 < sets["grocery"]["bytes of a thumbnail"] < sets["drawn"]["bytes of a thumbnail"]


def test_ray_build(short_form: ShortForm, tmp_path: Path) -> None:
    pytest.importorskip("ray.cluster_utils")
    options = ("--n-photos", 8, "--n-ready", "--photos", tmp_path / "drawn", "--folder", tmp_path / "ray")
    result = short_form("speed.ray_build", *options)
    assert result["runs"][0]["compared"]["same_ids"]
    assert result["runs"][0]["compared"]["share_of_same_lists"] == [1.0, 1.0]
