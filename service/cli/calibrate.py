"""`vicinal calibrate`: find the threshold for a stated target."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vicinal.service.cli.console import console, errors, print_json, progress_bar, say
from vicinal.service.cli.options import (
    BundleOption,
    DataDirOption,
    EmbeddingColumnOption,
    GalleryOption,
    IdColumnOption,
    JsonOption,
    LabelColumnOption,
    PathColumnOption,
    QueryLabelOption,
    open_matcher,
    place_words,
)
from vicinal.service.cli.promise import print_promise
from vicinal.service.request_fields import GroupChoice, RefineChoice, RerankChoice

if TYPE_CHECKING:
    from vicinal.service.measuring.queries import QueryReading

_STAGES = {"embed": "Embedding queries", "score": "Scoring"}


TargetOption = Annotated[
    str,
    typer.Option(
        help="fpir=5% (absent queries answered), fnir=20% (queries that miss all mates), far=0.001 "
        "(pairs accepted wrongly), frr=10% (rejected wrongly), precision=95%, utility=mean or worst."
    ),
]
QueriesOption = Annotated[
    str | None,
    typer.Option(
        help="Labelled queries, of any source that `vicinal index` takes; ids of ready embeddings may be "
        "missing. Default: leave one out."
    ),
]
CoarseLabelsOption = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        help="CSV file with the columns label and coarse, to tell near from far queries.",
    ),
]
CoarseByOption = Annotated[
    str | None, typer.Option(help="The same by a metadata column that holds the coarse label.")
]
VisitsByOption = Annotated[
    str,
    typer.Option(
        help="What tells which items were taken together, and are never each other's mates: auto looks "
        "for it, none, or the metadata column of the visit or session."
    ),
]
GroupByOption = Annotated[
    str,
    typer.Option(
        help="Decide by products with all their items: label or a metadata key; auto: as in searches."
    ),
]
GroupScoreOption = Annotated[
    GroupChoice,
    typer.Option(
        help="How a product is scored from its items; auto tries all and keeps the best item "
        "unless another is surely better."
    ),
]
AbsentOption = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=0.99,
        help="Share of real searches for things that the gallery lacks, such as 0.2: how many matches are "
        "right depends on it. Default: that of the queries, and half where each is tried both ways.",
    ),
]


def calibrate(
    gallery: GalleryOption,
    target: TargetOption = "fpir=5%",
    queries: QueriesOption = None,
    coarse_labels: CoarseLabelsOption = None,
    coarse_by: CoarseByOption = None,
    visits_by: VisitsByOption = "auto",
    label_from: QueryLabelOption = None,
    path_column: PathColumnOption = None,
    label_column: LabelColumnOption = None,
    id_column: IdColumnOption = None,
    embedding_column: EmbeddingColumnOption = None,
    refine: Annotated[RefineChoice, typer.Option(help="What is refined; auto: as in searches.")] = "auto",
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of the refiner.")] = None,
    rerank: Annotated[RerankChoice, typer.Option(help="The re-ranking; auto: as in searches.")] = "auto",
    group_by: GroupByOption = "auto",
    group_score: GroupScoreOption = "auto",
    max_queries: Annotated[int, typer.Option(min=1, help="Sample at most this many queries.")] = 2000,
    absent: AbsentOption = None,
    activate: Annotated[bool, typer.Option(help="Use it from the next search on.")] = True,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Use it, also where it promises less.")] = False,
    details: Annotated[bool, typer.Option("--details", help="All figures, with intervals.")] = False,
    data_dir: DataDirOption = None,
    bundle: BundleOption = None,
    json_output: JsonOption = False,
) -> None:
    """Find the one threshold that holds a stated target on this gallery, and what it lets expect."""
    from vicinal.indexer.sources import ANYWHERE, SourceOptions, place_of
    from vicinal.service.measuring.coarse_labels import read_coarse_labels
    from vicinal.service.measuring.queries import read_queries
    from vicinal.service.measuring.visits import visit_column
    from vicinal.service.request_fields import CalibrationOptions
    from vicinal.service.tasks.calibrate import objection_in, run_calibration

    options = CalibrationOptions(
        target=target,
        refine=refine,
        steps=steps,
        rerank=rerank,
        group_by=group_by,
        group_score=group_score,
        max_queries=max_queries,
        absent=absent,
        coarse_labels=None if coarse_labels is None else read_coarse_labels(coarse_labels),
        coarse_by=coarse_by,
        visits_by=visits_by,
    )
    matcher = open_matcher(gallery, data_dir=data_dir, bundle=bundle)
    columns = path_column, label_column, id_column, embedding_column
    reading = None
    with progress_bar() as update:

        def show(stage: str, done: int, total: int, _note: str = "", /) -> None:
            update(_STAGES[stage], done, total)

        if queries is not None:
            reading = read_queries(
                place_of(queries),
                matcher.embedder,
                visits_by=visit_column(visits_by),
                on_progress=show,
                options=SourceOptions("", label_from, *columns, ANYWHERE),
            )
        found = run_calibration(matcher, options, reading, on_progress=show)
    kept_back = None if yes or not activate else objection_in(matcher, found.record)
    if kept_back and not json_output and sys.stdin.isatty() and _is_wanted(kept_back):
        kept_back = None
    record = matcher.calibrations.add(
        found.record, found.scores, found.curves, activate=activate and kept_back is None
    )
    if reading is not None:
        _print_reading(reading, json_output=json_output)
    places = place_words(data_dir=data_dir, bundle=bundle)
    if kept_back:
        again = shlex.join(["vicinal", "calibration", "activate", record.id, "-g", gallery, *places])
        say(f"{kept_back} It was kept and is not in force; to use it: {again}", to=errors)
    if json_output:
        print_json(json.loads(record.model_dump_json()))
    else:
        print_promise(record, gallery, matcher.embedder.bundle.manifest, details=details, places=places)


def _print_reading(reading: QueryReading, *, json_output: bool) -> None:
    for one in reading.failures:
        say(f"left out {one.path}: {one.reason}", to=errors if json_output else console)
    for warning in () if json_output else reading.warnings:
        say(warning)


def _is_wanted(kept_back: str) -> bool:
    return typer.confirm(f"{kept_back} Use it all the same?")
