"""The demo: a synthetic catalog, rendered, indexed, calibrated and searched over HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.build import build_gallery
from vicinal.indexer.sources import read_source
from vicinal.models.bundle import ModelBundle
from vicinal.models.demo_catalog import DemoCatalog, write_demo_catalog
from vicinal.models.embedder import Embedder
from vicinal.service.calibrator.options import CalibrationOptions
from vicinal.service.calibrator.record import CalibrationRecord
from vicinal.service.matcher.matcher import Matcher
from vicinal.service.scoring.opened_refiner import refinement_plan
from vicinal.service.settings import Settings
from vicinal.service.tasks.calibrate import run_calibration

__all__ = ["GALLERY", "TARGET", "CheckResult", "PreparedDemo", "check_demo", "prepare_demo"]

GALLERY = "demo"
TARGET = "fpir=5%"

# An answer as JSON, as a client in any language sees it.
Answer = dict[str, Any]
OnProgress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class PreparedDemo:
    """A demo that can be served.

    Attributes:
        folder: Holds `catalog/` and the data folder `data/`.
    """

    folder: Path
    catalog: DemoCatalog
    settings: Settings
    record: CalibrationRecord


@dataclass(frozen=True)
class CheckResult:
    """What the queries over HTTP showed.

    Attributes:
        hit_rate_1: Share of queries whose best candidate is their product, threshold or not.
        found_rate: Share of queries that got a match of their product; 1 - FNIR.
        no_match_rate: Share of absent products answered with "no match"; 1 - FPIR.
        p50_milliseconds: Median time of a request, as the client saw it.
    """

    n_queries: int
    n_absent: int
    hit_rate_1: float
    found_rate: float
    no_match_rate: float
    p50_milliseconds: float


def prepare_demo(folder: Path, settings: Settings, on_progress: OnProgress) -> PreparedDemo:
    """Render the catalog, index it and calibrate it for `TARGET`.

    Args:
        folder: Where everything goes; files of an earlier demo are replaced.
        settings: Bundle, device and pipeline to use; its data folder is not.
        on_progress: Called with the stage, what is done and all there is.
    """
    settings = settings.model_copy(update={"data_dir": folder / "data"})
    catalog = write_demo_catalog(
        folder / "catalog", on_image=lambda done, total: on_progress("Rendering products", done, total)
    )
    embedder = Embedder(ModelBundle.open(settings.bundle), device=settings.device, threads=settings.threads)
    pipeline = settings.pipeline_for(embedder.bundle)
    refinement = refinement_plan(pipeline, embedder.bundle)
    gallery = Gallery(settings.galleries_path / GALLERY, refinement=refinement)
    build_gallery(
        gallery,
        read_source(catalog.gallery),
        embedder,
        on_progress=lambda one: on_progress(f"Indexing: {one.stage}", one.done, one.total),
    )
    matcher = Matcher(gallery, embedder, pipeline)
    found = run_calibration(
        matcher,
        CalibrationOptions(target=TARGET),
        on_progress=lambda _stage, done, total: on_progress("Calibrating", done, total),
    )
    record = matcher.calibrations.add(found.record, found.scores, found.curves)
    return PreparedDemo(folder, catalog, settings, record)


def check_demo(demo: PreparedDemo, url: str, on_progress: OnProgress) -> CheckResult:
    """Search for every query image and every absent product over HTTP.

    Raises:
        httpx.HTTPError: The server did not answer a search.
    """
    catalog = demo.catalog
    n = len(catalog.query_images) + len(catalog.absent_images)
    milliseconds: list[float] = []
    answers = []
    with httpx.Client(base_url=url, timeout=30.0) as client:
        for path in (*catalog.query_images, *catalog.absent_images):
            started = time.perf_counter()
            answers.append(_ask(client, path))
            milliseconds.append(1e3 * (time.perf_counter() - started))
            on_progress("Searching over HTTP", len(answers), n)
    known = list(zip(catalog.query_images, answers, strict=False))
    absent = answers[len(catalog.query_images) :]
    return CheckResult(
        n_queries=len(known),
        n_absent=len(absent),
        hit_rate_1=float(np.mean([_first_label(answer) == path.parent.name for path, answer in known])),
        found_rate=float(np.mean([path.parent.name in _match_labels(answer) for path, answer in known])),
        no_match_rate=float(np.mean([answer["no_match"] for answer in absent])),
        p50_milliseconds=float(np.median(milliseconds)),
    )


def _ask(client: httpx.Client, path: Path) -> Answer:
    response = client.post(
        f"/v1/galleries/{GALLERY}/search",
        files={"image": (path.name, path.read_bytes(), "image/jpeg")},
        data={"include_candidates": "true"},
    )
    response.raise_for_status()
    answer: Answer = json.loads(response.content)
    return answer


def _first_label(answer: Answer) -> str | None:
    found = answer["matches"] or answer["candidates"]
    return found[0]["label"] if found else None


def _match_labels(answer: Answer) -> set[str]:
    return {match["label"] for match in answer["matches"]}
