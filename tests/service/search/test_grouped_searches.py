"""Decisions by group: which groups an answer lists, with which photos, and by whose threshold."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.service.types import View
from vicinal.calibration import Target
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import Patch, patch_items, remove_items
from vicinal.indexer.reader import GalleryReader
from vicinal.models.embedder import Embedder
from vicinal.service.errors import RequestError
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.group_trials import group_forms
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.records.store import CalibrationStore
from vicinal.service.search.answers import Answer
from vicinal.service.search.group_scores import group_scores
from vicinal.service.search.pipeline import Group, Pipeline, Rerank

FORMS = [
    Group(by="label"),
    Group(by="label", score="mean", m=3),
    Group(by="label", score="lme", temperature=0.1),
    Group(by="label", score="vote"),
    Group(by="label", score="share"),
    Group(by="label", score="learned", weights=(1.0, 2.0, 0.0, 1.0, 0.5, 2.0, -1.0, -2.0)),
]
EXACT = Pipeline(rerank=Rerank(method="off"))


def grouped(gallery: Gallery, embedder: Embedder, form: Group) -> Matcher:
    """A matcher of the present state that decides by a form of group score."""
    return Matcher(gallery, embedder, EXACT.model_copy(update={"group": form}))


def by_name(answer: Answer) -> dict[str | None, tuple[float, int]]:
    found = [*(answer.groups or []), *(answer.candidate_groups or [])]
    return {one.group: (one.score, one.n_items) for one in found}


def slow_scores(matcher: Matcher, item_id: str, keep: Callable[[dict], bool]) -> dict[str | None, tuple]:
    """Groups of all items that are kept, from a search by items alone."""
    form = matcher.pipeline.group
    answer = matcher.search(
        item_ids=[item_id], limit=100, group_by="off", threshold=1.0, include_candidates=True
    )
    found = [one for one in answer[0].candidates if keep({"label": one.label, **one.metadata})]
    labels = sorted({one.label or "" for one in found})
    codes = np.array([[labels.index(one.label or "") for one in found]])
    scores = np.array([[one.score for one in found]])
    sizes = np.array([[sum(other.label == one.label for other in found) for one in found]])
    result = group_scores(scores, codes, sizes, form)
    return {
        labels[code]: (score, size)
        for code, score, size in zip(
            result.codes[0].tolist(), result.scores[0].tolist(), result.sizes[0].tolist(), strict=True
        )
    }


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.score)
def test_groups_are_scored_by_all_their_items_but_the_query(
    gallery: Gallery, embedder: Embedder, form: Group
) -> None:
    matcher = grouped(gallery, embedder, form)
    answer = matcher.search(item_ids=["plain/view 0.png"], limit=100)[0]
    expected = slow_scores(matcher, "plain/view 0.png", lambda _item: True)
    assert {name: size for name, (_, size) in by_name(answer).items()} == {
        name: 5 if name == "plain" else 6 for name in expected
    }
    assert by_name(answer) == {name: pytest.approx(one) for name, one in expected.items()}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.score)
def test_a_query_is_answered_the_same_alone_and_in_a_batch(
    gallery: Gallery, embedder: Embedder, form: Group
) -> None:
    matcher = grouped(gallery, embedder, form)
    ids = [f"{label}/view {view}.png" for label in ("plain", "x_y", "鞋") for view in (0, 3)]
    together = matcher.search(item_ids=ids, threshold=0.3)
    for item_id, one in zip(ids, together, strict=True):
        assert matcher.search(item_ids=[item_id], threshold=0.3)[0].groups == one.groups


def test_matches_are_the_photos_of_the_groups_that_reach_the_threshold(matcher: Matcher) -> None:
    answer = matcher.search(item_ids=["plain/view 0.png"], group_by="label", threshold=0.0, limit=3)[0]
    assert [one.rank for one in answer.groups] == [1, 2, 3]
    assert [one.id for one in answer.matches] == [one.id for group in answer.groups for one in group.items]
    for group in answer.groups:
        assert {one.label for one in group.items} == {group.group}
        assert [one.rank for one in group.items] == sorted(one.rank for one in group.items)
        assert len(group.items) == 4
        # The threshold is that of groups.
        assert {one.margin for one in group.items} == {None}
        assert group.margin == group.score


def test_a_score_exactly_at_the_threshold_is_a_match_and_one_bit_below_is_not(matcher: Matcher) -> None:
    found = matcher.search(item_ids=["plain/view 0.png"], group_by="label")[0].candidate_groups
    score = found[1].score
    at, above = (
        matcher.search(item_ids=["plain/view 0.png"], group_by="label", threshold=one)[0]
        for one in (score, float(np.nextafter(score, 2.0)))
    )
    assert (len(at.groups), len(above.groups)) == (2, 1)
    assert not above.no_match
    none = matcher.search(item_ids=["plain/view 0.png"], group_by="label", threshold=1.0)[0]
    assert (none.no_match, none.groups, none.matches) == (True, [], [])


def test_items_without_the_key_are_groups_of_their_own(gallery: Gallery, embedder: Embedder) -> None:
    reader = GalleryReader(gallery)
    sold = {
        f"plain/view {n}.png": Patch(keeps_label=True, metadata={"sku": 7 if n % 2 else 7.0})
        for n in range(4)
    }
    patch_items(reader, sold)
    matcher = Matcher(gallery, embedder)
    found = matcher.search(item_ids=["x_y/view 0.png"], group_by="sku", limit=100)[0].candidate_groups
    assert [(one.group, one.n_items) for one in found if one.group] == [("7", 4)]
    alone = [one for one in found if one.group is None]
    assert len(alone) == 60 - 4 - 1
    assert all(one.n_items == len(one.items) == 1 and one.score == one.items[0].score for one in alone)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.score)
def test_removed_relabelled_and_added_items_count_at_once(
    gallery: Gallery, embedder: Embedder, view: View, form: Group
) -> None:
    reader = GalleryReader(gallery)
    remove_items(reader, ["plain/view 1.png", "plain/view 2.png", "blé/view 0.png"])
    patch_items(
        reader,
        {
            "x_y/view 0.png": Patch(keeps_label=False, label="plain"),
            "x_y/view 1.png": Patch(keeps_label=False, label="never seen"),
        },
    )
    matcher = grouped(gallery, embedder, form)
    found = by_name(matcher.search(item_ids=["plain/view 0.png"], limit=100)[0])
    sizes = {name: size for name, (_, size) in found.items()}
    assert (sizes["plain"], sizes["blé"], sizes["x_y"], sizes["never seen"]) == (4, 5, 4, 1)
    assert found == {
        name: pytest.approx(one)
        for name, one in slow_scores(matcher, "plain/view 0.png", lambda _item: True).items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.score)
def test_with_a_filter_a_group_is_what_fulfils_it(gallery: Gallery, embedder: Embedder, form: Group) -> None:
    patches = {
        f"{label}/view {n}.png": Patch(keeps_label=True, metadata={"size": n})
        for label in ("plain", "x_y")
        for n in range(6)
    }
    patch_items(GalleryReader(gallery), patches)
    matcher = grouped(gallery, embedder, form)
    answer = matcher.search(item_ids=["plain/view 0.png"], limit=100, filter="metadata.size <= 3")[0]
    assert {name: size for name, (_, size) in by_name(answer).items()} == {"plain": 3, "x_y": 4}
    expected = slow_scores(matcher, "plain/view 0.png", lambda item: item.get("size", 9) <= 3)
    assert by_name(answer) == {name: pytest.approx(one) for name, one in expected.items()}


def test_a_key_that_no_item_has_is_refused_with_those_that_there_are(matcher: Matcher) -> None:
    with pytest.raises(RequestError, match=r"no item has a value of the metadata key 'sku'.*label"):
        matcher.search(item_ids=["plain/view 0.png"], group_by="sku")


def calibrated(gallery: Gallery, group_by: str | None, score: str = "max") -> str:
    snapshot = gallery.snapshot()
    pipeline = Pipeline(group=None if group_by is None else Group(by=group_by))
    forms = None if group_by is None else group_forms(group_by, score)
    calibrator = Calibrator(snapshot, pipeline, forms=forms)
    found = calibrator.measure(calibrator.leave_one_out(), Target(rate="fpir", value=0.05))
    return CalibrationStore(gallery.calibrations_path).add(found.record, found.scores, found.curves).id


@pytest.mark.slow
def test_the_threshold_of_groups_is_not_used_for_photos_and_the_other_way_round(
    gallery: Gallery, matcher: Matcher
) -> None:
    groups = calibrated(gallery, "label")
    by_photo = matcher.search(item_ids=["plain/view 0.png"])[0]
    assert (by_photo.threshold.value, by_photo.no_match) == (None, None)
    photos = calibrated(gallery, None)
    used = {
        by: matcher.search(item_ids=["plain/view 0.png"], group_by=by)[0].threshold.calibration
        for by in ("off", "label")
    }
    assert used == {"off": photos, "label": groups}


@pytest.mark.slow
def test_the_form_of_the_score_comes_with_the_calibration_in_force(
    gallery: Gallery, matcher: Matcher
) -> None:
    """There is one threshold for groups by label, and never one of another form."""
    pipelines = []
    for score in ("max", "lme", "learned"):
        calibration = calibrated(gallery, "label", score)
        answer = matcher.search(item_ids=["plain/view 0.png"], group_by="label")[0]
        assert answer.threshold.calibration == calibration
        record = matcher.calibrations.find(calibration)
        assert answer.pipeline == record.pipeline.key
        assert record.pipeline.group.score == score
        pipelines.append(answer.pipeline)
    assert len(set(pipelines)) == 3
    matcher.calibrations.roll_back(Pipeline(group=Group(by="label")))
    assert matcher.search(item_ids=["plain/view 0.png"], group_by="label")[0].pipeline == pipelines[1]
