"""Drawn searches: which answers count, for what, and what is said of the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tests.service.answering.conftest import LABELS, Kept
from vicinal.calibration import Target
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import add_items, remove_items
from vicinal.indexer.jobs.compaction import compact
from vicinal.indexer.jobs.preparation import ready_rows
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources.embedding_files import ReadyRows
from vicinal.models.embedder import Embedder
from vicinal.service.answering.drawn import drawn_searches
from vicinal.service.answering.kept import KeptSearch
from vicinal.service.measuring.calibrator import Calibration, Calibrator
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.searches import DrawnSearches
from vicinal.service.reports.promise import promise

FPIR = Target(rate="fpir", value=0.05)


def drawn_of(kept: Kept, matcher: Matcher) -> DrawnSearches:
    return drawn_searches(kept.store, matcher.pictures, matcher.pipeline.key)


def calibrated(kept: Kept, matcher: Matcher, target: Target = FPIR) -> Calibration:
    calibrator = Calibrator(matcher.snapshot, matcher.pipeline)
    return calibrator.measure_searches(drawn_of(kept, matcher), target, threshold=0.7)


def test_answers_become_queries_with_their_labels_and_strangers_have_one_of_their_own(
    kept: Kept, matcher: Matcher
) -> None:
    kept.answer()
    found = drawn_of(kept, matcher)
    by_id = labels_of(found)
    assert [by_id[one.id] for one in kept.searches[:20]] == kept.labels[:20]
    strangers = [by_id[one.id] for one in kept.searches[20:]]
    assert len(set(strangers)) == 24
    assert not set(strangers) & set(LABELS)
    assert len(found.sample.embeddings) == 44
    assert (len(found.others.embeddings), found.warnings) == (0, ())


def test_an_answer_counts_once_its_search_is_drawn(kept: Kept, matcher: Matcher) -> None:
    kept.answer(range(20))
    kept.answer([20, 21], draw=False)
    found = drawn_of(kept, matcher)
    assert len(found.labelled.labels) == 20
    assert found.warnings == ("answers to searches that were not drawn, which are left out: 2",)
    kept.store.draw([kept.searches[20].id])
    assert len(drawn_of(kept, matcher).labelled.labels) == 21


def test_who_cannot_tell_gives_way_to_who_can_and_persons_who_disagree_leave_it_open(
    kept: Kept, matcher: Matcher
) -> None:
    kept.answer(range(10))
    ids = [one.id for one in kept.searches]
    kept.store.answer(ids[0], "unsure", by="ben")
    kept.store.answer(ids[1], "absent", by="ben")
    kept.store.answer(ids[2], "label", by="ben", label=kept.labels[2])
    kept.store.answer(ids[3], "unsure", by="anna")
    kept.store.answer(ids[4], "wrong", by="ben", item_id="any")
    found = drawn_of(kept, matcher)
    told = set(found.labelled.ids)
    assert told == {ids[place] for place in range(10)} - {ids[1], ids[3]}
    assert (len(found.others.embeddings), found.is_unsure.tolist()) == (2, [True, True])
    assert (found.n_again, found.n_disagreed) == (2, 1)


def test_who_is_asked_twice_tells_how_often_persons_err(kept: Kept, matcher: Matcher) -> None:
    kept.answer(range(10))
    again = [one.id for one in kept.searches[:2]]
    kept.store.draw([], asked=again, by="anna")
    kept.store.answer(again[0], "label", by="anna", label=kept.labels[0])
    kept.store.answer(again[1], "absent", by="anna")
    found = drawn_of(kept, matcher)
    assert (found.n_again, found.n_disagreed) == (2, 1)
    # What was said last holds.
    assert labels_of(found)[again[1]] == f"search {again[1]}"


@pytest.fixture
def grown(kept: Kept, gallery: Gallery, embedder: Embedder) -> Callable[..., Matcher]:
    """Adds searches as items, as the item table says it, and gives the matcher of the next version."""

    def grow(search: KeptSearch, label: str = LABELS[0]) -> Matcher:
        item, reader = f"search-{search.id}", GalleryReader(gallery)
        texts = (item, label, "", json.dumps({"search_visit": search.visit or search.id}))
        row = ready_rows(ReadyRows(*(pa.array([one]) for one in texts), search.embedding[None]))
        add_items(reader, row, bundle=embedder.bundle.fingerprint, conflict="skip")
        compact(reader)
        kept.store.mark_added(search.id, item)
        return Matcher(gallery, embedder)

    return grow


def labels_of(found: DrawnSearches) -> dict[str, str]:
    return dict(zip(found.labelled.ids, found.labelled.labels, strict=True))


def figures(kept: Kept, matcher: Matcher) -> list[object]:
    """Labels and scores of the queries of a visit, and how many of the sample have theirs."""
    found = drawn_of(kept, matcher)
    scored = Calibrator(matcher.snapshot, matcher.pipeline).score_searches(found, 0.7).searches
    rows = np.flatnonzero(found.labelled.visits == "a visit")
    tops, mates = scored.top_scores[rows].round(6), scored.mate_scores[rows].round(6)
    n_alike = int(np.isin(scored.sample_scores.round(6), tops).sum())
    return [found.labelled.labels[rows].tolist(), tops.tolist(), mates.tolist(), n_alike]


@pytest.mark.parametrize("lost", ["nothing", "note", "search"])
def test_a_search_that_became_an_item_is_a_query_as_if_no_item_of_its_visit_were_there(
    kept: Kept, matcher: Matcher, grown: Callable[..., Matcher], lost: str
) -> None:
    twin, again = (replace(one, visit="a visit") for one in kept.searches[:2])
    kept.store.delete([twin.id, again.id])
    kept.store.keep([(twin, None), (again, None)], most=1000, days=30.0)
    kept.answer()
    if lost == "search":
        kept.store.delete([twin.id])
    before = figures(kept, matcher)
    after = grown(twin)
    if lost == "note":
        kept.store.mark_added(twin.id, None)
    assert len(after.snapshot) == len(matcher.snapshot) + 1
    assert figures(kept, after) == before


def test_a_label_with_items_of_its_own_visit_alone_makes_a_search_count_in_no_rate(
    kept: Kept, grown: Callable[..., Matcher]
) -> None:
    kept.answer()
    ids = [one.id for one in kept.searches]
    for search in ids[20:22]:
        kept.store.answer(search, "label", by="anna", label="new")
    found = drawn_of(kept, grown(kept.searches[20], label="new"))
    assert set(found.labelled.ids) == {*ids} - {ids[20]}
    assert found.is_unsure.tolist() == [False]
    assert any(text.startswith("answers with a label that only items of their") for text in found.warnings)


@pytest.mark.parametrize(("said", "told"), [(LABELS[1], LABELS[1]), (None, LABELS[2])])
def test_an_item_with_another_label_since_tells_it_unless_an_answer_does(
    kept: Kept, grown: Callable[..., Matcher], said: str | None, told: str
) -> None:
    kept.answer()
    search = kept.searches[0]
    kept.store.answer(search.id, "label", by="anna", label=LABELS[1])
    # It was added as what was said first, or somebody gave it a label that nobody said.
    after = grown(search, label=LABELS[0] if said else LABELS[2])
    assert labels_of(drawn_of(kept, after))[search.id] == told
    remove_items(GalleryReader(after.gallery), [f"search-{search.id}"])
    compact(GalleryReader(after.gallery))
    assert labels_of(drawn_of(kept, Matcher(after.gallery, after.embedder)))[search.id] == LABELS[1]


def test_searches_of_another_bundle_are_left_out_and_of_another_version_searched_for_again(
    kept: Kept, matcher: Matcher
) -> None:
    other = replace(kept.searches[0], id="other", bundle="another")
    older = replace(kept.searches[1], id="older", version=0)
    kept.store.keep([(other, None), (older, None)], most=1000, days=30.0)
    kept.answer()
    kept.store.draw(["other", "older"])
    for search in ("other", "older"):
        kept.store.answer(search, "label", by="anna", label=LABELS[0])
    found = drawn_of(kept, matcher)
    assert "other" not in found.labelled.ids
    assert "older" in found.labelled.ids
    assert len(found.sample.embeddings) == 45
    assert found.warnings == (
        "answered searches of another bundle, which are left out: 1",
        "answered searches of another version or pipeline, which were searched for again: 1",
    )


def test_a_calibration_by_answers_rests_on_their_weights(kept: Kept, matcher: Matcher) -> None:
    kept.answer()
    found = calibrated(kept, matcher)
    record, evidence = found.record, found.record.evidence
    assert record.source == "searches"
    assert (record.n_with_mate, record.n_without_mate) == (20, 24)
    assert evidence.searches.n_answered == evidence.searches.n_sampled == 44
    assert evidence.searches.strangers == pytest.approx(24 / 44)
    assert evidence.absent == pytest.approx(24 / 44)
    assert evidence.another_day == {}
    # The threshold holds the share of all searches, and the next lower one would not.
    tops = np.sort([one.candidates[0].score for one in kept.searches[20:]])
    assert (tops >= record.threshold).mean() <= 0.05
    assert tops[-2] < record.threshold <= tops[-1] + 1e-6
    for rate in ("fnir", "fpir"):
        own = evidence.rates[rate]
        assert own.low <= own.rate <= own.high
    # Where all were answered, each stands for itself.
    missed = np.array([one.candidates[0].score < record.threshold for one in kept.searches[:20]])
    assert evidence.rates["fnir"].rate == pytest.approx(missed.mean())
    # Below the threshold lies what the answers cannot tell, and why it is another one is said.
    band, reason = evidence.unsure, promise(record)[-1]
    assert (0.0 < band.strangers <= 0.1, band.lowest < record.threshold) == (True, True)
    assert f"The threshold moved from 0.7000 to {record.threshold:.4f}, " in reason
    assert reason.endswith("(0 to 9), which cannot be told from the 5 asked for.")
