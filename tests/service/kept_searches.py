"""Kept searches for tests: new views of the catalog's labels, and of things that it lacks."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from PIL import Image

from vicinal.calibration.arrays import FloatArray
from vicinal.service.answering.kept import KeptCandidate, KeptSearch
from vicinal.service.answering.store import SearchStore
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.search.answers import Answer

View = Callable[[int, int], Image.Image]
N_LABELS = 10


def keep_searches(matcher: Matcher, view: View, n: int = 20, **changes: Any) -> list[KeptSearch]:
    """Keep searches for the labels 0, 1, …, those from `N_LABELS` on strangers; view 6 + i of the i-th."""
    images = [view(number % (2 * N_LABELS), 6 + number) for number in range(n)]
    answers = matcher.search(images=images, limit=5, include_candidates=True)
    embeddings = matcher.embedder.embed_queries(images, {})
    kept = []
    for number, (answer, embedding) in enumerate(zip(answers, embeddings, strict=True)):
        own = {"id": f"{number:032x}", "key": (number + 0.5) / (n + 1), "signature": bytes(768)}
        kept.append(as_kept(answer, embedding, **{**own, **changes}))
    pictures = [jpeg(one) for one in images]
    store = SearchStore(matcher.gallery.path)
    store.keep(zip(kept, pictures, strict=True), most=1000, days=30.0)
    return kept


def as_kept(answer: Answer, embedding: FloatArray, **changes: Any) -> KeptSearch:
    """A search as it is kept, by its answer with candidates."""
    found = [*answer.matches, *answer.candidates]
    search = KeptSearch(
        embedding=embedding,
        bundle=answer.bundle,
        version=answer.version,
        revision=answer.revision,
        pipeline=answer.pipeline,
        candidates=tuple(KeptCandidate(one.id, one.label, one.score) for one in found),
        verdict=answer.verdict,
        threshold=answer.threshold.value,
        calibration=answer.threshold.calibration,
    )
    return replace(search, **changes)


def jpeg(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "JPEG")
    return stream.getvalue()
