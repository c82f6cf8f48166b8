"""`vicinal train`: runs, settings on the command line, resumption, and every wrong recipe in one line."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("timm")

from tests.service.types import Fail, Run
from tests.waiting import wait_until
from vicinal.models.bundle import ModelBundle
from vicinal.service.cli.bundles.watcher import TrainingWatcher
from vicinal.training.observer import StepProgress

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[4]

RECIPE = """
name = "tiny"
validation_share = 0.3
validate_every = 2

[backbone]
name = "resnet18"
arguments = {{ layers = [1, 1, 1, 1], channels = [8, 8, 16, 16] }}
dim = 8

[preprocessing]
input_size = 24
fit = "squash"

[[datasets]]
kind = "folder"
root = "{root}"

[sampler]
batch_size = 8
per_class = 4

[optimizer]
steps = 4
"""


@pytest.fixture
def recipe(catalog: Path, tmp_path: Path) -> Path:
    """A recipe over 60 images of 10 classes, 7 of them to train on."""
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE.format(root=catalog), encoding="utf-8")
    return path


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "a bundle"


def test_train_writes_a_bundle_with_its_log_and_shows_its_progress(
    run: Run, recipe: Path, output: Path
) -> None:
    result = run("train", recipe, "-o", output)
    assert ModelBundle.open(output).fingerprint in result.stdout
    files = {"training.csv", "training.png", "checkpoint.pt", "weights.pt", "recipe.toml"}
    assert files <= {path.name for path in output.iterdir()}
    shown = result.stderr.splitlines()[-1]
    assert all(part in shown for part in ("Training", "4 of 4", "/s", "loss ", "R@1 "))


def test_keys_can_be_set_on_the_command_line(run: Run, recipe: Path, output: Path) -> None:
    settings = ["--set", "loss.name=contextual", "--set", "loss.add=['tcm']", "--set", "optimizer.steps=2"]
    run("train", recipe, "-o", output, *settings, "--device", "cpu")
    training = ModelBundle.open(output).manifest.training
    assert (training["loss"], training["steps"]) == ("contextual + tcm", 2)
    assert (output / "recipe.toml").read_text(encoding="utf-8").startswith("# trained with --set loss.name=")


def test_a_run_is_not_overwritten_unasked(run: Run, fail: Fail, recipe: Path, output: Path) -> None:
    run("train", recipe, "-o", output)
    before = (output / "bundle.json").read_bytes()
    line = fail("train", recipe, "-o", output, "--set", "seed=5")
    assert "already holds a run" in line
    assert "--resume" in line
    assert (output / "bundle.json").read_bytes() == before
    run("train", recipe, "-o", output, "--set", "seed=5", "--overwrite")
    assert json.loads((output / "bundle.json").read_text())["training"]["seed"] == 5


def test_interrupted_run_says_how_to_go_on_and_does(
    run: Run, fail: Fail, recipe: Path, output: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Between two validations; the bundle is that of an uninterrupted run that held all images decoded."""
    own = TrainingWatcher.on_step

    def interrupted(watcher: TrainingWatcher, progress: StepProgress) -> None:
        own(watcher, progress)
        if progress.step == 3:
            signal.raise_signal(signal.SIGINT)

    arguments = ["train", recipe, "-o", output, "--set", "loss.add=['tcm']", "--device", "cpu"]
    with monkeypatch.context() as patch:
        patch.setattr(TrainingWatcher, "on_step", interrupted)
        line = fail(*arguments, "--set", "cache_bytes=20000")
    assert "training stopped at step 3 of 4: go on with `vicinal train " in line
    run(*shlex.split(line.split("`")[1])[1:])
    run(*arguments[:3], tmp_path / "whole", *arguments[4:])
    assert ModelBundle.open(output).fingerprint == ModelBundle.open(tmp_path / "whole").fingerprint


def test_interrupt_as_a_process_with_workers_is_one_line(recipe: Path, output: Path) -> None:
    """Ctrl-C reaches the workers too, as one process group."""
    settings = ["workers=1", "optimizer.steps=100000", "validate_every=1"]
    command = [sys.executable, "-m", "vicinal", "train", str(recipe), "-o", str(output)]
    command += [word for setting in settings for word in ("--set", setting)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    try:
        wait_until(lambda: (output / "checkpoint.pt").exists() or process.poll() is not None, every=0.1)
        os.killpg(process.pid, signal.SIGINT)
        _, shown = process.communicate(timeout=300)
    finally:
        # Its workers too, if it did not end as it should.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    lines = shown.strip().splitlines()
    assert process.returncode == 2
    assert lines[-1].startswith("vicinal: training stopped at step ")
    assert lines[-1].endswith("--resume`")
    assert "Traceback" not in shown


BALANCED = "loss={name='balanced_contrastive', arguments={margin=4.0}}"
WRONG = {
    "unknown key": (["sampler.batchsize=8"], "sampler.batchsize: unknown key, did you mean 'batch_size'?"),
    "unknown loss": (["loss=hinge"], "unknown loss 'hinge': choose one of arcface, "),
    "unknown argument": (["loss.arguments={sharpness=2}"], "loss 'multi_similarity': "),
    "k and per_class": (["loss={name='contextual', arguments={k=6}}"], "sampler.per_class to 6"),
    "no batch design": ([BALANCED], "set sampler.kind to 'group' or 'random_pairs'"),
    "batch not divided": (["sampler.batch_size=10"], "per_class 4 does not divide batch_size 10: use 8"),
    "no super-labels": (["sampler={kind='hierarchical', batch_size=8, per_class=2}"], "two super-labels"),
    "unknown optimizer": (["optimizer.name=lion"], "optimizer.name: Input should be 'adamw', "),
    "unknown backbone": (["backbone.name=resnet1000"], "resnet1000"),
    "wrong type": (["optimizer.steps='many'"], "optimizer.steps: Input should be a valid integer"),
    "setting without a value": (["seed"], "write key=value"),
    "setting that is no TOML": (["seed=[1"], "has no TOML value"),
}


@pytest.mark.parametrize(("settings", "reason"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_recipe_is_one_line(
    fail: Fail, recipe: Path, output: Path, settings: list[str], reason: str
) -> None:
    assert reason in fail("train", recipe, "-o", output, *(w for s in settings for w in ("--set", s)))


def test_another_recipe_than_the_checkpoints_is_one_line(
    run: Run, fail: Fail, recipe: Path, output: Path
) -> None:
    run("train", recipe, "-o", output)
    line = fail("train", recipe, "-o", output, "--resume", "--set", "seed=3")
    assert "belongs to another recipe: seed was 0, is 3" in line
