"""`vicinal calibrate`: find the threshold for a stated target."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from vicinal.service.choices import GroupChoice, RefineChoice, RerankChoice
from vicinal.service.cli.console import console, errors, print_json, progress_bar, say
from vicinal.service.cli.options import (
    BundleOption,
    DataDirOption,
    EmbeddingColumnOption,
    GalleryOption,
    JsonOption,
    LabelColumnOption,
    open_matcher,
)
from vicinal.service.cli.promise import print_promise
from vicinal.service.words import of_items

__all__ = ["calibrate"]

_STAGES = {"embed": "Embedding queries", "score": "Scoring"}


def calibrate(
    gallery: GalleryOption,
    target: Annotated[
        str,
        typer.Option(
            help="fpir=5% (absent queries answered), fnir=20% (queries that miss all mates), far=0.001 "
            "(pairs accepted wrongly), frr=10% (rejected wrongly), precision=95%, utility=mean or worst."
        ),
    ] = "fpir=5%",
    queries: Annotated[
        Path | None,
        typer.Option(
            help="Labelled queries: class subfolders, a manifest, or ready embeddings as `vicinal index` "
            "takes them, whose ids may be missing. Default: leave one out."
        ),
    ] = None,
    coarse_labels: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="CSV file with the columns label and coarse, to tell near from far queries.",
        ),
    ] = None,
    coarse_by: Annotated[
        str | None, typer.Option(help="The same by a metadata column that holds the coarse label.")
    ] = None,
    visits_by: Annotated[
        str,
        typer.Option(
            help="What tells which items were taken together, and are never each other's mates: auto looks "
            "for it, none, or the metadata column of the visit or session."
        ),
    ] = "auto",
    embedding_column: EmbeddingColumnOption = None,
    label_column: LabelColumnOption = None,
    refine: Annotated[RefineChoice, typer.Option(help="What is refined; auto: as in searches.")] = "auto",
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of the refiner.")] = None,
    rerank: Annotated[RerankChoice, typer.Option(help="The re-ranking; auto: as in searches.")] = "auto",
    group_by: Annotated[
        str,
        typer.Option(
            help="Decide by products with all their items: label or a metadata key; auto: as in searches."
        ),
    ] = "auto",
    group_score: Annotated[
        GroupChoice,
        typer.Option(
            help="How a product is scored from its items; auto tries all and keeps the best item "
            "unless another is surely better."
        ),
    ] = "auto",
    max_queries: Annotated[int, typer.Option(min=1, help="Sample at most this many queries.")] = 2000,
    activate: Annotated[bool, typer.Option(help="Use it from the next search on.")] = True,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Use it, also where it promises less.")] = False,
    details: Annotated[bool, typer.Option("--details", help="All figures, with intervals.")] = False,
    data_dir: DataDirOption = None,
    bundle: BundleOption = None,
    json_output: JsonOption = False,
) -> None:
    """Find the one threshold that holds a stated target on this gallery, and what it lets expect."""
    from vicinal.indexer.sources import SourceOptions
    from vicinal.service.calibrator.coarse_labels import read_coarse_labels
    from vicinal.service.calibrator.options import CalibrationOptions
    from vicinal.service.calibrator.queries import read_queries
    from vicinal.service.calibrator.visits import visit_column
    from vicinal.service.reports.promise import objection
    from vicinal.service.tasks.calibrate import run_calibration

    options = CalibrationOptions(
        target=target,
        refine=refine,
        steps=steps,
        rerank=rerank,
        group_by=group_by,
        group_score=group_score,
        max_queries=max_queries,
        coarse_labels=None if coarse_labels is None else read_coarse_labels(coarse_labels),
        coarse_by=coarse_by,
        visits_by=visits_by,
    )
    matcher = open_matcher(gallery, data_dir=data_dir, bundle=bundle)
    with progress_bar() as update:

        def show(stage: str, done: int, total: int) -> None:
            update(_STAGES[stage], done, total)

        reading = None
        if queries is not None:
            reading = read_queries(
                queries,
                matcher.embedder,
                visits_by=visit_column(visits_by),
                on_progress=show,
                options=SourceOptions(label_column=label_column, embedding_column=embedding_column),
            )
        found = run_calibration(matcher, options, reading, on_progress=show)
    kept_back = None
    if activate and not yes:
        kept_back = objection(found.record, matcher.calibrations.active(found.record.pipeline))
        kept_back = kept_back and of_items(kept_back, matcher.embedder.bundle.manifest)
        if kept_back and not json_output and sys.stdin.isatty() and _is_wanted(kept_back):
            kept_back = None
    record = matcher.calibrations.add(
        found.record, found.scores, found.curves, activate=activate and kept_back is None
    )
    for one in reading.failures if reading else ():
        say(f"left out {one.path}: {one.reason}", to=errors if json_output else console)
    for warning in reading.warnings if reading and not json_output else ():
        say(warning)
    if kept_back:
        again = f"to use it: vicinal calibration activate {record.id} -g {gallery}"
        say(f"{kept_back} It was kept and is not in force; {again}", to=errors)
    if json_output:
        print_json(json.loads(record.model_dump_json()))
        return
    print_promise(record, gallery, matcher.embedder.bundle.manifest, details=details)


def _is_wanted(kept_back: str) -> bool:
    return typer.confirm(f"{kept_back} Use it all the same?")
