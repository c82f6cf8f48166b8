"""Twins: queries that are the gallery's own pictures are named, and searched for as if those were gone."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.service.answering.conftest import LABELS
from tests.service.kept_searches import as_kept
from tests.service.types import Calibrate, Run, View
from vicinal.calibration import CalibrationError, Target
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.preparation import make_signature
from vicinal.models.embedder import Embedder
from vicinal.service.answering.drawn import drawn_searches
from vicinal.service.answering.store import SearchStore
from vicinal.service.measuring import twins
from vicinal.service.measuring.calibrator import Calibration, Calibrator
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.measuring.twins import GalleryPictures
from vicinal.service.measuring.visits import Visits
from vicinal.service.search.pipeline import Pipeline, Rerank

FNIR = Target(rate="fnir", value=0.2)
OFF = Pipeline(rerank=Rerank(method="off"))


def resaved(image: Image.Image) -> Image.Image:
    """The same picture at another size, as a JPEG."""
    stream = io.BytesIO()
    image.resize((96, 80), Image.Resampling.BICUBIC).save(stream, "JPEG", quality=60)
    return Image.open(stream).convert("RGB")


def queries_of(embedder: Embedder, images: list[Image.Image], labels: list[str]) -> LabelledQueries:
    signatures = np.stack([make_signature(one) for one in images])
    ids = np.array([f"query {number}" for number in range(len(images))], dtype=object)
    rows = np.concatenate([embedder.embed([one]) for one in images])
    return LabelledQueries(rows, np.array(labels, dtype=object), ids=ids, signatures=signatures)


def measured(gallery: Gallery, queries: LabelledQueries, visits_by: str = "none") -> Calibration:
    pictures = GalleryPictures(gallery, gallery.snapshot(), visits_by)
    return Calibrator(gallery.snapshot(), OFF, pictures=pictures).measure(queries, FNIR)


@pytest.fixture
def copies(view: View, embedder: Embedder) -> LabelledQueries:
    """A photo of each label of the gallery, saved again, and a new one of each."""
    own = [resaved(view(number, 2)) for number in range(10)]
    return queries_of(embedder, [*own, *(view(number, 9) for number in range(10))], [*LABELS, *LABELS])


def best_without(gallery: Gallery, queries: LabelledQueries, row: int, gone: list[str]) -> float:
    """Slow reference: the best mate's score where some items are not in the gallery."""
    items = gallery.snapshot()
    is_there = [one not in gone for one in items.item_table["id"].to_pylist()]
    mates = items.embeddings[is_there & (items.labels == queries.labels[row])]
    return float(np.exp(2.0 * (mates @ queries.embeddings[row]).max() - 2.0))


@pytest.mark.parametrize("has_pictures", [True, False])
def test_a_copy_is_named_and_finds_what_it_would_find_without_its_item(
    gallery: Gallery, copies: LabelledQueries, has_pictures: bool
) -> None:
    if not has_pictures:
        items = gallery.snapshot()
        rows = [items.item_table["id"].to_pylist().index(f"{label}/view 2.png") for label in LABELS]
        embeddings = np.concatenate([items.embeddings[rows], copies.embeddings[10:]])
        copies = replace(copies, embeddings=embeddings, signatures=None)
    found = measured(gallery, copies)
    expected = [best_without(gallery, copies, row, [f"{LABELS[row]}/view 2.png"]) for row in range(10)]
    expected += [best_without(gallery, copies, row, []) for row in range(10, 20)]
    assert found.measured.mates.best_scores == pytest.approx(expected, abs=1e-6)
    named = (
        "queries that are pictures of the gallery's own items: 10 of 20 ('query 0' is 'red shoe/view 2.png'"
    )
    assert found.record.warnings[0].startswith(named)


@pytest.fixture
def red_is_one_visit(gallery: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    names = np.array(["red" if label == "red shoe" else None for label in gallery.snapshot().labels], object)
    monkeypatch.setattr(twins, "find_visits", lambda *_: Visits("auto", names))


def test_what_was_taken_together_with_the_twin_is_not_there_either(
    gallery: Gallery, copies: LabelledQueries, red_is_one_visit: None
) -> None:
    found = measured(gallery, copies, "auto")
    # Nothing of its label is left: it counts in no rate, and the new photo of that label does.
    assert (found.record.n_with_mate, found.record.n_labels) == (19, 10)
    assert "so many lose their label by that, and count in no rate: 1" in found.record.warnings[0]
    with pytest.raises(CalibrationError, match="all 1 queries are pictures"):
        measured(gallery, copies.take(np.arange(1)), "auto")


def test_a_copy_under_a_label_that_the_gallery_lacks_is_still_of_a_stranger(
    gallery: Gallery, copies: LabelledQueries
) -> None:
    strange = replace(copies, labels=np.array(["stranger", *copies.labels[1:]], dtype=object))
    found = measured(gallery, strange).measured
    ids = gallery.snapshot().item_table["id"].to_pylist()
    assert not found.mates.has_mate[0]
    assert ids[found.found.best_items[0]] != "red shoe/view 2.png"


def test_a_kept_search_with_a_file_of_the_gallery_is_told_by_the_others_of_its_label(
    gallery: Gallery, matcher: Matcher, copies: LabelledQueries, red_is_one_visit: None
) -> None:
    store = SearchStore(gallery.path)
    answers = [matcher.search(embeddings=row, include_candidates=True)[0] for row in copies.embeddings]
    kept = [
        as_kept(*one, signature=picture.tobytes(), id=f"search {row:02}")
        for row, (*one, picture) in enumerate(zip(answers, copies.embeddings, copies.signatures, strict=True))
    ]
    store.keep([(one, None) for one in kept], most=100, days=30.0)
    store.draw([one.id for one in kept])
    for one, label in zip(kept, copies.labels, strict=True):
        store.answer(one.id, "label", by="anna", label=label)
    drawn = drawn_searches(store, matcher.pictures, matcher.pipeline.key)
    named = (
        "queries that are pictures of the gallery's own items: 10 of 20 ('search 00' is 'red shoe/view 2.png'"
    )
    assert drawn.warnings[-1].startswith(named)
    # Nothing of the first one's label is left: it counts in no rate, but among all searches.
    assert (len(drawn.labelled.labels), len(drawn.others.scores), drawn.is_unsure.any()) == (19, 1, False)
    measured = matcher.calibrator(OFF).score_searches(drawn, 0.5)
    row = drawn.labelled.ids.tolist().index("search 01")
    expected = best_without(gallery, copies, 1, [f"{LABELS[1]}/view 2.png"])
    assert measured.mates.best_scores[row] == pytest.approx(expected, abs=1e-6)
    tops = [np.sort(one) for one in (measured.searches.sample_scores, measured.searches.top_scores)]
    assert tops[0] == pytest.approx(tops[1], abs=1e-6)


@pytest.mark.parametrize(
    "command", [("calibrate", "--activate"), ("calibration", "check"), ("compare", "--target", "fpir=20%")]
)
def test_every_way_to_try_labelled_photos_says_so(
    run: Run, gallery: Gallery, calibrate: Calibrate, catalog: Path, command: tuple[str, ...]
) -> None:
    calibrate(gallery)
    said = run(*command, "-g", "shoes", "--queries", catalog).stdout
    assert "note: queries that are pictures of the gallery's own items: 60 of 60" in said
