"""`vicinal calibrate`: find the threshold for a stated target."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer

from vicinal.calibration import CalibrationError, Target
from vicinal.indexer.sources import SourceItem, read_source
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.embedder import Embedder
from vicinal.service.calibrator.calibrator import Calibrator
from vicinal.service.calibrator.item_groups import (
    PhotoGroups,
    coarse_labels_by_column,
    group_name,
    read_coarse_labels,
)
from vicinal.service.calibrator.leave_one_out_checks import picture_comparison
from vicinal.service.calibrator.queries import LabelledQueries
from vicinal.service.cli.console import print_json, progress_bar
from vicinal.service.cli.options import (
    BundleOption,
    DataDirOption,
    GalleryOption,
    JsonOption,
    load_embedder,
    load_settings,
    open_gallery,
)
from vicinal.service.matcher.matcher import Matcher
from vicinal.service.reports.text import print_calibration
from vicinal.service.scoring.pipeline import RefineChoice, RerankChoice, choose_pipeline

__all__ = ["calibrate"]


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
        typer.Option(help="Labelled queries: class subfolders or a manifest. Default: leave one out."),
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
    group_by: Annotated[
        str | None,
        typer.Option(
            help="Metadata column of the visit or session: photos of one are never each other's mates."
        ),
    ] = None,
    refine: Annotated[RefineChoice, typer.Option(help="What is refined; auto is the setting.")] = "auto",
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of the refiner.")] = None,
    rerank: Annotated[RerankChoice, typer.Option(help="The pipeline to calibrate.")] = "auto",
    max_queries: Annotated[int, typer.Option(min=1, help="Sample at most this many queries.")] = 2000,
    activate: Annotated[bool, typer.Option(help="Use it from the next search on.")] = True,
    data_dir: DataDirOption = None,
    bundle: BundleOption = None,
    json_output: JsonOption = False,
) -> None:
    """Find the one threshold that holds a stated target on this gallery, and what it lets expect."""
    settings = load_settings(data_dir=data_dir, bundle=bundle)
    wanted = Target.parse(target)
    embedder = load_embedder(settings)
    default = settings.pipeline_for(embedder.bundle)
    matcher = Matcher(open_gallery(settings, gallery, embedder.bundle), embedder, default)
    pipeline = choose_pipeline(default, rerank, refine=refine, steps=steps, bundle=embedder.bundle)
    snapshot = matcher.snapshot
    groups = PhotoGroups.of(snapshot, group_by) if group_by else None
    items = _read_queries(queries) if queries else []
    coarse = _coarse_labels(snapshot, coarse_labels, coarse_by, items)
    labelled = _embed(items, embedder, group_by) if items else LabelledQueries.leave_one_out(snapshot, groups)
    calibrator = Calibrator(
        snapshot,
        pipeline,
        max_queries=max_queries,
        refinement=matcher.refinement(pipeline),
        groups=groups,
        same_pictures=picture_comparison(matcher.gallery, snapshot),
    )
    with progress_bar() as update:
        found = calibrator.measure(
            labelled,
            wanted,
            coarse_labels=coarse,
            on_progress=lambda done, total: update("Scoring", done, total),
        )
    record = matcher.calibrations.add(found.record, found.scores, found.curves, activate=activate)
    if json_output:
        print_json(json.loads(record.model_dump_json()))
    else:
        print_calibration(record)


def _coarse_labels(
    snapshot: Snapshot, path: Path | None, column: str | None, items: list[SourceItem]
) -> dict[str, str] | None:
    if path is not None and column is not None:
        raise CalibrationError("coarse labels come from a file or from a metadata column: name one of them")
    if path is not None:
        return read_coarse_labels(path)
    if column is None:
        return None
    further = ((item.label, item.metadata) for item in items if item.label is not None)
    return coarse_labels_by_column(snapshot, column, further)


def _read_queries(source: Path) -> list[SourceItem]:
    items = read_source(source)
    unlabelled = sum(item.label is None for item in items)
    if unlabelled:
        raise CalibrationError(f"{unlabelled} of {len(items)} queries in '{source}' have no label")
    return items


def _embed(items: list[SourceItem], embedder: Embedder, group_by: str | None) -> LabelledQueries:
    parts = []
    with progress_bar() as update:
        for start in range(0, len(items), embedder.batch_size):
            batch = items[start : start + embedder.batch_size]
            parts.append(embedder.embed([item.path for item in batch]))
            update("Embedding queries", start + len(batch), len(items))
    return LabelledQueries(
        np.concatenate(parts),
        _texts(item.label for item in items),
        ids=_texts(item.id for item in items),
        groups=_texts(group_name(item.metadata.get(group_by)) for item in items) if group_by else None,
    )


def _texts(values: Iterable[str | None]) -> npt.NDArray[np.object_]:
    return np.array(list(values), dtype=object)
