"""`vicinal gallery compare`: a candidate version beside the active one, before it is activated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from vicinal.service.calibrator.record import new_calibration_id
from vicinal.service.cli.console import console, print_json, progress_bar
from vicinal.service.cli.options import (
    BundleOption,
    DataDirOption,
    JsonOption,
    load_settings,
    open_gallery,
)
from vicinal.service.comparisons.version_comparison import ComparisonPlan, compare_versions
from vicinal.service.comparisons.version_record import (
    ComparisonOptions,
    FlippedDecisions,
    OpisFigure,
    PairedFigure,
    VersionComparison,
)
from vicinal.service.galleries.bundles import ServedBundles

__all__ = ["compare"]


def compare(
    name: Annotated[str, typer.Argument(help="Name of the gallery.")],
    version: Annotated[int, typer.Argument(help="The candidate.")],
    target: Annotated[
        str | None,
        typer.Option(help="What the candidate is calibrated for; as the active version by default."),
    ] = None,
    queries: Annotated[
        Path | None, typer.Option(help="Folder or manifest of pictures to search for in both versions.")
    ] = None,
    max_queries: Annotated[int, typer.Option(min=1, help="Sample at most this many items.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the sample and of the bootstrap.")] = 0,
    data_dir: DataDirOption = None,
    bundle: BundleOption = None,
    json_output: JsonOption = False,
) -> None:
    """Compare a version with the active one: items, rates, decisions, and a calibration of its own."""
    settings = load_settings(data_dir=data_dir, bundle=bundle)
    options = ComparisonOptions(
        max_queries=max_queries, seed=seed, target=target, queries=None if queries is None else str(queries)
    )
    bundles = ServedBundles(settings)
    with progress_bar() as update:
        plan = ComparisonPlan(
            open_gallery(settings, name), bundles, options, queries=queries, on_stage=update
        )
        made = compare_versions(plan, version, new_calibration_id())
    if json_output:
        print_json(json.loads(made.model_dump_json()))
    else:
        _print(made)


def _print(made: VersionComparison) -> None:
    console.print(f"Gallery {made.gallery}: version {made.new.version} against {made.old.version}")
    items = made.items
    console.print(
        f"{items.both:,} items in both, {items.only_old:,} only in {made.old.version}, "
        f"{items.only_new:,} only in {made.new.version}; {made.n_sampled:,} sampled"
    )
    table = Table("", str(made.old.version), str(made.new.version), "change", "95 % interval", box=None)
    for title, figure in (("hit rate (R@1)", made.hit_rate), ("MAP@R", made.map_at_r), ("FNIR", made.fnir)):
        if figure is not None:
            table.add_row(title, *_percent(figure))
    if made.opis is not None:
        table.add_row("OPIS", *_opis(made.opis))
    console.print(table)
    for title, flips in (("sampled items", made.gallery_flips), ("queries", made.query_flips)):
        if flips is not None:
            console.print(_flips(title, flips))
    own = made.calibration
    console.print(
        f"Calibrated for {own.target}: threshold {own.threshold:.4f}, in force when the version is activated"
        if own.threshold is not None
        else f"Not calibrated: {own.problem}",
        markup=False,
        soft_wrap=True,
    )
    for name, reason in made.left_out.items():
        if name != "calibration":
            console.print(f"Left out {name}: {reason}", markup=False, soft_wrap=True)
    for warning in made.warnings:
        console.print(f"Note: {warning}", markup=False, soft_wrap=True)


def _percent(figure: PairedFigure) -> list[str]:
    return [
        f"{100 * figure.old:.1f} %",
        f"{100 * figure.new:.1f} %",
        f"{100 * figure.difference:+.1f}",
        f"{100 * figure.low:+.1f} to {100 * figure.high:+.1f}",
    ]


def _opis(figure: OpisFigure) -> list[str]:
    floors = ["" if one is None else f" (floor {one:.2g})" for one in (figure.old_floor, figure.new_floor)]
    return [
        f"{figure.old:.2g}{floors[0]}",
        f"{figure.new:.2g}{floors[1]}",
        f"{figure.difference:+.2g}",
        f"{figure.low:+.2g} to {figure.high:+.2g}",
    ]


def _flips(title: str, flips: FlippedDecisions) -> str:
    share = flips.flipped
    return (
        f"Of {flips.n:,} {title} {100 * share.rate:.1f} % are decided otherwise (95 %: {100 * share.low:.1f} "
        f"to {100 * share.high:.1f}): {flips.to_match} to a match, {flips.to_no_match} to none, "
        f"{flips.other_label} to another label; {flips.other_best} have another best match"
    )
