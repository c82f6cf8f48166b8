"""Group trials: FNIR and FPIR of decisions by group, and cross-fitting."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.service.types import WriteGallery
from vicinal.calibration import Target
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.indexer.views.view import GalleryView
from vicinal.models.similarity import normalize
from vicinal.service.measuring import group_trials
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.group_trials import group_forms, own_scores_apart
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
