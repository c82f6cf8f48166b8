"""`vicinal calibrate`: find the threshold for a stated target."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from calibration import CalibrationError, Target
from indexer.sources import read_source
from models.embedder import Embedder
from service.calibration_store import CalibrationStore
from service.calibrator import Calibrator, LabelledQueries
from service.cli.calibration_text import print_calibration
from service.cli.console import print_json, progress_bar
from service.cli.options import (
    BundleOption,
    DataDirOption,
    GalleryOption,
    JsonOption,
    load_embedder,
    load_settings,
    open_gallery,
)
from service.matcher import Matcher
from service.pipeline import RerankChoice, choose_pipeline

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
    matcher = Matcher(open_gallery(settings, gallery), embedder, settings.pipeline)
    labelled = (
        LabelledQueries.leave_one_out(matcher.snapshot) if queries is None else _embed(queries, embedder)
    )
    calibrator = Calibrator(
        matcher.snapshot, choose_pipeline(settings.pipeline, rerank), max_queries=max_queries
    )
    with progress_bar() as update:
        record = calibrator.run(
            labelled,
            wanted,
            coarse_labels=_read_coarse_labels(coarse_labels) if coarse_labels else None,
            on_progress=lambda done, total: update("Scoring", done, total),
        )
    CalibrationStore(matcher.gallery.calibrations_path).add(record, activate=activate)
    if json_output:
        print_json(json.loads(record.model_dump_json()))
    else:
        print_calibration(record)


def _read_coarse_labels(path: Path) -> dict[str, str]:
    with path.open(newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream)
        if not {"label", "coarse"} <= set(reader.fieldnames or ()):
            raise CalibrationError(f"'{path}' has no columns label and coarse: name them in its first line")
        return {row["label"]: row["coarse"] for row in reader}


def _embed(source: Path, embedder: Embedder) -> LabelledQueries:
    items = read_source(source)
    unlabelled = sum(item.label is None for item in items)
    if unlabelled:
        raise CalibrationError(f"{unlabelled} of {len(items)} queries in '{source}' have no label")
    parts = []
    with progress_bar() as update:
        for start in range(0, len(items), embedder.batch_size):
            batch = items[start : start + embedder.batch_size]
            parts.append(embedder.embed([item.path for item in batch]))
            update("Embedding queries", start + len(batch), len(items))
    return LabelledQueries(np.concatenate(parts), np.array([item.label for item in items], dtype=object))
