"""Group trials: FNIR and FPIR of decisions by group, cross-fitting, and which form is chosen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.service.types import WriteGallery
from vicinal.calibration import CalibrationError, Target, UnreachableTargetError
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.indexer.views.view import GalleryView
from vicinal.models.similarity import normalize
from vicinal.service.measuring import group_trials
from vicinal.service.measuring.calibrator import Calibration, Calibrator
from vicinal.service.measuring.evidence import Apart, gather_evidence
from vicinal.service.measuring.group_trials import (
    choose_form,
    group_forms,
    measure_groups,
    own_scores_apart,
    own_scores_with_one_less,
)
from vicinal.service.measuring.measurement import Measurement
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.measuring.visits import Visits
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


def test_labels_of_one_photo_are_no_queries_with_a_mate(snapshot: Snapshot) -> None:
    assert len(measure(snapshot, Group(by="label")).trials.best_mate_scores) == sum(SIZES) - 1


def test_with_max_the_rates_are_those_of_photos(snapshot: Snapshot) -> None:
    photos = Calibrator(snapshot, Pipeline(rerank=Rerank(method="off")))
    items = photos.score(photos.leave_one_out(), silent)
    groups = measure(snapshot, Group(by="label"))
    assert groups.trials.best_mate_scores.tolist() == items.trials.best_mate_scores.tolist()
    assert groups.trials.best_scores_without_mate.tolist() == items.trials.best_scores_without_mate.tolist()
    assert groups.hit_rate_1 == items.hit_rate_1
    assert groups.top_scores.tolist() == items.top_scores.tolist()


def test_a_photo_of_an_excluded_visit_is_in_no_groups_score(snapshot: Snapshot) -> None:
    """Items 3 and 4 were taken with each other: for the one the other is not in the gallery."""
    named = np.array([None] * len(snapshot), dtype=object)
    named[[3, 4]] = "one visit"
    visits = Visits("visit", named)
    form = Group(by="label", score="mean", m=5)
    apart = measure(snapshot, form, LabelledQueries.leave_one_out(snapshot, visits), visits=visits)
    expected = search(snapshot, form, snapshot.embeddings[3], np.array([3, 4]))["label 001"]
    together = search(snapshot, form, snapshot.embeddings[3], np.array([3]))["label 001"]
    assert apart.mates.best_scores[3] == expected
    assert expected != together
    assert apart.tables.with_label.sizes[3][apart.tables.with_label.codes[3] == 1].tolist() == [3, 3, 3]


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


@pytest.mark.slow
def test_targets_for_pairs_of_photos_are_refused(crowd: Snapshot) -> None:
    calibrator = Calibrator(crowd, EXACT)
    for target in ("far=1%", "frr=10%", "utility=mean"):
        with pytest.raises(CalibrationError, match=r"decisions by label .* name fpir=5%"):
            calibrator.measure(calibrator.leave_one_out(), Target.parse(target))
    for target in ("fpir=10%", "fnir=40%"):
        assert calibrator.measure(calibrator.leave_one_out(), Target.parse(target)).record.threshold > 0.0


def test_a_group_that_no_search_finds_is_missed_at_any_threshold(crowd: Snapshot) -> None:
    """Its score is 0, and a threshold of 0 that lets it pass is refused."""
    calibrator = Calibrator(crowd, EXACT)
    measured = calibrator.score(calibrator.leave_one_out(), silent)
    table = measured.tables.with_label
    unseen = np.full_like(table.codes, -1)
    unseen[:100] = table.codes[:100]
    blind = replace(measured.tables, with_label=replace(table, codes=unseen))
    found = measure_groups(replace(measured, tables=blind), Group(by="label"))
    assert (found.trials.best_mate_scores[100:] == 0.0).all()
    assert (found.trials.best_mate_scores[:100] == measured.trials.best_mate_scores[:100]).all()
    queries, target = calibrator.leave_one_out(), Target(rate="fnir", value=0.4)
    with pytest.raises(UnreachableTargetError, match="groups are not among the candidates"):
        calibrator.calibration(queries, found, target)
    assert calibrator.calibration(queries, measured, target).record.threshold > 0.0


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


def test_what_is_kept_of_a_model_scores_without_any_file(crowd: Snapshot, learned: Measurement) -> None:
    again = Group.model_validate_json(learned.group.model_dump_json())
    assert again == learned.group
    assert len(again.weights) == 8
    served = measure_groups(learned, again)
    assert served.weights is None
    # As a search scores them, and not as the cross-fitted trials.
    found = search(crowd, again, crowd.embeddings[7], np.array([7]))["label 001"]
    assert served.mates.best_scores[7] == pytest.approx(found, abs=1e-12)
    assert (served.trials.best_mate_scores != learned.trials.best_mate_scores).any()


def test_the_number_of_photos_of_a_group_gives_nothing_away(write_gallery: WriteGallery) -> None:
    """Left out of a gallery of equal labels, the right group is the one with a photo less."""
    rng = np.random.default_rng(8)
    noise = write_gallery(normalize(rng.normal(size=(300, 6))), [f"label {i // 5:02}" for i in range(300)])
    found = measure(noise, Group(by="label", score="learned"))
    assert found.hit_rate_1 < 0.1
    assert (
        np.mean(found.trials.best_mate_scores < np.quantile(found.trials.best_scores_without_mate, 0.9)) > 0.8
    )


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


def test_a_named_form_is_taken_as_it_is(crowd: Snapshot) -> None:
    calibrator = Calibrator(crowd, EXACT, forms=group_forms("label", "vote"))
    assert calibrator.measure(calibrator.leave_one_out(), FPIR).record.pipeline.group.score == "vote"


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


@pytest.mark.slow
def test_with_max_the_readings_are_those_of_photos(crowd: Snapshot) -> None:
    alike = np.arange(len(crowd))
    alike[1:300:5] = alike[0:300:5]
    photos = Calibrator(crowd, Pipeline(rerank=Rerank(method="off")))
    items = photos.score(photos.leave_one_out(), silent)
    threshold = float(np.quantile(items.trials.best_scores_without_mate, 0.9))
    groups = measure(crowd, Group(by="label"))
    found = [
        gather_evidence(one, FPIR, threshold, leaves_one_out=True, apart=Apart.of(one, alike)).another_day
        for one in (items, groups)
    ]
    assert found[1]["fpir"] == found[0]["fpir"]
    assert (found[1]["fnir"].apart, found[1]["fnir"].high) == (found[0]["fnir"].apart, found[0]["fnir"].high)


def test_one_mate_less_is_a_search_without_it(crowd: Snapshot) -> None:
    form = Group(by="label", score="mean", m=5)
    less = own_scores_with_one_less(measure(crowd, form))
    for i in (0, 50):
        own = of_label(crowd, crowd.labels[i])
        possible = [
            search(crowd, form, crowd.embeddings[i], np.array([i, other])).get(crowd.labels[i], 0.0)
            for other in own[own != i]
        ]
        assert min(abs(less[i] - one) for one in possible) < 1e-12


def test_a_query_with_one_mate_has_none_to_spare(write_gallery: WriteGallery) -> None:
    pairs = make(write_gallery, sizes=(2,) * 20)
    assert np.isinf(own_scores_with_one_less(measure(pairs, Group(by="label")))).all()


def test_queries_from_outside_are_decided_by_group_too(crowd: Snapshot) -> None:
    vectors = normalize(np.asarray(crowd.embeddings[:100]) + 0.01)
    labels = np.array([f"label {i // 5:03}" if i < 50 else "unknown" for i in range(100)], dtype=object)
    measured = measure(crowd, Group(by="label", score="lme"), LabelledQueries(vectors, labels))
    assert len(measured.trials.best_mate_scores) == 50
    assert measured.without.queries.tolist() == list(range(50, 100))
    found = search(crowd, measured.group, vectors[70], np.empty(0, np.int64))
    assert measured.trials.best_scores_without_mate[20] == max(found.values())
