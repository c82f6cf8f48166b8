"""Explanation: the numbers are those of the refiner and of the search."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.sources import read_source
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.models.similarity import exact_similarities
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.search.answers import ExplainedRefinement
from vicinal.service.search.item_spaces import refinement_plan
from vicinal.service.settings import Settings

GALLERY, ITEM = "shoes", "plain/view 0.png"


@pytest.fixture(scope="module")
def settings(
    tmp_path_factory: pytest.TempPathFactory, catalog: Path, refiner_bundle: ModelBundle
) -> Settings:
    made = Settings(
        data_dir=tmp_path_factory.mktemp("explained"), bundle=refiner_bundle.path, device="cpu", threads=1
    )
    plan = refinement_plan(made.pipeline_for(refiner_bundle), refiner_bundle)
    gallery = Gallery(made.galleries_path / GALLERY, refinement=plan)
    index_items(gallery, read_source(catalog), Embedder(refiner_bundle, device="cpu", threads=1), workers=1)
    return made


@pytest.fixture(scope="module")
def matcher(settings: Settings, refiner_bundle: ModelBundle) -> Matcher:
    embedder = Embedder(refiner_bundle, device="cpu", threads=1)
    return Matcher(Gallery.open(settings.galleries_path / GALLERY), embedder)


def explain(matcher: Matcher, **options: object) -> ExplainedRefinement:
    return matcher.search(item_ids=[ITEM], explain=True, **options)[0].explanation.refinement


def test_neighbors_are_the_nearest_items_with_their_attention(matcher: Matcher) -> None:
    found = explain(matcher)
    position = matcher.view.positions([ITEM])
    context = matcher.view.neighbor_positions(position)[:, :4]
    query, vectors = matcher.view.vectors(position), matcher.view.vectors(context)
    attention = matcher.refiner.attend(query, vectors).attention[0]
    assert [one.id for one in found.neighbors] == [item["id"] for item in matcher.view.items(context[0])]
    np.testing.assert_array_equal([one.attention for one in found.neighbors], attention.T)
    np.testing.assert_array_equal(
        [one.similarity for one in found.neighbors], exact_similarities(query, vectors)[0]
    )
