"""A program over the package as its users write it: a type checker must see our types in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from vicinal import (
    Answer,
    CalibratedThreshold,
    EmbeddingSource,
    Matcher,
    Settings,
    calibrate_threshold,
    create_app,
    open_gallery,
    rerank,
)


def labels_of(matcher: Matcher, image: Path) -> list[str | None]:
    """Labels of what is in a picture, best first; empty when it is nothing of the gallery."""
    (answer,) = matcher.search(images=[image], limit=3)
    return [match.label for match in answer.matches]


def distance_to_a_match(answer: Answer) -> float:
    if answer.top_score is None or answer.threshold.value is None:
        return 1.0
    return max(0.0, answer.threshold.value - answer.top_score)


def search_own_embeddings(vectors: list[list[float]], ids: list[str]) -> Answer:
    clips = open_gallery("clips", data_dir="data")
    clips.index(EmbeddingSource.of_arrays(vectors, ids), space="clip@1")
    return clips.search(vectors[0], limit=3)


def decide(scores: list[list[float]], labels: list[list[str]], queries: list[str]) -> list[bool]:
    found: CalibratedThreshold = calibrate_threshold(scores, labels, queries, target="fpir=5%")
    return [bool(one) for one in found.accepts(rerank(np.ones(3), np.eye(3)))]


app = create_app(Settings(data_dir=Path("data"), threads=1))
