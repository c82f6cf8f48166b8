"""`vicinal calibrate`: find the threshold for a stated error rate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from calibration import CalibrationError, Target
from indexer.sources import read_source
from models.embedder import Embedder
from service.calibration_store import CalibrationRecord, CalibrationStore
from service.calibrator import Calibrator, LabelledQueries
from service.cli.console import console, print_json, progress_bar
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

__all__ = ["calibrate", "print_calibration"]


def calibrate(
    gallery: GalleryOption,
    target: Annotated[
        str, typer.Option(help="far=0.001 (pairs accepted wrongly) or fpir=5% (absent queries answered).")
    ] = "fpir=5%",
    queries: Annotated[
        Path | None,
        typer.Option(help="Labelled queries: class subfolders or a manifest. Default: leave one out."),
    ] = None,
    rerank: Annotated[RerankChoice, typer.Option(help="The pipeline to calibrate.")] = "auto",
    max_queries: Annotated[int, typer.Option(min=1, help="Sample at most this many queries.")] = 2000,
    activate: Annotated[bool, typer.Option(help="Use it from the next search on.")] = True,
    data_dir: DataDirOption = None,
    bundle: BundleOption = None,
    json_output: JsonOption = False,
) -> None:
    """Find the one threshold that holds a stated error rate on this gallery."""
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
            labelled, wanted, on_progress=lambda done, total: update("Scoring", done, total)
        )
    CalibrationStore(matcher.gallery.calibrations_path).add(record, activate=activate)
    if json_output:
        print_json(json.loads(record.model_dump_json()))
    else:
        print_calibration(record)


def print_calibration(record: CalibrationRecord) -> None:
    """Say what a calibration found."""
    console.print(
        f"Threshold [bold]{record.threshold:.4f}[/] for {record.target} on {record.n_items:,} items "
        f"({record.pipeline.key}), calibration {record.id}",
        soft_wrap=True,
    )
    rates = record.rates
    if rates:
        console.print(
            f"  FAR {_percent(rates.far)} of {record.n_negative_pairs:,} negative pairs, "
            f"FRR {_percent(rates.frr)} of {record.n_positive_pairs:,} positive pairs",
            soft_wrap=True,
        )
        console.print(
            f"  FPIR {_percent(rates.fpir)} of {record.n_without_mate:,} queries without a mate, "
            f"FNIR {_percent(rates.fnir)} of {record.n_with_mate:,} queries with one, "
            f"hit rate R@1 {_percent(rates.hit_rate_1)}",
            soft_wrap=True,
        )
    for warning in record.warnings:
        console.print(f"  note: {warning}", markup=False, soft_wrap=True)


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


def _percent(rate: float | None) -> str:
    return "not measured" if rate is None else f"{100 * rate:.3g} %"
