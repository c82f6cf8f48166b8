"""`vicinal calibrate`: find the threshold for a stated target."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Annotated

import typer

from vicinal.service.cli.console import console, errors, print_json, progress_of, say
from vicinal.service.cli.options import (
    BundleOption,
    DataDirOption,
    GalleryOption,
    JsonOption,
    open_place,
    place_words,
)
from vicinal.service.cli.promise import print_promise
from vicinal.service.operations import calibrate as operation
from vicinal.service.surfaces.command_line import from_options


@from_options
def calibrate(
    gallery: GalleryOption,
    request: operation.Request,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Use it, also where it promises less.")] = False,
    details: Annotated[bool, typer.Option("--details", help="All figures, with intervals.")] = False,
    data_dir: DataDirOption = None,
    bundle: BundleOption = None,
    json_output: JsonOption = False,
) -> None:
    """Find the one threshold that holds a stated target on this gallery, and what it lets expect."""
    if yes and request.activate is None:
        request = request.model_copy(update={"activate": True})
    place = open_place(gallery, data_dir=data_dir, bundle=bundle)
    with progress_of(operation.STAGES) as progress:
        made = operation.run(place, request, progress)
    record, kept_back = made.record, made.objection
    if kept_back and not json_output and sys.stdin.isatty() and _is_wanted(kept_back):
        kept_back = None
        place.matcher.calibrations.activate(record)
    for one in progress.failures:
        say(f"left out {one.path}: {one.reason}", to=errors if json_output else console)
    if progress.failures and not json_output:
        # The first says how many were left out.
        say(record.warnings[0])
    places = place_words(data_dir=data_dir, bundle=bundle)
    if kept_back:
        again = shlex.join(["vicinal", "calibration", "activate", record.id, "-g", gallery, *places])
        say(f"{kept_back} It was kept and is not in force; to use it: {again}", to=errors)
    if json_output:
        print_json(json.loads(record.model_dump_json()))
    else:
        print_promise(record, gallery, place.matcher.embedder.bundle.manifest, details=details, places=places)


def _is_wanted(kept_back: str) -> bool:
    return typer.confirm(f"{kept_back} Use it all the same?")
