"""Self-hosted image search that knows when there is no match.

What a program needs stands here and is loaded when it is first named, so that importing `vicinal` is cheap:

    open_gallery           a gallery on this machine: index, add, search, calibrate
    calibrate_threshold    the threshold for the results of any search engine
    rerank                 contextual scores for the candidates of any search
    opis                   how differently the classes fare under one threshold
    EmbeddingSource        ready embeddings: a file, or arrays
    Bundle                 a model on the disk, opened and checked
    Embedder               embeds images with a bundle
    Refiner                refines embeddings with the refiner of a bundle
    Matcher                searches one state of a gallery; gives an Answer with Candidates
    Settings, create_app   the HTTP service, as an ASGI application

    >>> import numpy as np
    >>> import vicinal
    >>> scores = np.array([[0.9, 0.4], [0.8, 0.3]] * 40)
    >>> queries = np.arange(80) % 8
    >>> labels = np.stack([queries, queries ^ 1], axis=1)
    >>> found = vicinal.calibrate_threshold(scores, labels, queries, target="fpir=5%")
    >>> found.accepts([0.8, 0.4]).tolist()
    [True, False]
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vicinal.calibration.consistency.opis import Opis, opis
    from vicinal.calibration.search_results import CalibratedThreshold, calibrate_threshold
    from vicinal.indexer.sources.embeddings import EmbeddingSource
    from vicinal.models.bundle import ModelBundle as Bundle
    from vicinal.models.embedder import Embedder
    from vicinal.refine.context_refiner import ContextRefiner as Refiner
    from vicinal.refine.reranking import rerank
    from vicinal.service.http.app import create_app
    from vicinal.service.local_gallery import LocalGallery, open_gallery
    from vicinal.service.measuring.matcher import Matcher
    from vicinal.service.search.answers import Answer, Candidate
    from vicinal.service.settings import Settings

__all__ = [
    "Answer",
    "Bundle",
    "CalibratedThreshold",
    "Candidate",
    "Embedder",
    "EmbeddingSource",
    "LocalGallery",
    "Matcher",
    "Opis",
    "Refiner",
    "Settings",
    "calibrate_threshold",
    "create_app",
    "open_gallery",
    "opis",
    "rerank",
]

_PLACES = {
    "Answer": "service.search.answers.Answer",
    "Bundle": "models.bundle.ModelBundle",
    "CalibratedThreshold": "calibration.search_results.CalibratedThreshold",
    "Candidate": "service.search.answers.Candidate",
    "Embedder": "models.embedder.Embedder",
    "EmbeddingSource": "indexer.sources.embeddings.EmbeddingSource",
    "LocalGallery": "service.local_gallery.LocalGallery",
    "Matcher": "service.measuring.matcher.Matcher",
    "Opis": "calibration.consistency.opis.Opis",
    "Refiner": "refine.context_refiner.ContextRefiner",
    "Settings": "service.settings.Settings",
    "calibrate_threshold": "calibration.search_results.calibrate_threshold",
    "create_app": "service.http.app.create_app",
    "open_gallery": "service.local_gallery.open_gallery",
    "opis": "calibration.consistency.opis.opis",
    "rerank": "refine.reranking.rerank",
}


# From version 1.29 on ONNX Runtime reports to its maker what it runs, unless this is set before it is loaded.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'vicinal' has no attribute '{name}'")
    module, _, attribute = _PLACES[name].rpartition(".")
    found = getattr(import_module(f"vicinal.{module}"), attribute)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
