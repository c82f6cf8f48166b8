"""Drawn searches: which answers count, for what, and what is said of the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.service.answering.conftest import LABELS, Kept
from vicinal.calibration import Target
from vicinal.indexer.gallery import Gallery
from vicinal.service.answering.drawn import drawn_searches
from vicinal.service.measuring.calibrator import Calibration, Calibrator
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.searches import DrawnSearches

FPIR = Target(rate="fpir", value=0.05)


def drawn_of(kept: Kept, matcher: Matcher) -> DrawnSearches:
    return drawn_searches(kept.store, matcher.snapshot, matcher.pipeline.key)


def calibrated(kept: Kept, matcher: Matcher, target: Target = FPIR) -> Calibration:
    calibrator = Calibrator(matcher.snapshot, matcher.pipeline)
    return calibrator.measure_searches(drawn_of(kept, matcher), target, threshold=0.7)


def test_answers_become_queries_with_their_labels_and_strangers_have_one_of_their_own(
    kept: Kept, matcher: Matcher
) -> None:
    kept.answer()
    found = drawn_of(kept, matcher)
    by_id = dict(zip(found.labelled.ids, found.labelled.labels, strict=True))
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
    labels = dict(zip(found.labelled.ids, found.labelled.labels, strict=True))
    assert labels[again[1]] == f"search {again[1]}"


def test_a_search_that_became_an_item_is_no_query_and_is_hidden_from_its_visit(
    kept: Kept, matcher: Matcher, gallery: Gallery
) -> None:
    item = matcher.snapshot.item_table["id"].to_pylist()[0]
    twin = replace(kept.searches[0], id="twin", visit="a visit")
    again = replace(kept.searches[1], id="again", visit="a visit")
    kept.store.keep([(twin, None), (again, None)], most=1000, days=30.0)
    kept.answer()
    kept.store.draw(["twin", "again"])
    kept.store.answer("twin", "label", by="anna", label=LABELS[0])
    kept.store.answer("again", "label", by="anna", label=LABELS[0])
    kept.store.mark_added("twin", item)
    found = drawn_of(kept, matcher)
    assert "twin" not in found.labelled.ids
    assert "again" in found.labelled.ids
    assert found.visits.members("a visit").tolist() == [0]
    assert any("have become items" in one and one.endswith(": 1") for one in found.warnings)
    measured = Calibrator(matcher.snapshot, matcher.pipeline).score_searches(found, 0.7)
    row = found.labelled.ids.tolist().index("again")
    assert 0 not in measured.pairs.mate_items[measured.pairs.mate_queries == row]


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


def test_answers_near_the_threshold_do_not_count_for_more_than_they_stand_for(
    kept: Kept, matcher: Matcher
) -> None:
    tops = np.array([one.candidates[0].score for one in kept.searches])
    # All strangers but only every other known thing.
    kept.answer([*range(0, 20, 2), *range(20, 44)])
    found = calibrated(kept, matcher)
    assert found.measured.searches.weights.sum() == pytest.approx(len(tops))
    assert 24 / 44 - 0.12 < found.record.evidence.searches.strangers < 24 / 34
