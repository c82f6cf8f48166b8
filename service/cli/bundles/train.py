"""`vicinal train`: train a model bundle (needs the `train` extra)."""

from __future__ import annotations

import shlex
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from vicinal.service.cli.console import progress_bar, say
from vicinal.service.errors import RequestError

if TYPE_CHECKING:
    from vicinal.service.cli.bundles.watcher import TrainingWatcher

DataRootOption = Annotated[
    Path | None, typer.Option(help="Folder that relative data set paths start from; here by default.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Set a key of the recipe anew, such as optimizer.steps=400."
    ),
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Go on with the run in --output.")]
OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Delete the run in --output first.")]


def train(
    recipe: Annotated[Path, typer.Argument(help="Training configuration, a TOML file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory of the bundle to write.")],
    data_root: DataRootOption = None,
    settings: SetOption = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, or cuda:<number>.")] = "auto",
    resume: ResumeOption = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Train an embedding and export it as a bundle; curve, log and checkpoint lie beside it."""
    start = run_start(resume=resume, overwrite=overwrite)
    from vicinal.models.errors import TrainingStoppedError
    from vicinal.service.training import require_train_extra

    require_train_extra("training")
    from vicinal.service.cli.bundles.watcher import TrainingWatcher
    from vicinal.service.training import Recipe, run_recipe

    with warnings.catch_warnings():
        # Lance, once it is imported, warns of workers that are forked; they never use it.
        warnings.filterwarnings("ignore", message="lance is not fork-safe")
        loaded = Recipe.load(recipe, data_root=data_root, settings=settings or ())
        try:
            with progress_bar() as update, _stopping_on_interrupt(TrainingWatcher(update)) as watcher:
                bundle = run_recipe(loaded, output, start=start, device=device, observer=watcher)
        except TrainingStoppedError as error:
            command = _resume_command(recipe, output, data_root, settings or [], device)
            raise TrainingStoppedError(error.step, error.n_steps, f"go on with `{command}`") from error
    say(f"Bundle {bundle.name} {bundle.fingerprint} in {output}")
    for test, metrics in bundle.manifest.metrics.items():
        shown = ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        say(f"  {test}: {shown}")


@contextmanager
def _stopping_on_interrupt(watcher: TrainingWatcher) -> Iterator[TrainingWatcher]:
    before = signal.signal(signal.SIGINT, watcher.interrupt)
    try:
        yield watcher
    finally:
        signal.signal(signal.SIGINT, before)


def _resume_command(
    recipe: Path, output: Path, data_root: Path | None, settings: list[str], device: str
) -> str:
    words = ["vicinal", "train", str(recipe), "--output", str(output)]
    words += ["--data-root", str(data_root)] if data_root else []
    words += [word for setting in settings for word in ("--set", setting)]
    words += ["--device", device] if device != "auto" else []
    return shlex.join([*words, "--resume"])


def run_start(*, resume: bool, overwrite: bool) -> Literal["new", "resume", "overwrite"]:
    """Start of a run in a folder that holds an earlier one."""
    if resume and overwrite:
        raise RequestError("--resume keeps the run in --output and --overwrite deletes it: give one of them")
    return "resume" if resume else "overwrite" if overwrite else "new"
