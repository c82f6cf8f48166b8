"""`vicinal explain`: what the refiner does with a picture, as a page."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from vicinal.refine.errors import RefinerNotFoundError
from vicinal.service.cli.console import console, print_json, say
from vicinal.service.cli.options import (
    BundleOption,
    DataDirOption,
    GalleryOption,
    JsonOption,
    open_matcher,
)
from vicinal.service.matcher.explanation import Explanation
from vicinal.service.reports.page import render_explanation
from vicinal.service.scoring.pipeline import RefineChoice

__all__ = ["explain"]


def explain(
    image: Annotated[Path, typer.Argument(help="The image to search for.")],
    gallery: GalleryOption,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", dir_okay=False, help="HTML file to draw the way of the query in."),
    ] = None,
    refine: Annotated[RefineChoice, typer.Option(help="What is refined; auto is the setting.")] = "auto",
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of the refiner.")] = None,
    data_dir: DataDirOption = None,
    bundle: BundleOption = None,
    json_output: JsonOption = False,
) -> None:
    """Show how a query moves among its neighbors, and which of them move it."""
    matcher = open_matcher(gallery, data_dir=data_dir, bundle=bundle)
    answer = matcher.search(images=[image], refine=refine, steps=steps, explain=True)[0]
    explanation = answer.explanation
    if explanation is None:
        raise RefinerNotFoundError(matcher.embedder.bundle.name)
    if output is not None:
        output.write_text(render_explanation(explanation, title=image.name), encoding="utf-8")
    if json_output:
        print_json(asdict(explanation))
    else:
        _print_explanation(explanation)
        if output is not None:
            say(f"Drawn in {output}")


def _print_explanation(explanation: Explanation) -> None:
    if not explanation.is_used:
        console.print("This search used the query as it was; with refinement it would have gone this way:")
    table = Table("neighbor", "label", "similarity", "attention by step in %", box=None)
    for one in explanation.neighbors:
        shares = " ".join(f"{100 * share:3.0f}" for share in one.attention)
        table.add_row(one.id, one.label or "", f"{one.similarity:.4f}", shares)
    console.print(table)
    steps = Table("step", "cosine to the first", f"rank of {explanation.candidate}", box=None)
    for step, (cosine, rank) in enumerate(zip(explanation.cosines, explanation.ranks, strict=True)):
        steps.add_row(str(step), f"{cosine:.4f}", "" if rank is None else str(rank))
    console.print(steps)
