"""`vicinal fit`: adapt the model to photos of one's own (needs the `train` extra)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from vicinal.service.cli.bundles.train import OverwriteOption, ResumeOption, run_start
from vicinal.service.cli.console import errors, print_json, progress_of, say
from vicinal.service.cli.options import Home, JsonOption
from vicinal.service.errors import RequestError
from vicinal.service.operations import fit as operation
from vicinal.service.request_fields import CommandOption

_SHOWN = 10


def fit(
    source: Annotated[
        Path | None,
        typer.Argument(metavar="[PHOTOS]", help="Folder with one folder a label, or a manifest with labels."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder of the new bundle, such as bundles/mine.")
    ] = None,
    gallery: Annotated[
        str | None, typer.Option("--gallery", "-g", help="Take the labelled photos of this gallery instead.")
    ] = None,
    *,
    request: operation.Learning,
    resume: Annotated[ResumeOption, CommandOption(after="minutes")] = False,
    overwrite: Annotated[OverwriteOption, CommandOption(after="resume")] = False,
    recipe: Annotated[
        Path | None, typer.Option(help="Training recipe in place of the built-in one, a TOML file.")
    ] = None,
    home: Home,
    json_output: JsonOption = False,
) -> None:
    """Adapt the model to your own photos, and measure on labels that it did not see what that changed.

    Exit status: 0 if more is found than before, 1 if not, 2 after an error.
    """
    began = time.monotonic()
    from vicinal.indexer.jobs.index_job import gallery_items
    from vicinal.indexer.sources import read_source
    from vicinal.models.bundle import ModelBundle
    from vicinal.service.fitting.labelled_images import read_labelled_images
    from vicinal.service.fitting.report import next_commands, report_lines, use_lines
    from vicinal.service.training import require_train_extra

    if (source is None) == (gallery is None):
        raise RequestError("say what to learn from: a folder of PHOTOS, or --gallery NAME")
    if output is None:
        raise RequestError("say where the new bundle goes: --output bundles/mine")
    start = run_start(resume=resume, overwrite=overwrite)
    require_train_extra("adapting the model")
    before = ModelBundle.open(home.settings().bundle)
    with progress_of(operation.STAGES) as progress:
        items = gallery_items(home.gallery(gallery)) if gallery else read_source(source or Path())
        photos = read_labelled_images(items, on_progress=progress)
        say(*(f"  left out {one.path}: {one.reason}" for one in photos.unusable[:_SHOWN]), to=errors)
        made = operation.learn(
            photos,
            output,
            before,
            request,
            progress,
            start=start,
            recipe=recipe,
            began=began,
            on_plan=lambda used: say(*use_lines(used, "Learns"), to=errors),
        )
    commands = next_commands(
        made, None if source is None else str(source), gallery, home.data_dir, home.bundle
    )
    if json_output:
        print_json({**made.model_dump(mode="json"), "helps": made.helps, "next": commands})
    else:
        say(*report_lines(made))
        if commands:
            say("Next:", *(f"  {command}" for command in commands))
    if not made.helps:
        raise typer.Exit(1)
