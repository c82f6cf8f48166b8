"""A gallery whose searches were kept and answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from tests.service.kept_searches import as_kept
from tests.service.types import View
from vicinal.indexer.gallery import Gallery
from vicinal.models.embedder import Embedder
from vicinal.service.answering.kept import KeptSearch
from vicinal.service.answering.store import SearchStore
from vicinal.service.measuring.matcher import Matcher

LABELS = ("red shoe", "blé", "größe 42", "o'brien", "50% off", "鞋", "plain", "a+b", "x_y", "z-z")


@dataclass(frozen=True)
class Kept:
    """Searches that were kept: two views of each of ten labels, and of 24 things that the gallery lacks."""

    store: SearchStore
    searches: list[KeptSearch]
    labels: list[str | None]

    def answer(self, places: Sequence[int] | None = None, by: str = "anna", *, draw: bool = True) -> None:
        """Draw searches and say what is right."""
        chosen = range(len(self.searches)) if places is None else places
        if draw:
            self.store.draw([self.searches[place].id for place in chosen])
        for place in chosen:
            label, search = self.labels[place], self.searches[place].id
            if label is None:
                self.store.answer(search, "absent", by=by)
            else:
                self.store.answer(search, "label", by=by, label=label)


@pytest.fixture(scope="session")
def embedded_views(view: View, embedder: Embedder) -> np.ndarray:
    places = [(number, look) for number in range(10) for look in (6, 7)]
    return embedder.embed([view(*one) for one in [*places, *((number, 6) for number in range(20, 44))]])


@pytest.fixture
def kept(gallery: Gallery, matcher: Matcher, embedded_views: np.ndarray) -> Kept:
    searches = []
    for row in embedded_views:
        (answer,) = matcher.search(embeddings=row, include_candidates=True)
        searches.append(as_kept(answer, row))
    store = SearchStore(gallery.path)
    store.keep([(one, None) for one in searches], most=1000, days=30.0)
    labels = [LABELS[number] for number in range(10) for _ in (6, 7)]
    return Kept(store, searches, [*labels, *[None] * 24])
