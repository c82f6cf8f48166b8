"""Group trials: FNIR and FPIR of decisions by group, and cross-fitting."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.service.types import WriteGallery
from vicinal.calibration import Target
from vicinal.calibration.lda import LabelScatter, NoMetricError, label_sums
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.indexer.views.view import GalleryView
from vicinal.models.similarity import normalize
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.group_trials import choose_metric, own_scores_apart
from vicinal.service.measuring.label_folds import LabelFolds
from vicinal.service.measuring.measurement import Measurement
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.search.item_groups import BuiltGroups, ItemGroups
from vicinal.service.search.label_scores import keep_beside
from vicinal.service.search.pipeline import Group, Pipeline, Rerank
from vicinal.service.search.scorer import Scorer

SIZES = (3, 5, 1, 7, 4, 5)
EXACT = Pipeline(rerank=Rerank(method="off"), group=Group(by="label"))
FPIR = Target(rate="fpir", value=0.1)
FORMS = [Group(by="label"), Group(by="label", score="lda")]


def silent(_stage: str, _done: int, _total: int) -> None:
    pass


def make(
    write_gallery: WriteGallery, noise: float = 0.5, sizes: tuple[int, ...] = SIZES, **changes
) -> Snapshot:
    """Overlapping labels of uneven sizes, and three items without a label."""
    rng = np.random.default_rng(5)
    labels = [f"label {i:03}" for i, size in enumerate(sizes) for _ in range(size)]
    centers = np.repeat(rng.normal(size=(len(sizes), 6)), sizes, axis=0)
    embeddings = np.concatenate([centers + noise * rng.normal(size=centers.shape), rng.normal(size=(3, 6))])
    return write_gallery(normalize(embeddings), [*labels, None, None, None], **changes)


@pytest.fixture(scope="module")
def snapshot(write_gallery: WriteGallery) -> Snapshot:
    return make(write_gallery)


@pytest.fixture(scope="module")
def crowd(write_gallery: WriteGallery) -> Snapshot:
    """Sixty labels of five items that are hard to tell by the best of them."""
    return make(write_gallery, noise=1.1, sizes=(5,) * 60)


def measure(
    snapshot: Snapshot, form: Group, queries: LabelledQueries | None = None, **options
) -> Measurement:
    calibrator = Calibrator(snapshot, EXACT.model_copy(update={"group": form}), **options)
    return calibrator.score(queries or calibrator.leave_one_out(), silent)


def search(
    snapshot: Snapshot, measured: Measurement, embedding, excluded, own: int = -1
) -> dict[str | None, float]:
    """Score of each group in one search, by the metric that did not see the label of number `own`."""
    view = GalleryView.of(snapshot)
    groups = ItemGroups(view, BuiltGroups.of(snapshot, "label"))
    scored = Scorer(view, EXACT).score(embedding[None], 100, excluded=[excluded])
    table = groups.table(scored, excluded=[excluded])
    if measured.folds is not None:
        by_label = measured.folds.by_label(table, embedding[None], np.array([own]), [excluded])
        table = replace(table, by_label=by_label)
    found = table.scored()
    return {
        groups.name(code) or f"alone {code}": score
        for code, score in zip(found.codes[0].tolist(), found.scores[0].tolist(), strict=True)
    }


def of_label(snapshot: Snapshot, label: str):
    return np.flatnonzero([one == label for one in snapshot.labels])


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.score)
def test_trials_are_the_scores_of_searches_with_and_without_each_label(
    snapshot: Snapshot, form: Group
) -> None:
    measured = measure(snapshot, form)
    own, others = [], []
    for i in range(sum(SIZES)):
        label, code = snapshot.labels[i], measured.tables.codes[i]
        found = search(snapshot, measured, snapshot.embeddings[i], np.array([i]), code)
        own += [found[label]] if label in found else []
        gone = of_label(snapshot, label)
        others.append(max(search(snapshot, measured, snapshot.embeddings[i], gone, code).values()))
    trials = measured.trials
    assert trials.best_mate_scores.tolist() == own
    assert trials.best_scores_without_mate.tolist() == others


def test_a_group_is_right_where_most_of_its_items_have_the_querys_label(write_gallery: WriteGallery) -> None:
    """By a key that joins labels the labels remain the truth."""
    skus = ["a"] * 3 + ["b"] * 5 + ["b"] * 1 + ["c"] * 7 + [None] * 4 + ["e"] * 5 + [None] * 3
    snapshot = make(write_gallery, metadata=[{} if sku is None else {"sku": sku} for sku in skus])
    measured = measure(snapshot, Group(by="sku"))
    labels, names = measured.tables.labels, measured.tables.groups.names
    known = {name: measured.trials.labels.names[labels[code]] for code, name in enumerate(names)}
    assert known == {"a": "label 000", "b": "label 001", "c": "label 003", "e": "label 005"}
    # The one item of label 002 stands in b, which is label 001's: no group is right for it.
    assert labels[len(names) + 16 :][:4].tolist() == [4] * 4
    assert (labels[-3:] == -1).all()


def test_a_threshold_holds_the_target_on_group_scores(crowd: Snapshot) -> None:
    calibrator = Calibrator(crowd, EXACT, metric="lda")
    found = calibrator.measure(calibrator.leave_one_out(), FPIR)
    record, trials = found.record, found.measured.trials
    assert (record.pipeline.group.score, len(record.pipeline.group.metric)) == ("lda", 64)
    assert record.rates.fpir == (trials.best_scores_without_mate >= record.threshold).mean() <= 0.1
    assert record.rates.fnir == (trials.best_mate_scores < record.threshold).mean()
    assert (record.rates.far, record.rates.frr) == (None, None)
    assert set(record.evidence.rates) == {"fpir", "fnir", "precision"}
    assert set(record.evidence.opis) == {"initial"}


@pytest.mark.parametrize(("least", "expected"), [(0.25, 0.3), (1.6, 0.7)])
def test_a_metric_is_shrunk_less_where_labels_surely_tell_more(
    write_gallery: WriteGallery, least: float, expected: float
) -> None:
    """What differs within a label lies in some directions, or in all alike."""
    rng, n_labels, dim = np.random.default_rng(2), 60, 24
    labels = np.repeat(np.arange(n_labels), 12)
    noise = rng.normal(size=(len(labels), dim)) * np.where(np.arange(dim) < 8, 1.6, least)
    embeddings = normalize(rng.normal(size=(n_labels, dim))[labels] * 0.5 + noise)
    snapshot = write_gallery(embeddings, [f"label {label:03}" for label in labels])
    folds = LabelFolds(ItemGroups(GalleryView.of(snapshot), BuiltGroups.of(snapshot, "label")))
    assert folds.shrinking == expected


@pytest.mark.slow
def test_no_label_is_scored_by_a_metric_that_saw_it(crowd: Snapshot, write_gallery: WriteGallery) -> None:
    """Whatever the photos of a label look like, the metric that it is tried with stays the same."""
    changed = np.array(crowd.embeddings)
    changed[:5] = normalize(np.random.default_rng(1).normal(size=(5, 6)))
    other = write_gallery(changed, list(crowd.labels))
    first, second = (
        LabelFolds(ItemGroups(GalleryView.of(one), BuiltGroups.of(one, "label"))) for one in (crowd, other)
    )
    # How far both are shrunk is one choice, which does see it.
    first.shrinking = second.shrinking = 0.5
    fold = first._folds[0]
    np.testing.assert_allclose(first._metrics[fold].projection, second._metrics[fold].projection, atol=1e-9)
    # Negative control: the metric of all labels does see it.
    assert np.abs(first.whole.projection - second.whole.projection).max() > 1e-6


def test_what_finds_more_is_taken_and_said(crowd: Snapshot, write_gallery: WriteGallery) -> None:
    calibrator = Calibrator(crowd, EXACT)
    items = calibrator.score_items(calibrator.leave_one_out(), silent)
    measured, trial = choose_metric(items, "label", FPIR)
    is_better = trial.lda < trial.cosine
    assert (measured.group.score, trial.chosen) == (("lda", "lda") if is_better else ("max", "cosine"))
    assert trial.low <= trial.lda - trial.cosine <= trial.high
    plain, none = choose_metric(items, "label", FPIR, "cosine")
    assert (plain.group, none) == (FORMS[0], None)


def test_labels_beside_score_and_have_no_say_where_items_are_left_out(write_gallery: WriteGallery) -> None:
    """Items of one visit are found by any metric: the choice is that of the gallery's own."""
    noise = np.random.default_rng(1).normal(size=(200, 24)) * np.where(np.arange(24) < 8, 1.2, 0.2)
    embeddings = normalize(np.repeat(np.random.default_rng(2).normal(size=(40, 24)), 5, axis=0) + noise)
    labels = [f"label {i // 5:03}" for i in range(200)]
    snapshot = write_gallery(embeddings, labels, bundle="with labels beside")
    calibrator = Calibrator(snapshot, EXACT)
    items = calibrator.score_items(calibrator.leave_one_out(), silent)
    own, trial = choose_metric(items, "label", FPIR)
    assert trial.chosen == "lda"
    codes = np.arange(200) // 5
    sums = label_sums(iter([(noise, codes)]), 40, 24)
    beside = LabelScatter.of(iter([(noise, codes)]), *sums)
    keep_beside(snapshot.path.parent.parent, snapshot.manifest.bundle, beside)
    measured, again = choose_metric(items, "label", FPIR)
    assert again == trial
    assert measured.group.metric == measure(snapshot, FORMS[1]).group.metric != own.group.metric


def test_labels_of_one_photo_leave_it_to_the_cosine(write_gallery: WriteGallery) -> None:
    alone = make(write_gallery, sizes=(1,) * 8)
    calibrator = Calibrator(alone, EXACT)
    items = calibrator.score_items(calibrator.leave_one_out(), silent)
    measured, trial = choose_metric(items, "label", FPIR)
    assert (measured.group, trial.chosen) == (FORMS[0], "cosine")
    assert "no label has two photos" in trial.reason
    with pytest.raises(NoMetricError):
        choose_metric(items, "label", FPIR, "lda")


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.score)
def test_readings_without_what_could_be_of_one_visit_are_searches_without_it(
    crowd: Snapshot, form: Group
) -> None:
    """Items 0 and 1 of each label look alike."""
    alike = np.arange(len(crowd))
    alike[1:300:5] = alike[0:300:5]
    measured = measure(crowd, form)
    for i in (0, 1, 2):
        gone = np.array([0, 1]) if i < 2 else np.array([2])
        found = search(crowd, measured, crowd.embeddings[i], gone, measured.tables.codes[i])
        assert own_scores_apart(measured, alike)[i] == pytest.approx(found.get("label 000", 0.0), abs=1e-9)
