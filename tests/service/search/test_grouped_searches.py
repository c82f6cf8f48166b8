"""Decisions by group: which groups an answer lists, with which photos, and by whose threshold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.service.types import View
from vicinal.calibration import Target
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.changes import Patch, patch_items, remove_items
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.views.view import GalleryView
from vicinal.models.embedder import Embedder
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.label_folds import LabelFolds
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.records.store import CalibrationStore
from vicinal.service.search.answers import Answer, Threshold
from vicinal.service.search.group_scores import group_scores
from vicinal.service.search.item_groups import BuiltGroups, GroupTable, ItemGroups
from vicinal.service.search.label_scores import metric_of, note_metric
from vicinal.service.search.pipeline import Group, Pipeline, Rerank

FORMS = [Group(by="label"), Group(by="label", score="lda")]
EXACT = Pipeline(rerank=Rerank(method="off"))


def grouped(gallery: Gallery, embedder: Embedder, form: Group) -> Matcher:
    """A matcher of the present state that decides by a form of group score."""
    if form.score == "lda":
        groups = ItemGroups(GalleryView.of(gallery.snapshot()), BuiltGroups.of(gallery.snapshot(), "label"))
        form = form.model_copy(update={"metric": note_metric(LabelFolds(groups).whole)})
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
    by_label = None
    if form.score == "lda":
        metric, view = metric_of(Path(), form.metric), matcher.view
        positions = [
            view.positions([one.id for one in found if (one.label or "") == name]) for name in labels
        ]
        means = [metric.projected(view.vectors(own)).mean(axis=0) for own in positions]
        query = metric.projected(view.vectors(view.positions([item_id])))
        numbers = np.array([len(own) for own in positions])
        taught, each = metric.labels(np.array(means), numbers), np.arange(len(labels))
        of_labels = taught.scores(query, np.zeros_like(each), each)
        by_label = of_labels[codes]
    result = group_scores(scores, codes, sizes, by_label)
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


def calibrated(gallery: Gallery, group_by: str | None) -> str:
    snapshot = gallery.snapshot()
    pipeline = Pipeline(group=None if group_by is None else Group(by=group_by))
    calibrator = Calibrator(snapshot, pipeline)
    found = calibrator.measure(calibrator.leave_one_out(), Target(rate="fpir", value=0.05))
    return CalibrationStore(gallery.path).add(found.record, found.scores, found.curves).id


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


def test_the_reason_of_an_unsure_answer_speaks_of_the_group_that_is_best(
    gallery: Gallery, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    matcher, by_label = grouped(gallery, embedder, FORMS[0]), np.linspace(0.1, 0.9, 100)
    unsure = Threshold(value=1.0, unsure_from=0.0, source="calibration")
    monkeypatch.setattr(matcher.thresholds, "in_force", lambda *_: unsure)
    # The farthest item's group is best.
    monkeypatch.setattr(
        GroupTable,
        "scored",
        lambda table: group_scores(
            table.scores, table.codes, table.sizes, by_label[None, : table.codes.shape[1]]
        ),
    )
    (answer,) = matcher.search(item_ids=["plain/view 0.png"], include_candidates=True)
    assert answer.verdict == "unsure"
    assert answer.candidate_groups[0].label != "plain"
    assert f"nearest are {answer.candidate_groups[0].label}," in answer.reason
