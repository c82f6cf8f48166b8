"""The demo: a synthetic catalog as a gallery, a threshold for each stage, and what searches show."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources import read_source
from vicinal.models.demo_catalog import DemoCatalog, write_demo_catalog
from vicinal.models.progress import OnProgress
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.measuring.records.record import CalibrationRecord, new_calibration_id
from vicinal.service.operations import Progress, calibrate
from vicinal.service.operations.place import Place
from vicinal.service.request_fields import PipelineChoice
from vicinal.service.search.pipeline import Pipeline
from vicinal.service.settings import Settings

GALLERY = "demo"
TARGET = "fpir=5%"

# An answer as JSON, as a client in any language sees it.
Answer = dict[str, Any]


@dataclass(frozen=True)
class DemoStage:
    """Line of a search up to `initial`, `refined` or `re-ranked`, with a threshold of its own."""

    name: str
    choice: PipelineChoice
    record: CalibrationRecord


@dataclass(frozen=True)
class PreparedDemo:
    """Demo that can be served; its last stage is the whole of the default line."""

    folder: Path
    catalog: DemoCatalog
    settings: Settings
    stages: tuple[DemoStage, ...]

    @property
    def record(self) -> CalibrationRecord:
        """The calibration that searches use which ask for nothing else."""
        return self.stages[-1].record


@dataclass(frozen=True)
class StageResult:
    """Rates of the queries at one stage; `hit_rate_1` whatever its threshold."""

    stage: str
    pipeline: str
    threshold: float
    hit_rate_1: float
    found_rate: float
    no_match_rate: float


@dataclass(frozen=True)
class CheckResult:
    """Rates of the queries over HTTP after the last stage and after each, and a request's median time."""

    n_queries: int
    n_absent: int
    hit_rate_1: float
    found_rate: float
    no_match_rate: float
    p50_milliseconds: float
    stages: tuple[StageResult, ...]


def prepare_demo(folder: Path, settings: Settings, on_progress: OnProgress) -> PreparedDemo:
    """Render the catalog, index it and calibrate each stage of the line for `TARGET`."""
    settings = settings.model_copy(update={"data_dir": folder / "data"})
    catalog = write_demo_catalog(
        folder / "catalog", on_image=lambda done, total: on_progress("Rendering products", done, total)
    )
    bundles = ServedBundles(settings)
    gallery = Gallery(settings.gallery_path(GALLERY), refinement=bundles.own.refinement)
    index_items(
        gallery,
        read_source(catalog.gallery),
        bundles.own.embedder,
        on_progress=lambda stage, done, total, *_: on_progress(f"Indexing: {stage}", done, total),
    )
    place = Place(bundles, gallery)
    stages = [
        DemoStage(name, choice, _calibrate(place, choice, partial(on_progress, f"Calibrating: {name}")))
        for name, choice in _stages(place.matcher.pipeline)
    ]
    return PreparedDemo(folder, catalog, settings, tuple(stages))


def _calibrate(
    place: Place, choice: PipelineChoice, on_progress: Callable[[int, int], None]
) -> CalibrationRecord:
    """Put a threshold of its own in force for a pipeline."""
    request = calibrate.CalibrateRequest(target=TARGET, activate=True, **choice.model_dump())

    def show(stage: str, done: int, total: int, _note: str = "", /) -> None:
        if stage in calibrate.STAGES:
            on_progress(done, total)

    return calibrate.run(replace(place, id=new_calibration_id()), request, Progress(show)).record


def _stages(pipeline: Pipeline) -> list[tuple[str, PipelineChoice]]:
    """The stages that a pipeline has, each with those before it."""
    stages = [("initial", PipelineChoice(refine="off", rerank="off", group_by="off"))]
    if pipeline.refine.sides != "off":
        stages.append(("refined", PipelineChoice(rerank="off", group_by="off")))
    if pipeline.rerank.method != "off":
        stages.append(("re-ranked", PipelineChoice(group_by="off")))
    # Searches that ask for nothing go through all of them.
    return [*stages, ("by label", PipelineChoice())]


def check_demo(demo: PreparedDemo, url: str, on_progress: OnProgress) -> CheckResult:
    """Search for every query image and every absent product over HTTP, at each stage."""
    images = (*demo.catalog.query_images, *demo.catalog.absent_images)
    milliseconds: list[float] = []
    results: list[StageResult] = []
    with httpx.Client(base_url=url, timeout=30.0) as client:
        # The whole line first: after that, the server knows the embeddings of the images.
        for stage in reversed(demo.stages):
            answers = []
            for path in images:
                started = time.perf_counter()
                answers.append(_ask(client, path, stage.choice))
                milliseconds.append(1e3 * (time.perf_counter() - started))
                on_progress(f"Searching over HTTP: {stage.name}", len(answers), len(images))
            results.insert(0, _result(demo.catalog, stage, answers))
    last = results[-1]
    return CheckResult(
        n_queries=len(demo.catalog.query_images),
        n_absent=len(demo.catalog.absent_images),
        hit_rate_1=last.hit_rate_1,
        found_rate=last.found_rate,
        no_match_rate=last.no_match_rate,
        p50_milliseconds=float(np.median(milliseconds[: len(images)])),
        stages=tuple(results),
    )


def _result(catalog: DemoCatalog, stage: DemoStage, answers: list[Answer]) -> StageResult:
    """Rates over the answers to all queries, and then to all absent products."""
    labels = [path.parent.name for path in catalog.query_images]
    known, absent = answers[: len(labels)], answers[len(labels) :]
    matched = [[match["label"] for match in answer["matches"]] for answer in known]
    first = [(answer["matches"] or answer["candidates"] or [{"label": None}])[0]["label"] for answer in known]
    return StageResult(
        stage=stage.name,
        pipeline=stage.record.pipeline.key,
        threshold=stage.record.threshold,
        hit_rate_1=float(np.mean([found == label for found, label in zip(first, labels, strict=True)])),
        found_rate=float(np.mean([label in found for found, label in zip(matched, labels, strict=True)])),
        no_match_rate=float(np.mean([answer["no_match"] for answer in absent])),
    )


def _ask(client: httpx.Client, path: Path, choice: PipelineChoice) -> Answer:
    response = client.post(
        f"/v1/galleries/{GALLERY}/search",
        files={"image": (path.name, path.read_bytes(), "image/jpeg")},
        data={"include_candidates": "true", **choice.model_dump(exclude_none=True)},
    )
    response.raise_for_status()
    return json.loads(response.content)
