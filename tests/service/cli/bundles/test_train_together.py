"""`vicinal train` in two processes: one bundle, one voice, and no process that waits for a dead one."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("timm")

from tests.ports import free_port  # noqa: E402
from tests.service.cli.bundles.test_train import RECIPE  # noqa: E402
from tests.service.types import Run  # noqa: E402
from tests.waiting import wait_until  # noqa: E402
from vicinal.models.bundle import ModelBundle  # noqa: E402
from vicinal.service.cli.bundles.watcher import SilentWatcher  # noqa: E402
from vicinal.training.observer import StepProgress  # noqa: E402

ROOT = Path(__file__).resolve().parents[4]
pytestmark = pytest.mark.slow

SETTINGS = ["precision=float32", "backbone.freeze_batch_norm=true", "optimizer.name=sgd"]
ENDLESS = ["--set", "optimizer.steps=100000"]


@pytest.fixture
def command(catalog: Path, tmp_path: Path) -> list[str]:
    """Trains on 60 images of 10 classes into `together`."""
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE.format(root=catalog), encoding="utf-8")
    words = [word for setting in SETTINGS for word in ("--set", setting)]
    return ["vicinal", "train", str(path), "-o", str(tmp_path / "together"), "--device", "cpu", *words]


def torchrun() -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    return [*launcher, "--master-port", str(free_port()), "-m"]


@contextmanager
def started(command: list[str], **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A process that does not outlive its test; nor do those that it started."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", **environment},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            # A launcher passes it on to what it started.
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=60)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def losses(folder: Path) -> list[float]:
    with (folder / "training.csv").open(newline="", encoding="utf-8") as stream:
        return [float(row["loss"]) for row in csv.DictReader(stream)]


def test_two_processes_write_the_bundle_of_one(run: Run, command: list[str], tmp_path: Path) -> None:
    with started([*torchrun(), *command]) as process:
        output, shown = process.communicate(timeout=300)
    assert process.returncode == 0, shown
    fingerprint = ModelBundle.open(tmp_path / "together").fingerprint
    assert output.split() == ["Bundle", "tiny", fingerprint, "in", str(tmp_path / "together")]
    run(*command[1:3], "-o", tmp_path / "alone", *command[5:])
    assert losses(tmp_path / "together") == pytest.approx(losses(tmp_path / "alone"), abs=1e-5)


def test_interrupt_stops_both_and_says_once_how_to_go_on(command: list[str], tmp_path: Path) -> None:
    """The launcher passes it on to each process, of which one may be a step ahead."""
    with started([*torchrun(), *command, *ENDLESS]) as process:
        wait_until(lambda: (tmp_path / "together" / "checkpoint.pt").exists() or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        _, shown = process.communicate(timeout=300)
    said = [line for line in shown.splitlines() if line.startswith("vicinal: ")]
    assert len(said) == 1, shown
    assert "training stopped at step " in said[0]
    assert "go on with `torchrun --nproc-per-node 2 -m vicinal train " in said[0]


def test_a_process_whose_other_was_killed_ends_with_one_line(command: list[str], tmp_path: Path) -> None:
    """Without torchrun, which would end it before it can say anything."""
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    words = [sys.executable, "-m", *command, *ENDLESS]
    with started(words, RANK="0", **place) as first, started(words, RANK="1", **place) as second:
        is_over = lambda: first.poll() is not None or second.poll() is not None  # noqa: E731
        wait_until(lambda: (tmp_path / "together" / "checkpoint.pt").exists() or is_over())
        second.kill()
        _, shown = first.communicate(timeout=300)
    assert first.returncode == 2, shown
    assert "Traceback" not in shown
    last = shown.strip().splitlines()[-1]
    assert last.startswith("vicinal: training process 0 of 0 to 1 lost another one")
    assert "--resume" in last


def test_another_process_shows_nothing_and_stops_when_it_is_interrupted(
    capfd: pytest.CaptureFixture[str],
) -> None:
    watcher = SilentWatcher()
    watcher.on_start()
    watcher.on_notice("left out")
    watcher.on_step(StepProgress(1, 2, None, torch.tensor(1.0)))
    assert not watcher.should_stop()
    watcher.interrupt(signal.SIGINT, None)
    assert watcher.should_stop()
    assert capfd.readouterr() == ("", "")
