"""Why a match was wrong: what is left without the item, by a search without it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import vicinal
from tests.service.kept_searches import as_kept
from vicinal.calibration.arrays import FloatArray
from vicinal.models.bundle import ModelBundle
from vicinal.models.similarity import normalize
from vicinal.service.answering.different import CalledDifferent
from vicinal.service.answering.kept import KeptSearch
from vicinal.service.answering.store import SearchStore
from vicinal.service.answering.why import explain_wrong
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.search.pipeline import Group, Pipeline, Rerank

DIM = 8
OFF = Rerank(method="off")


def near(*parts: float) -> FloatArray:
    """A direction by its first numbers."""
    return np.asarray(normalize(np.array([[*parts, *[0.0] * (DIM - len(parts))]])), np.float32)[0]


# Mugs lie along the first axis, jugs along the second; `odd` is a mug by its label, among the jugs.
ITEMS = {
    "mug 1": ("mug", near(1.0, 0.0, 0.1)),
    "mug 2": ("mug", near(1.0, 0.05, 0.0)),
    "odd": ("mug", near(0.1, 1.0, 0.1)),
    "jug 1": ("jug", near(0.0, 1.0, 0.5)),
    "jug 2": ("jug", near(0.0, 1.0, -0.5)),
    "plain": (None, near(0.0, 0.0, 0.0, 1.0)),
}


@pytest.fixture
def opened(tmp_path: Path, tiny_bundle: ModelBundle) -> vicinal.LocalGallery:
    found = vicinal.open_gallery("clips", data_dir=tmp_path, bundle=tiny_bundle.path)
    labels = [label or "" for label, _ in ITEMS.values()]
    vectors = np.stack([vector for _, vector in ITEMS.values()])
    found.index(vicinal.EmbeddingSource.of_arrays(vectors, [*ITEMS], labels=labels), space="made-up")
    return found


def matcher_of(opened: vicinal.LocalGallery, pipeline: Pipeline, threshold: float) -> Matcher:
    found = Matcher(opened.gallery, opened.embedder, pipeline)
    found.different = CalledDifferent(opened.gallery)
    found.thresholds.set_by_hand(found.thresholds.with_form(pipeline), threshold)
    return found


def keep(matcher: Matcher, embedding: FloatArray, name: str) -> KeptSearch:
    (answer,) = matcher.search(embeddings=embedding, include_candidates=True)
    search = as_kept(answer, embedding, id=name)
    SearchStore(matcher.gallery.path).keep([(search, None)], most=100, days=9.0)
    return search


@pytest.mark.parametrize("rerank", [OFF, Rerank(k=4)], ids=["off", "contextual"])
@pytest.mark.parametrize("group", [None, Group(by="label")], ids=["items", "groups"])
def test_the_score_without_an_item_is_that_of_a_gallery_without_it(
    opened: vicinal.LocalGallery, rerank: Rerank, group: Group | None
) -> None:
    pipeline = Pipeline(rerank=rerank, group=group)
    matcher = matcher_of(opened, pipeline, 0.5)
    search = keep(matcher, near(0.1, 1.0, 0.0), "a")
    assert search.candidates[0].id == "odd"
    why = explain_wrong(matcher, "a", "odd")
    opened.remove(["odd"])
    later = Matcher(opened.gallery, opened.embedder, pipeline)
    (answer,) = later.search(embeddings=search.embedding, include_candidates=True, threshold=0.5)
    if group is None:
        scores = {one.label: one.score for one in reversed([*answer.matches, *answer.candidates])}
        best = answer.matches[0]
    else:
        groups = [*(answer.groups or ()), *(answer.candidate_groups or ())]
        scores = {one.label: one.score for one in groups}
        best = (answer.groups or ())[0].items[0]
    assert why.score_without == pytest.approx(scores["mug"], abs=1e-12)
    assert (why.best_without.id, why.best_without.label) == (best.id, "jug")
    assert why.verdict_without == "match"
    assert why.carrier is not None
    assert why.carrier.id == "odd"
    assert "carried it" in why.sentence
    assert "'jug' would match" in why.sentence
