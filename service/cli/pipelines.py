"""`vicinal calibration compare-pipelines` and `use-pipeline`: which pipeline a gallery is searched with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from vicinal.service.calibrator.queries import read_queries
from vicinal.service.calibrator.record import new_calibration_id
from vicinal.service.cli.console import console, print_json, progress_bar
from vicinal.service.cli.options import (
    BundleOption,
    DataDirOption,
    GalleryOption,
    JsonOption,
    open_matcher,
)
from vicinal.service.comparisons.pipeline_comparison import compare_pipelines
from vicinal.service.comparisons.pipeline_record import (
    FigureDifference,
    PipelineComparison,
    PipelineComparisonOptions,
)
from vicinal.service.comparisons.pipeline_store import PipelineComparisonStore, activate_pipeline
from vicinal.service.errors import RequestError
from vicinal.service.reports.words import percent, rate_name, span

__all__ = ["compare_pipelines_of", "use_pipeline"]


def compare_pipelines_of(
    gallery: GalleryOption,
    target: Annotated[str, typer.Option(help="What every pipeline has to hold.")] = "fpir=5%",
    queries: Annotated[
        Path | None,
        typer.Option(help="Labelled queries: class subfolders or a manifest. Default: leave one out."),
    ] = None,
    group_by: Annotated[str | None, typer.Option(help="Metadata column of the visit or session.")] = None,
    max_queries: Annotated[int, typer.Option(min=1, help="Sample at most this many queries.")] = 1000,
    activate: Annotated[bool, typer.Option(help="Use the recommended pipeline and its threshold.")] = False,
    data_dir: DataDirOption = None,
    bundle: BundleOption = None,
    json_output: JsonOption = False,
) -> None:
    """Try refinement and re-ranking in several settings on the same queries, and recommend one."""
    matcher = open_matcher(gallery, data_dir=data_dir, bundle=bundle)
    options = PipelineComparisonOptions(target=target, max_queries=max_queries, group_by=group_by)
    reading = None if queries is None else read_queries(queries, matcher.embedder, group_by=group_by)
    with progress_bar() as update:
        found = compare_pipelines(
            matcher,
            options,
            reading,
            name=new_calibration_id(),
            on_progress=lambda _stage, done, total: update("Scoring", done, total),
        )
    comparison = PipelineComparisonStore(matcher.calibrations).add(found)
    if activate:
        activate_pipeline(matcher, comparison)
    if json_output:
        print_json(comparison.model_dump(mode="json"))
    else:
        _print_comparison(comparison)


def use_pipeline(
    gallery: GalleryOption,
    comparison: Annotated[str | None, typer.Argument(help="Id of the comparison.")] = None,
    pipeline: Annotated[
        str | None, typer.Option(help="Key of the pipeline; the recommended one by default.")
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Let the settings choose again.")] = False,
    data_dir: DataDirOption = None,
    bundle: BundleOption = None,
    json_output: JsonOption = False,
) -> None:
    """Use a compared pipeline and its threshold from the next search on; without an id, say what is used."""
    if reset and comparison is not None:
        raise RequestError("name a comparison or --reset, not both")
    matcher = open_matcher(gallery, data_dir=data_dir, bundle=bundle)
    if comparison is not None:
        activate_pipeline(matcher, PipelineComparisonStore(matcher.calibrations).find(comparison), pipeline)
    elif reset:
        matcher.pipeline_file.clear()
    found = matcher.active_pipeline
    threshold = matcher.threshold(found.pipeline)
    if json_output:
        print_json(
            {
                "pipeline": found.pipeline.key,
                "source": found.source,
                "comparison": None if found.chosen is None else found.chosen.comparison,
                "threshold": threshold.value,
                "reason": found.reason,
            }
        )
        return
    value = "none" if threshold.value is None else f"{threshold.value:.4f}"
    console.print(
        f"Gallery {gallery} is searched with '{found.pipeline.key}', by the {found.source}; "
        f"threshold {value}",
        markup=False,
        soft_wrap=True,
    )
    if found.reason:
        console.print(f"  note: {found.reason}", markup=False, soft_wrap=True)


def _print_comparison(found: PipelineComparison) -> None:
    name = rate_name(found.asked)
    columns = ("", "pipeline", "threshold", name, "to the present", "R@1", "MAP@R", "AUROC", "OPIS")
    table = Table(*columns, box=None)
    for one in found.variants:
        mark = "*" if one.key == found.recommended else ""
        if one.figures is None:
            table.add_row(mark, one.key, one.problem or "")
            continue
        figures = one.figures
        table.add_row(
            mark,
            one.key,
            f"{figures.threshold:.4f}",
            f"{percent(figures.error.rate)} [{span(figures.error.low, figures.error.high)}]",
            _points(one.differences.get("error")),
            percent(figures.hit_rate.rate),
            f"{figures.map_at_r:.3f}",
            f"{figures.auroc:.3f}",
            "" if figures.opis is None else f"{figures.opis:.2g}",
        )
    console.print(table)
    console.print(f"* recommended: {found.reason}", markup=False, soft_wrap=True)
    if found.optimism is not None:
        console.print(
            f"  chosen on half of the labels, the best promised {name} {percent(found.optimism.promised)} "
            f"and showed {percent(found.optimism.shown)} on the other half (mean of "
            f"{found.optimism.n_splits} splits)",
            markup=False,
            soft_wrap=True,
        )
    for warning in found.warnings:
        console.print(f"  note: {warning}", markup=False, soft_wrap=True)
    console.print(
        f"  use it with `vicinal calibration use-pipeline {found.id} -g {found.gallery}`",
        markup=False,
        soft_wrap=True,
    )


def _points(found: FigureDifference | None) -> str:
    if found is None:
        return "present"
    return f"{100 * found.difference:+.1f} [{100 * found.low:+.1f} to {100 * found.high:+.1f}]"
