"""One of the processes of `test_processes.py`: trains the cases of a file with the others, keeps the ends."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from vicinal.models.errors import ConfigError, TrainingStoppedError
from vicinal.training import log, trainer
from vicinal.training.config import TrainingConfig
from vicinal.training.execution.processes import ALONE, Processes, joined_processes
from vicinal.training.multistage import multistage_backward
from vicinal.training.observer import StepProgress, TrainingObserver


class Noting(TrainingObserver):
    """Notes the loss of each step, and asks to stop after one.

    Args:
        stop_after: Steps; 0 asks for nothing.
    """

    def __init__(self, stop_after: int = 0) -> None:
        self.stop_after = stop_after
        self.losses: list[float] = []
        self.step = 0

    def on_step(self, progress: StepProgress) -> None:
        self.step = progress.step
        self.losses.append(float(progress.step_loss))

    def should_stop(self) -> bool:
        return self.step == self.stop_after > 0


def train(config: TrainingConfig, folder: Path, processes: Processes, **changes: Any) -> dict[str, Any]:
    """What a process holds at the end of a run, and what the run said."""
    stop_after = changes.get("stop_after", 0) if processes.rank == processes.count - 1 else 0
    observer, end = Noting(stop_after), {}
    try:
        own = trainer.Trainer(config, folder=folder, device="cpu", observer=observer, processes=processes)
        result = own.run(resume=changes.get("resume", False))
        end = {"weights": result.network.state_dict(), "share": result.share}
        end["map_at_r"] = [record.map_at_r for record in result.records]
    except (ConfigError, TrainingStoppedError) as error:
        end["error"] = str(error)
    return {**end, "losses": observer.losses, "random": torch.rand(2)}


@contextmanager
def wrong(how: str) -> Iterator[None]:
    """Another way to train together, which is not that of one process."""

    def over_the_own_part(
        network: Any, images: Any, labels: Any, loss: Any, *, processes: Processes, **options: Any
    ) -> torch.Tensor:
        own = labels[processes.part(len(labels))]
        return multistage_backward(network, images, own, loss, processes=ALONE, **options)

    summed = Processes.add_up

    def averaged(processes: Processes, tensors: Any) -> None:
        summed(processes, tensors)
        for one in tensors:
            one /= processes.count

    ways: dict[str, Any] = {
        "mean": (Processes, "add_up", averaged),
        "own part": (trainer, "multistage_backward", over_the_own_part),
        "no sum": (Processes, "add_up", lambda *_: None),
    }
    if how:
        with mock.patch.object(*ways[how]):
            yield
    else:
        yield


def main(folder: Path) -> None:
    """Train every case of `cases.json`: its name, its configuration, and how it differs."""
    cases = json.loads((folder / "cases.json").read_text(encoding="utf-8"))
    with joined_processes("cpu") as processes, mock.patch.object(log.Figure, "savefig"):
        for name, case in cases.items():
            config = TrainingConfig.model_validate(case.pop("config"))
            run = folder / case.pop("folder", name)
            if processes.is_first:
                run.mkdir(exist_ok=True)
            with wrong(case.pop("wrong", "")):
                end = train(config, run, processes, **case)
            torch.save(end, folder / f"{name}-{processes.rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
