"""Group trials: FNIR and FPIR of decisions by group, cross-fitting, and which form is chosen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.service.types import WriteGallery
from vicinal.calibration import CalibrationError, Target
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.indexer.views.view import GalleryView
from vicinal.models.similarity import normalize
from vicinal.service.measuring import group_trials
from vicinal.service.measuring.calibrator import Calibration, Calibrator
from vicinal.service.measuring.group_trials import (
    choose_form,
    group_forms,
    own_scores_apart,
)
from vicinal.service.measuring.measurement import Measurement
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.search.item_groups import BuiltGroups, ItemGroups
from vicinal.service.search.pipeline import Group, Pipeline, Rerank
from vicinal.service.search.scorer import Scorer

SIZES = (3, 5, 1, 7, 4, 5)
EXACT = Pipeline(rerank=Rerank(method="off"), group=Group(by="label"))
FPIR = Target(rate="fpir", value=0.1)
FORMS = [form for form in group_forms("label") if form.score != "learned"]


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


def search(snapshot: Snapshot, form: Group, embedding, excluded) -> dict[str | None, float]:
    """Score of each group in one search."""
    view = GalleryView.of(snapshot)
    groups = ItemGroups(view, BuiltGroups.of(snapshot, form.by))
    scored = Scorer(view, EXACT).score(embedding[None], 100, excluded=[excluded])
    found = groups.table(scored, excluded=[excluded]).scored(form)
    return {
        groups.name(code) or f"alone {code}": score
        for code, score in zip(found.codes[0].tolist(), found.scores[0].tolist(), strict=True)
    }


def of_label(snapshot: Snapshot, label: str):
    return np.flatnonzero([one == label for one in snapshot.labels])


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.form)
def test_trials_are_the_scores_of_searches_with_and_without_each_label(
    snapshot: Snapshot, form: Group
) -> None:
    own, others = [], []
    for i in range(sum(SIZES)):
        label = snapshot.labels[i]
        found = search(snapshot, form, snapshot.embeddings[i], np.array([i]))
        own += [found[label]] if label in found else []
        others.append(max(search(snapshot, form, snapshot.embeddings[i], of_label(snapshot, label)).values()))
    trials = measure(snapshot, form).trials
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
    calibrator = Calibrator(crowd, EXACT, forms=group_forms("label", "lme"))
    found = calibrator.measure(calibrator.leave_one_out(), FPIR)
    record, trials = found.record, found.measured.trials
    assert record.pipeline.group == Group(by="label", score="lme")
    assert record.rates.fpir == (trials.best_scores_without_mate >= record.threshold).mean() <= 0.1
    assert record.rates.fnir == (trials.best_mate_scores < record.threshold).mean()
    assert (record.rates.far, record.rates.frr) == (None, None)
    assert set(record.evidence.rates) == {"fpir", "fnir", "precision"}
    assert set(record.evidence.opis) == {"initial"}


@pytest.fixture(scope="module")
def learned(crowd: Snapshot) -> Measurement:
    return measure(crowd, Group(by="label", score="learned"))


def test_no_label_is_scored_by_a_model_that_saw_it(crowd: Snapshot, learned: Measurement) -> None:
    """Whatever the queries and groups of a label look like, its own weights stay the same; others change."""
    examples = group_trials._Examples.of(learned, learned.tables, learned.group)
    fold = np.random.default_rng(0).permutation(60) % 5
    for label in (0, 17):
        of_fold = np.append(fold == fold[label], False)
        touched = of_fold[examples.query_labels] | of_fold[examples.group_labels]
        noise = np.random.default_rng(1).normal(size=examples.features.shape)
        other = replace(examples, features=np.where(touched[:, None], noise, examples.features))
        rows = learned.codes == label
        assert (other.fit(of_fold) == examples.fit(of_fold)).all()
        assert (learned.weights[rows] == examples.fit(of_fold)).all()
        # Negative control: the model of all labels does see it.
        nobody = np.zeros(61, dtype=bool)
        assert (other.fit(nobody) != examples.fit(nobody)).any()


def test_a_model_is_that_of_least_ridge_logistic_loss(learned: Measurement) -> None:
    """The gradient of the loss is 0 at the weights."""
    rng = np.random.default_rng(3)
    features = rng.normal(size=(300, 3)) * [1.0, 5.0, 0.1] + [0.0, 2.0, -1.0]
    is_own = rng.random(300) < 1.0 / (1.0 + np.exp(-features[:, 0]))
    weights = group_trials._logistic(features, is_own)
    scaled = (features - features.mean(axis=0)) / features.std(axis=0)
    inner = weights[:-1] * features.std(axis=0)
    p = 1.0 / (1.0 + np.exp(-(features @ weights[:-1] + weights[-1])))
    heavy = np.where(is_own, 300 / (2 * is_own.sum()), 300 / (2 * (~is_own).sum()))
    assert scaled.T @ (heavy * (p - is_own)) + 30.0 * inner == pytest.approx(np.zeros(3), abs=1e-5)
    with pytest.raises(CalibrationError, match="right and groups that are wrong"):
        group_trials._logistic(features, np.ones(300, dtype=bool))


def test_the_best_photo_stays_where_no_other_form_is_surely_better(snapshot: Snapshot) -> None:
    calibrator = Calibrator(snapshot, EXACT)
    items = calibrator.score(calibrator.leave_one_out(), silent)
    chosen, tried = choose_form(items, group_forms("label"), FPIR)
    assert chosen.group == Group(by="label")
    assert len(tried) == len(group_forms("label"))
    assert tried[0].difference == 0.0


@pytest.mark.slow
def test_a_form_that_is_surely_better_is_chosen(write_gallery: WriteGallery) -> None:
    """Strangers stand next to one photo each, own groups all around: the mean tells them apart."""
    rng = np.random.default_rng(0)
    centers = normalize(rng.normal(size=(80, 16)))
    embeddings = np.repeat(centers, 5, axis=0) + 0.2 * rng.normal(size=(400, 16))
    # One photo of every other label looks like the next label.
    embeddings[::10] = centers[1::2] + 0.05 * rng.normal(size=(40, 16))
    snapshot = write_gallery(normalize(embeddings), [f"label {i // 5:02}" for i in range(400)])
    calibrator = Calibrator(snapshot, EXACT)
    items = calibrator.score(calibrator.leave_one_out(), silent)
    chosen, tried = choose_form(items, group_forms("label"), Target(rate="fpir", value=0.15))
    best = next(
        one for one in tried if one.group.score == chosen.group.score and one.group.form == chosen.group.form
    )
    assert chosen.group.score != "max"
    assert best.high < 0.0
    assert best.error == min(one.error for one in tried)


def calibrate(snapshot: Snapshot, score: str) -> Calibration:
    calibrator = Calibrator(snapshot, EXACT, forms=group_forms("label", score))
    return calibrator.measure(calibrator.leave_one_out(), FPIR)


@pytest.mark.slow
@pytest.mark.parametrize("score", ["max", "mean", "lme", "vote", "share", "learned"])
def test_the_range_for_another_day_holds_both_readings(crowd: Snapshot, score: str) -> None:
    evidence = calibrate(crowd, score).record.evidence
    for name in ("fnir", "fpir"):
        wider, measured = evidence.another_day[name], evidence.rates[name]
        assert wider.low <= measured.low
        assert wider.high >= measured.high
    assert bool(evidence.larger_galleries) == (score not in ("share", "learned"))


@pytest.mark.slow
@pytest.mark.parametrize("score", ["max", "mean", "lme", "learned"])
def test_readings_without_what_could_be_of_one_visit_are_searches_without_it(
    crowd: Snapshot, score: str
) -> None:
    """Items 0 and 1 of each label look alike."""
    alike = np.arange(len(crowd))
    alike[1:300:5] = alike[0:300:5]
    measured = measure(crowd, Group(by="label", score=score))
    form = measured.group
    for i in (0, 1, 2):
        weights = (
            form
            if measured.weights is None
            else form.model_copy(update={"weights": tuple(measured.weights[i])})
        )
        gone = np.array([0, 1]) if i < 2 else np.array([2])
        expected = search(crowd, weights, crowd.embeddings[i], gone).get("label 000", 0.0)
        assert own_scores_apart(measured, alike)[i] == pytest.approx(expected, abs=1e-9)


def test_queries_from_outside_are_decided_by_group_too(crowd: Snapshot) -> None:
    vectors = normalize(np.asarray(crowd.embeddings[:100]) + 0.01)
    labels = np.array([f"label {i // 5:03}" if i < 50 else "unknown" for i in range(100)], dtype=object)
    measured = measure(crowd, Group(by="label", score="lme"), LabelledQueries(vectors, labels))
    assert len(measured.trials.best_mate_scores) == 50
    assert measured.without.queries.tolist() == list(range(50, 100))
    found = search(crowd, measured.group, vectors[70], np.empty(0, np.int64))
    assert measured.trials.best_scores_without_mate[20] == max(found.values())
