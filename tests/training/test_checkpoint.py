"""Checkpoint: a run that was stopped and resumed ends exactly as one that was not."""

from __future__ import annotations

import csv
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("timm")
pytest.importorskip("pytorch_metric_learning")

from vicinal.models.errors import ConfigError, TrainingStoppedError  # noqa: E402
from vicinal.training import loop  # noqa: E402
from vicinal.training.backbones.backbone import BackboneConfig  # noqa: E402
from vicinal.training.config import TrainingConfig  # noqa: E402
from vicinal.training.loop import TrainingState  # noqa: E402
from vicinal.training.observer import (  # noqa: E402
    StepProgress,
    StepRecord,
    TrainingObserver,
)
from vicinal.training.trainer import Trainer  # noqa: E402

MakeConfig = Callable[..., TrainingConfig]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_picture")]

SIMIX = {"name": "recall_at_k", "arguments": {"simix": True, "ks": [1, 2, 4]}, "add": ["tcm"]}
MEMORY = {
    "name": "cross_batch_memory",
    "arguments": {"loss": "contrastive", "memory_size": 40},
    "add": ["tcm", {"name": "proxy_anchor", "weight": 0.1}],
}
STAGED = {"batch_size": 16, "per_class": 4, "chunk_size": 5}
SIMIX_RUN = "SiMix, dropout, multistage"
RUNS: dict[str, dict[str, Any]] = {
    SIMIX_RUN: {"loss": SIMIX, "sampler": STAGED},
    "memory, proxies, momentum": {
        "loss": MEMORY,
        "sampler": {"kind": "group", "m": 4, "n": 4},
        "optimizer": {
            "name": "sgd",
            "steps": 8,
            "schedule": {"kind": "step", "every": 2},
            "loss_learning_rate_factor": 10,
        },
    },
    "pairs, one cycle, projector": {
        "loss": {"name": "balanced_contrastive", "arguments": {"margin": 4.0}},
        "sampler": {"kind": "random_pairs", "n_pairs": 8},
        "optimizer": {"name": "rmsprop", "steps": 8, "schedule": "one_cycle"},
        "projector": {"dim": 8},
    },
}


class KilledError(Exception):
    """Stands for the end of the process."""


class KilledAtRecord(TrainingObserver):
    def on_record(self, _record: StepRecord) -> None:
        raise KilledError


class KilledAtStep(TrainingObserver):
    """Dies between two checkpoints."""

    def on_step(self, progress: StepProgress) -> None:
        if progress.step == 5:
            raise KilledError


class Stopped(TrainingObserver):
    """Asks to stop between two validations."""

    def __init__(self) -> None:
        self.step = 0

    def on_step(self, progress: StepProgress) -> None:
        self.step = progress.step

    def should_stop(self) -> bool:
        return self.step == 4


@pytest.fixture(scope="module")
def make_run(make_training_config: MakeConfig, tiny_backbone: BackboneConfig) -> MakeConfig:
    """Configurations in which all draws at random that can."""

    def make(run: str = SIMIX_RUN, **changes: Any) -> TrainingConfig:
        fields = {"optimizer": {"steps": 8}, **RUNS[run], **changes}
        backbone = tiny_backbone.model_dump()
        backbone["arguments"] |= {"drop_rate": 0.2, "drop_path_rate": 0.2}
        backbone["projector"] = fields.pop("projector", None)
        return make_training_config(backbone=backbone, validate_every=3, **fields)

    return make


def _content(folder: Path) -> Any:
    """Everything that the last checkpoint of a run holds, but the time."""
    stored = torch.load(folder / "checkpoint.pt", weights_only=True)
    return _without_time(stored)


def _without_time(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_time(inner) for key, inner in value.items() if key != "seconds"}
    if isinstance(value, list | tuple):
        return [_without_time(inner) for inner in value]
    return value.tolist() if isinstance(value, torch.Tensor) else value


def _csv(folder: Path) -> list[dict[str, str]]:
    with (folder / "training.csv").open(newline="", encoding="utf-8") as stream:
        return [
            {key: value for key, value in row.items() if key != "seconds"} for row in csv.DictReader(stream)
        ]


def _interrupt(config: TrainingConfig, folder: Path, observer: TrainingObserver) -> None:
    folder.mkdir()
    with pytest.raises((KilledError, TrainingStoppedError)):
        Trainer(config, folder=folder, observer=observer).run()


def _resume(config: TrainingConfig, folder: Path) -> Any:
    # A new process starts with other random states.
    torch.manual_seed(999)
    return Trainer(config, folder=folder).run(resume=True)


@pytest.fixture(scope="module")
def finish(make_run: MakeConfig, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folder of an uninterrupted run, by its name."""

    @functools.cache
    def run(name: str) -> Path:
        folder = tmp_path_factory.mktemp("finished")
        Trainer(make_run(name), folder=folder).run()
        return folder

    return run


@pytest.mark.parametrize("observer", [KilledAtRecord, KilledAtStep, Stopped])
@pytest.mark.parametrize("run", RUNS)
def test_resumed_run_ends_bit_for_bit_as_an_uninterrupted_one(
    make_run: MakeConfig,
    finish: Callable[[str], Path],
    tmp_path: Path,
    run: str,
    observer: type[TrainingObserver],
) -> None:
    """Weights, loss, optimizer, schedule, records and random states of the last step, and the CSV."""
    _interrupt(make_run(run), tmp_path / "run", observer())
    result = _resume(make_run(run), tmp_path / "run")
    expected = _content(finish(run))
    assert _content(tmp_path / "run") == expected
    assert _csv(tmp_path / "run") == _csv(finish(run))
    assert _without_time(dict(result.network.state_dict())) == expected["state"]["best_weights"]


@pytest.mark.parametrize("lost", ["random", "loss", "optimizer", "schedule"])
def test_each_part_of_a_checkpoint_is_needed(
    make_run: MakeConfig,
    finish: Callable[[str], Path],
    tmp_path: Path,
    lost: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Negative control: without it the same comparison fails."""
    name = "memory, proxies, momentum"
    expected = _content(finish(name))["state"]["network"]
    _interrupt(make_run(name), tmp_path / "run", KilledAtRecord())
    parts = TrainingState._parts

    def without(state: TrainingState[Any]) -> dict[str, Any]:
        return {name: part for name, part in parts(state).items() if name != lost}

    if lost == "random":
        monkeypatch.setattr(loop, "set_random_states", lambda *_: None)
    else:
        monkeypatch.setattr(TrainingState, "_parts", without)
    _resume(make_run(name), tmp_path / "run")
    assert _content(tmp_path / "run")["state"]["network"] != expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 1}, "seed was 0, is 1"),
        ({"loss": {**SIMIX, "add": []}}, r"loss.add.0.name was tcm, is None"),
    ],
)
def test_checkpoint_of_another_recipe_is_refused(
    make_run: MakeConfig, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    _interrupt(make_run(), tmp_path / "stopped", KilledAtRecord())
    with pytest.raises(ConfigError, match=f"belongs to another recipe: {message}.*with overwrite") as caught:
        _resume(make_run(**changes), tmp_path / "stopped")
    assert "\n" not in str(caught.value)


def test_checkpoint_of_other_images_is_refused(
    make_run: MakeConfig, make_class_folders: Callable[..., Path], tmp_path: Path
) -> None:
    root = make_class_folders(tmp_path / "set", n_classes=8, per_class=4)
    config = make_run(datasets=[{"kind": "folder", "root": root}])
    _interrupt(config, tmp_path / "stopped", KilledAtRecord())
    next(root.glob("*/3.png")).unlink()
    with pytest.raises(ConfigError, match=r"was trained on other images: \d+ then, \d+ now"):
        _resume(config, tmp_path / "stopped")


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "there is no checkpoint"), (b"PK\x03\x04", "damaged")],
)
def test_checkpoint_that_is_none_is_refused(
    make_run: MakeConfig, tmp_path: Path, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "checkpoint.pt").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        _resume(make_run(), tmp_path)


def test_a_kill_while_writing_leaves_the_checkpoint_before(
    make_run: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _interrupt(make_run(), tmp_path / "stopped", KilledAtRecord())
    before = _content(tmp_path / "stopped")

    def killed(_: int) -> None:
        if (tmp_path / "stopped" / "checkpoint.pt.partial").exists():
            raise KilledError

    monkeypatch.setattr("vicinal.training.files.os.fsync", killed)
    with pytest.raises(KilledError):
        _resume(make_run(), tmp_path / "stopped")
    assert _content(tmp_path / "stopped") == before
