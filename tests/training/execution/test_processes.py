"""Training in two processes, which exchange by Gloo, against training in one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("timm")
pytest.importorskip("pytorch_metric_learning")

from tests.ports import free_port  # noqa: E402
from tests.training.execution.train_together import train  # noqa: E402
from vicinal.training.backbones.backbone import BackboneConfig  # noqa: E402
from vicinal.training.config import TrainingConfig  # noqa: E402
from vicinal.training.execution.processes import (  # noqa: E402
    ALONE,
    Processes,
    joined_processes,
)

pytestmark = pytest.mark.usefixtures("without_picture")

ROOT = Path(__file__).resolve().parents[3]
MakeConfig = Callable[..., TrainingConfig]
STEPS = 5
# Plain gradient descent: another scale of the gradient is another step, which AdamW would hide.
SGD = {"name": "sgd", "learning_rate": 0.05, "steps": STEPS, "warmup_steps": 1, "clip_norm": 0.0}
CONTEXTUAL = {"loss": {"name": "contextual", "add": ["tcm"]}}
MEMORY = {
    "name": "cross_batch_memory",
    "arguments": {"loss": "contrastive", "memory_size": 40},
    "add": ["tcm", {"name": "proxy_anchor", "weight": 0.1}],
}
SAME: dict[str, dict[str, Any]] = {
    "contextual": CONTEXTUAL,
    "recall at k, simix, multistage": {
        "loss": {"name": "recall_at_k", "arguments": {"simix": True, "ks": [1, 2, 4]}},
        "sampler": {"batch_size": 16, "per_class": 4, "chunk_size": 3},
        # Its sigmoids are steep: large steps would make much of how sums are rounded.
        "optimizer": {**SGD, "learning_rate": 0.003},
    },
    "multi-similarity, odd batches, clipped": {
        "loss": "multi_similarity",
        # Classes of five images: batches of 15.
        "sampler": {"batch_size": 18, "per_class": 6},
        "optimizer": {**SGD, "clip_norm": 0.1},
    },
    "memory and proxies": {
        "loss": MEMORY,
        "optimizer": {**SGD, "learning_rate": 0.02, "loss_learning_rate_factor": 10, "frozen_trunk_steps": 2},
    },
    "pairs, projector, interpolated": {
        "loss": {"name": "balanced_contrastive", "arguments": {"margin": 4.0}},
        "sampler": {"kind": "random_pairs", "n_pairs": 8},
        "optimizer": {**SGD, "learning_rate": 2e-5},
        "projector": {"dim": 8},
        "interpolate": True,
    },
}


@pytest.fixture(scope="module")
def make_run(make_training_config: MakeConfig, tiny_backbone: BackboneConfig) -> MakeConfig:
    """Configurations whose batch-norm layers are frozen, unless they say otherwise."""

    def make(**changes: Any) -> TrainingConfig:
        backbone = tiny_backbone.model_dump() | {"freeze_batch_norm": True}
        for key in ("projector", "freeze_batch_norm"):
            backbone[key] = changes.pop(key, backbone[key])
        backbone["arguments"] = backbone["arguments"] | changes.pop("arguments", {})
        return make_training_config(backbone=backbone, **{"optimizer": SGD, "validate_every": 2, **changes})

    return make


@pytest.fixture(scope="module")
def cases(make_run: MakeConfig) -> dict[str, dict[str, Any]]:
    """What two processes are to train."""
    contextual = make_run(**CONTEXTUAL)
    runs = {name: {"config": make_run(**changes)} for name, changes in SAME.items()}
    return {
        **runs,
        "batch norm": {"config": make_run(loss="multi_similarity", freeze_batch_norm=False)},
        "dropout": {"config": make_run(loss="multi_similarity", arguments={"drop_rate": 0.5})},
        "mean": {"config": contextual, "wrong": "mean"},
        "own part": {"config": contextual, "wrong": "own part"},
        "no sum": {"config": contextual, "wrong": "no sum"},
        "stopped": {"config": contextual, "stop_after": 3},
        "resumed": {"config": contextual, "folder": "stopped", "resume": True},
    }


@pytest.fixture(scope="module")
def folder(cases: dict[str, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two processes have left what they trained."""
    folder = tmp_path_factory.mktemp("together")
    plain = {name: {**case, "config": case["config"].model_dump(mode="json")} for name, case in cases.items()}
    (folder / "cases.json").write_text(json.dumps(plain), encoding="utf-8")
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port())]
    script = Path(__file__).with_name("train_together.py")
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *launcher, str(script), str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def together(folder: Path) -> Callable[[str], tuple[dict[str, Any], dict[str, Any]]]:
    """What each of the two processes holds at the end of a case."""

    def read(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        first, second = (torch.load(folder / f"{name}-{rank}.pt") for rank in (0, 1))
        return first, second

    return read


@pytest.fixture(scope="module")
def alone(
    cases: dict[str, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[dict[str, Any], Path]]:
    """What one process holds at the end of a case, and the folder of its run."""
    ends: dict[str, tuple[dict[str, Any], Path]] = {}

    def run(name: str) -> tuple[dict[str, Any], Path]:
        if name not in ends:
            folder = tmp_path_factory.mktemp("alone")
            ends[name] = train(cases[name]["config"], folder, ALONE), folder
        return ends[name]

    return run


def flat(weights: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([value.detach().double().flatten() for value in weights.values()])


def largest_difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return float((flat(one) - flat(other)).abs().max())


def checkpoint(folder: Path) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(folder / "checkpoint.pt")["state"]
    return state


@pytest.mark.slow
@pytest.mark.parametrize("name", SAME)
def test_two_processes_train_what_one_trains(
    together: Callable[..., Any], alone: Callable[..., Any], folder: Path, name: str
) -> None:
    """Weights, the loss's own state, and the loss of every step."""
    (first, _), (expected, one) = together(name), alone(name)
    assert first["losses"] == pytest.approx(expected["losses"], rel=1e-5, abs=1e-5)
    assert largest_difference(first["weights"], expected["weights"]) < 1e-5
    own, alike = checkpoint(folder / name), checkpoint(one)
    assert largest_difference(own["network"], alike["network"]) < 1e-5
    for key, value in own["loss"].items():
        torch.testing.assert_close(value, alike["loss"][key], rtol=1e-5, atol=1e-5)
    assert torch.equal(own["random"]["cpu"], alike["random"]["cpu"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mean", "own part", "no sum"])
def test_another_way_would_be_noticed(
    together: Callable[..., Any], alone: Callable[..., Any], name: str
) -> None:
    """Negative control: the mean of the gradients, a loss of the own part, gradients of the own part."""
    assert largest_difference(together(name)[0]["weights"], alone("contextual")[0]["weights"]) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SAME, "batch norm", "dropout", "resumed"])
def test_both_processes_hold_the_same(together: Callable[..., Any], name: str) -> None:
    first, second = together(name)
    assert largest_difference(first["weights"], second["weights"]) == 0
    assert torch.equal(first["random"], second["random"])
    assert {key: first[key] for key in ("losses", "map_at_r", "share")} == {
        key: second[key] for key in ("losses", "map_at_r", "share")
    }


@pytest.mark.slow
def test_a_process_that_is_asked_to_stop_stops_both(together: Callable[..., Any]) -> None:
    """The second one was asked; it is the first that keeps the checkpoint."""
    assert [end["error"] for end in together("stopped")] == [
        f"training stopped at step 3 of {STEPS}: resume it from its checkpoint"
    ] * 2


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_parts_are_the_whole_in_order(count: int) -> None:
    parts = [list(range(17))[Processes(rank, count).part(17)] for rank in range(count)]
    assert [row for part in parts for row in part] == list(range(17))
    assert {len(part) for part in parts} <= {17 // count, 17 // count + 1}


@pytest.mark.parametrize("environment", [{}, {"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0"}])
def test_a_process_that_was_started_by_itself_is_alone(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with joined_processes("tpu") as processes:
        assert processes == ALONE


def test_processes_on_gpus_take_their_own_and_exchange_by_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked of torch; there is no GPU here that could do it."""
    asked: list[Any] = []
    for name, value in {"WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.set_device", asked.append)
    monkeypatch.setattr("torch.distributed.init_process_group", asked.append)
    monkeypatch.setattr("torch.distributed.new_group", lambda backend, **_: backend)
    monkeypatch.setattr("torch.distributed.destroy_process_group", lambda: asked.append("destroyed"))
    with joined_processes("auto") as processes:
        assert processes == Processes(3, 4, 1, "gloo")
    assert asked == [torch.device("cuda:1"), "nccl", "destroyed"]
