"""Benchmarks of speed and comparisons with peers at tiny sizes: they run, and give numbers."""

from __future__ import annotations

import importlib
import math
import re
import shlex
import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from benchmarks.common.cost_meters import Peak
from benchmarks.speed import cost_by_size, index_throughput
from vicinal.indexer.sources import SourceItem, read_source

ROOT = Path(__file__).resolve().parents[2]
ShortForm = Callable[..., dict[str, Any]]


def known_peak(run: Callable[[], object], _device: Any) -> Peak:
    """This process may hold from earlier what such a small part needs: it would grow by nothing."""
    run()
    return Peak(0, 2**26)


def in_this_process(function: Callable[..., Any], *given: Any) -> Any:
    """Instead of a fresh one, whose imports would take longer than all that is measured."""
    return function(*given)


SERVED = "--items 300 --dim 16 --queries 6"
# Names, options in which {folder} is an empty one, and what of the module is made small.
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "peers.http_search": (
        "--folder {folder}/http --items 500 --seconds 1.2 --rounds 1 --workers 1",
        {},
    ),
    "peers.reranking": ("--items 300 --queries 32 --dim 16 --rounds 1 --no-result", {}),
    "peers.vector_search": (
        "--items 2000 --dim 32 --rounds 1 --queries 32 --engines Vicinal hnswlib --no-result",
        {},
    ),
    "refiner.costs": (
        "--items 64 --searched 128 --repetitions 2",
        {
            "_REFINERS": {"attention_mlp, 8 steps": {"form": "attention_mlp", "n_steps": 1}},
            "_EMBEDDER": "test_resnet",
            "_BATCHES": (1, 2),
        },
    ),
    "speed.block_scores": ("--items 300 --dim 16 --queries 64", {}),
    "speed.calibration_memory": ("--items 1200 --dim 16 --queries 50", {}),
    "speed.cost_by_size": (
        "--sizes 400 600 --dim 16 --queries 64",
        {"N_STARTS": 1, "N_SAMPLED": 400, "in_fresh_process": in_this_process},
    ),
    "speed.decoding_costs": ("--width 80 --repetitions 2", {}),
    "speed.decoding_memory": ("--pictures 'JPEG RGB' 'PNG L'", {"SIDES": (80, 50)}),
    "speed.engines": (
        "--items 400 --dim 16 --engines faiss --connections 2 --seconds 1.2 --turns 1"
        " --folder {folder}/engines",
        {},
    ),
    "speed.group_decisions": (f"{SERVED} --labels 100", {}),
    "speed.hard_calibrations": (
        f"--against {ROOT} --cases 'long off 200' --rounds 1 --alone",
        {},
    ),
    "speed.index_recall": ("--items 1500 --dim 32 --queries 5", {}),
    "speed.loss_costs": (
        "--repetitions 1",
        {"LARGE": 64, "MIDDLE": 32, "CHUNK": 8, "in_fresh_process": in_this_process, "peak_of": known_peak},
    ),
    "speed.query_stages": (SERVED, {}),
    "speed.ray_build": ("--n-photos 8 --n-ready --photos {folder}/drawn --folder {folder}/ray", {}),
    "speed.ready_embeddings": ("--items 500 --dim 16 --probes 20 --folder {folder}/ready", {}),
    "speed.start_up": (
        "--items 1200 --dim 16 --repeats 1 --folder {folder}/start",
        {"CACHES": ("warm",), "N_ADDED": 20, "N_REMOVED": 5},
    ),
    "speed.swap_under_load": (
        "--items 20 --rate 10 --seconds 1 --ways server --turns 0 --warm-up 0.5",
        {},
    ),
}


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Benchmarks of networks set torch's threads."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def ratios(result: dict[str, Any]) -> dict[str, float]:
    """What of a result is compared with the kept one: positive numbers."""
    found: dict[str, float] = result.get("ratios", {})
    assert all(math.isfinite(value) and value > 0.0 for value in found.values())
    return found


@pytest.mark.parametrize("name", FORMS)
def test_it_runs_at_a_tiny_size(
    short_form: ShortForm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    options, changes = FORMS[name]
    if name == "speed.ray_build":
        pytest.importorskip("ray.cluster_utils")
    module = importlib.import_module(f"benchmarks.{name}")
    for attribute, value in changes.items():
        monkeypatch.setattr(module, attribute, value)
    ratios(short_form(name, *shlex.split(options.format(folder=tmp_path))))


def test_model_forms(short_form: ShortForm, monkeypatch: pytest.MonkeyPatch) -> None:
    model_forms = importlib.import_module("benchmarks.speed.model_forms")
    preprocessing = {**model_forms.FIELDS["preprocessing"], "input_size": 64}
    monkeypatch.setitem(model_forms.FIELDS, "preprocessing", preprocessing)
    monkeypatch.setattr(model_forms, "SIDE", 64)
    assert ratios(short_form("speed.model_forms", "--rounds", 1, "--threads", 1))


def test_embedding_beside_peers(short_form: ShortForm, monkeypatch: pytest.MonkeyPatch) -> None:
    embedding = importlib.import_module("benchmarks.peers.embedding")
    small = embedding.NETWORKS["bundled model"].model_copy(update={"name": "test_efficientnet"})
    monkeypatch.setattr(embedding, "NETWORKS", {"bundled model": small})
    # Every worker of the loader imports torch.
    monkeypatch.setattr(embedding.os, "cpu_count", lambda: 1)
    result = short_form("peers.embedding", "--images", 4, "--rounds", 1, "--networks", "bundled model")
    assert all(speed > 0.0 for speed in result["images_per_second"]["bundled model"].values())


def test_crash_run(short_form: ShortForm) -> None:
    with pytest.raises(SystemExit) as end:
        short_form("speed.crash_run", "--kills", 1, "--no-result")
    assert end.value.code == 0


def test_index_throughput(short_form: ShortForm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(data: Path, folder: Path) -> list[SourceItem]:
        rng = np.random.default_rng(0)
        (folder / "drawn").mkdir()
        for number in range(4):
            pixels = rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "drawn" / f"{number}.png")
        return list(read_source(folder / "drawn"))

    monkeypatch.setattr(index_throughput, "photos", drawn)
    assert ratios(short_form("speed.index_throughput", "--data", tmp_path, "--side", 80, "--rounds", 1))


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


def test_an_exponent_is_the_slope_of_the_logarithms() -> None:
    runs = [{"items": n, "costs": {"linear": 3.0 * n, "square": n * n}} for n in (10, 100, 1000)]
    del runs[0]["costs"]["square"]
    assert cost_by_size.exponents(runs) == {
        "linear": {"exponent": 1.0, "sizes": [10, 100, 1000]},
        "square": {"exponent": 2.0, "sizes": [100, 1000]},
    }


def test_every_benchmark_of_speed_and_peers_is_run() -> None:
    scripts = {
        f"{folder}.{path.stem}"
        for folder in ("peers", "speed")
        for path in (ROOT / "benchmarks" / folder).glob("*.py")
        if "def main() " in path.read_text(encoding="utf-8")
    }
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.rglob("test_*.py"))
    assert scripts - FORMS.keys() - set(re.findall(r'short_form\(\s*"([\w.]+)"', tests)) == set()
    assert len(scripts) > 10
