"""Group trials: the scores that groups get for labelled queries, and which form of score to use.

FNIR counts the queries whose own group stays below the threshold, FPIR those that any group reaches with
their own label taken out. The label of a group is that of most of its labelled items (of equally many the
first by name). A query's own group scores 0 where none of its items is among the candidates. `learned` is
cross-fitted by label: no query is scored by a model that saw its fold's labels; searches use one that saw
all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from vicinal.calibration import (
    CalibrationError,
    Target,
    UnreachableTargetError,
    choose_threshold,
)
from vicinal.calibration.arrays import Floats, Ints, Mask
from vicinal.calibration.rates.paired_bootstrap import Figure, LabelDraws, Searches
from vicinal.service.measuring.measurement import Found, GroupTables, Measurement
from vicinal.service.request_fields import GroupChoice
from vicinal.service.search.group_scores import group_features
from vicinal.service.search.pipeline import Group, GroupScore

_TEMPERATURES = (0.02, 0.05, 0.1)
_N_FOLDS = 5
_RIDGE = 30.0
_N_STEPS = 50


def require_group_target(group: Group, target: Target) -> None:
    """Refuse a target that speaks of pairs of photos where groups are decided."""
    if target.rate in ("far", "frr", "utility"):
        raise CalibrationError(
            f"{target} speaks of pairs of photos, and decisions by {group.by} are about groups of them: name "
            "fpir=5%, fnir=20% or precision=95%"
        )


def require_reached(measured: Measurement, target: Target, threshold: float) -> None:
    """Refuse a threshold that even groups reach of which a search finds no item."""
    scores = measured.trials.best_mate_scores
    if target.rate == "fnir" and threshold <= 0.0:
        lowest = float((scores <= 0.0).mean())
        raise UnreachableTargetError(
            str(target), lowest, "lowest", f"{(scores <= 0.0).sum():,} groups are not among the candidates"
        )


def group_forms(by: str, score: GroupChoice = "auto") -> tuple[Group, ...]:
    """Forms of group score that are tried, the simplest first; `score` in its usual form unless `auto`."""
    if score != "auto":
        return (Group(by=by, score=score),)
    tempered: tuple[GroupScore, ...] = ("lme", "vote", "share")
    return (
        Group(by=by),
        *(Group(by=by, score="mean", m=m) for m in (2, 3, 5)),
        *(Group(by=by, score=score, temperature=t) for score in tempered for t in _TEMPERATURES),
        Group(by=by, score="learned"),
    )


def measure_groups(items: Measurement, group: Group) -> Measurement:
    """Decide a measurement's searches by group; `learned` without weights is fitted, and cross-fitted."""
    tables, weights = _tables(items), None
    if group.score == "learned" and not group.weights:
        group, weights = _learn(items, tables, group)
    mates, chosen = items.mates, items.without.queries
    found = tables.found(items.found.queries, tables.with_label, group, weights)
    out = tables.found(chosen, tables.without_label, group, None if weights is None else weights[chosen])
    best_scores = np.where(mates.has_mate, _own_scores(items, found), -np.inf)
    mates = replace(mates, best_scores=best_scores)
    return replace(items, found=found, without=out, mates=mates, group=group, weights=weights)


def _tables(measured: Measurement) -> GroupTables:
    if measured.tables is None:
        raise CalibrationError("these items were scored without groups: calibrate with group_by")
    return measured.tables


def _own_scores(measured: Measurement, found: Found) -> Floats:
    """(n,) best score of a group of each query's label; 0 where none is among the candidates."""
    return np.where(found.labels == measured.codes[:, None], found.scores, 0.0).max(axis=1)


def _scored_without(measured: Measurement, is_out: Mask, sizes: Ints) -> Floats:
    """(n,) score of each query's own group without some of the candidates."""
    tables = _tables(measured)
    table, group = tables.with_label.without(is_out, sizes), _group(measured)
    return _own_scores(measured, tables.found(measured.found.queries, table, group, measured.weights))


def _group(measured: Measurement) -> Group:
    if measured.group is None:
        raise CalibrationError("these items were not decided by group")
    return measured.group


def own_scores_apart(measured: Measurement, look_alikes: Ints) -> Floats:
    """(n,) score of each query's own group without items of its visit by likeness; -inf with none left."""
    tables, pairs = _tables(measured), measured.pairs
    table, groups = tables.with_label, tables.groups
    own = look_alikes[measured.images][:, None]
    is_out = (look_alikes[table.positions] == own) & (table.positions >= 0)
    # Items of one visit and group, as one number.
    width = int(groups.codes.max(initial=0)) + 1
    together, counts = np.unique(look_alikes * width + groups.codes, return_counts=True)
    asked = own * width + np.maximum(table.codes, 0)
    places = np.minimum(np.searchsorted(together, asked), len(together) - 1)
    gone = np.where(together[places] == asked, counts[places], 0)
    totals = np.append(groups.sizes, np.ones(width - len(groups.sizes), dtype=np.int64))
    scores = _scored_without(measured, is_out, totals[np.maximum(table.codes, 0)] - gone)
    is_left = look_alikes[measured.images[pairs.mate_queries]] != look_alikes[pairs.mate_items]
    has_left = np.bincount(pairs.mate_queries[is_left], minlength=len(scores)) > 0
    return np.where(has_left, scores, -np.inf)


def best_without_nearest(measured: Measurement) -> Floats:
    """(Q,) best score of the queries without a mate when the label of the best group is left out too."""
    tables, found = _tables(measured), measured.without
    table, labels = tables.without_label, tables.labels_of(tables.without_label.codes)
    top = found.labels[:, :1]
    is_out = ((labels == top) & (top >= 0)) | (table.codes == found.groups[:, :1])
    weights = None if measured.weights is None else measured.weights[found.queries]
    scores = table.without(is_out, table.sizes).scored(_group(measured), weights).scores[:, 0]
    return np.maximum(scores, 0.0)


def own_scores_with_one_less(measured: Measurement, seed: int = 0) -> Floats:
    """(n,) score of each query's own group without one of its mates, drawn; -inf with fewer than two."""
    tables, pairs = _tables(measured), measured.pairs
    table = tables.with_label
    order = np.lexsort((np.random.default_rng(seed).random(len(pairs.mate_queries)), pairs.mate_queries))
    queries, items = pairs.mate_queries[order], pairs.mate_items[order]
    last = np.flatnonzero(np.append(np.diff(queries) != 0, True)) if len(queries) else order
    gone = np.full(len(measured.codes), -1, dtype=np.int64)
    gone[queries[last]] = items[last]
    codes = np.where(gone >= 0, tables.groups.of_items(gone), -1)[:, None]
    sizes = table.sizes - ((table.codes == codes) & (codes >= 0))
    is_out = (table.positions == gone[:, None]) & (gone >= 0)[:, None]
    scores = _scored_without(measured, is_out, sizes)
    n_mates = np.bincount(pairs.mate_queries, minlength=len(scores))
    return np.where(n_mates > 1, scores, -np.inf)


@dataclass(frozen=True)
class TriedForm:
    """A form of group score, and the error that it leaves at the target.

    Attributes:
        error: FNIR (or FPIR, where the target holds FNIR) at the threshold that holds the target; None where
            none does.
        difference: error minus that of `max`.
        low: Lower end of the difference's interval over labels, which holds 95 % for all forms together.
    """

    group: Group
    error: float | None
    difference: float | None = None
    low: float | None = None
    high: float | None = None


def choose_form(
    items: Measurement, forms: Sequence[Group], target: Target, *, seed: int = 0
) -> tuple[Measurement, tuple[TriedForm, ...]]:
    """Choose the form with the lowest error, where its interval excludes chance; else the first. Intervals
    are of differences to the first on the same drawn labels, at 5 % shared out between the others.
    """
    measured = [measure_groups(items, form) for form in forms]
    if len(measured) == 1:
        return measured[0], ()
    errors = [error_figure(one, target) for one in measured]
    figures = {n: one for n, one in enumerate(errors) if one is not None}
    tried = [TriedForm(_group(one), None) for one in measured]
    has_mate, codes = items.mates.has_mate, items.codes.astype(np.int64)
    if 0 not in figures or not has_mate.any() or not len(items.without.queries):
        return measured[0], tuple(tried)
    draws = LabelDraws(codes[has_mate], codes[items.without.queries], seed)
    changes = dict(zip(figures, draws.changes(list(figures.values())), strict=True))
    for n, one in changes.items():
        tried[n] = TriedForm(tried[n].group, one.value, one.difference, one.low, one.high)
    best = min(changes, key=lambda n: changes[n].value)
    is_sure = (tried[best].high or 0.0) < 0.0
    return measured[best if is_sure else 0], tuple(tried)


def error_figure(measured: Measurement, target: Target) -> Figure | None:
    """The error that a target leaves; None where it cannot be held."""
    trials, codes = measured.trials, measured.codes.astype(np.int64)
    searches = Searches(
        trials.best_mate_scores,
        codes[measured.mates.has_mate],
        trials.best_scores_without_mate,
        codes[measured.without.queries],
    )
    if target.rate == "fpir" or target.rate == "fnir":
        return searches.error_when_held(target.rate, target.value)
    try:
        return searches.fnir(choose_threshold(trials, target))
    except CalibrationError:
        return None


@dataclass(frozen=True)
class _Examples:
    """Examples that `learned` is fitted on: (R, F) features, (R,) labels, a group's -1 without one."""

    features: Floats
    is_own: Mask
    query_labels: Ints
    group_labels: Ints

    @classmethod
    def of(cls, items: Measurement, tables: GroupTables, group: Group) -> _Examples:
        codes = items.codes.astype(np.int64)
        parts = []
        for table, queries in (
            (tables.with_label, codes),
            (tables.without_label, codes[items.without.queries]),
        ):
            rows, numbers, features = group_features(table.scores, table.codes, table.sizes, group)
            known = tables.labels[numbers]
            parts.append((features, known == queries[rows], queries[rows], known))
        return cls(*(np.concatenate(one) for one in zip(*parts, strict=True)))

    def fit(self, left_out: Mask) -> Floats:
        """(F + 1,) weights and intercept, without the queries and groups of the labels left out."""
        kept = ~left_out[self.query_labels] & ~left_out[self.group_labels]
        return _logistic(self.features[kept], self.is_own[kept])


def _learn(items: Measurement, tables: GroupTables, group: Group) -> tuple[Group, Floats]:
    """The group with weights of all trials, and for each query those of a model that never saw its label."""
    examples = _Examples.of(items, tables, group)
    n_labels = int(items.codes.max(initial=0)) + 1
    n_labels = max(n_labels, int(examples.group_labels.max(initial=0)) + 1)
    folds = np.random.default_rng(0).permutation(n_labels) % _N_FOLDS
    # Groups without a label, the last number, are in no fold.
    fitted = np.stack([examples.fit(np.append(folds == fold, False)) for fold in range(_N_FOLDS)])
    whole = examples.fit(np.zeros(n_labels + 1, dtype=bool))
    return group.model_copy(update={"weights": tuple(whole.tolist())}), fitted[folds[items.codes]]


def _logistic(features: Floats, is_own: Mask) -> Floats:
    """(F + 1,) weights and intercept of a ridge logistic model, both kinds of example as heavy, by Newton."""
    n_own, n = int(is_own.sum()), len(is_own)
    if not 0 < n_own < n:
        raise CalibrationError("a learned group score needs groups that are right and groups that are wrong")
    center, spread = features.mean(axis=0), features.std(axis=0)
    scale = np.where(spread > 1e-12, spread, 1.0)
    x = np.column_stack([(features - center) / scale, np.ones(n)])
    heavy = np.where(is_own, n / (2 * n_own), n / (2 * (n - n_own)))
    ridge = _RIDGE * np.append(np.ones(features.shape[1]), 1e-6)
    weights = np.zeros(x.shape[1])
    for _ in range(_N_STEPS):
        p = 1.0 / (1.0 + np.exp(-np.clip(x @ weights, -30.0, 30.0)))
        gradient = x.T @ (heavy * (p - is_own)) + ridge * weights
        curvature = (x * (heavy * p * (1.0 - p))[:, None]).T @ x + np.diag(ridge)
        step = np.linalg.solve(curvature, gradient)
        weights -= step
        if np.abs(step).max() < 1e-8:
            break
    own = weights[:-1] / scale
    return np.append(own, weights[-1] - own @ center)
