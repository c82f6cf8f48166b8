"""Options that the commands that train share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from vicinal.service.errors import RequestError

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


def run_start(*, resume: bool, overwrite: bool) -> Literal["new", "resume", "overwrite"]:
    """Start of a run in a folder that holds an earlier one."""
    if resume and overwrite:
        raise RequestError("--resume keeps the run in --output and --overwrite deletes it: give one of them")
    return "resume" if resume else "overwrite" if overwrite else "new"
