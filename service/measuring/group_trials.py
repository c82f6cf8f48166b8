"""Group trials: the scores that groups get for labelled queries, and which form of score to use.

FNIR counts the queries whose own group stays below the threshold, FPIR those that any group reaches with
their own label taken out. Labels remain the truth: the label of a group is that of most of its labelled items
(of equally many the first by name), and a group is right where that is the query's. Where none of a query's
own items is among the candidates, its group scores 0.

`learned` is fitted on the trials themselves and cross-fitted by label: the labels are dealt into folds, and
the queries of a fold are scored by a model that saw no query and no group of its labels. What is kept for
searches is fitted on all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from vicinal.calibration import (
    CalibrationError,
    Target,
    TrialLabels,
    Trials,
    UnreachableTargetError,
    choose_threshold,
)
from vicinal.calibration.arrays import Codes, Floats, Ints, Mask
from vicinal.calibration.rates.paired_bootstrap import Figure, LabelDraws, Searches
from vicinal.service.measuring.trials import GroupTables, Impostors, Measurement
from vicinal.service.request_fields import GroupChoice
from vicinal.service.search.group_scores import GroupedCandidates, group_features
from vicinal.service.search.item_groups import GroupTable
from vicinal.service.search.pipeline import Group, GroupScore

_TEMPERATURES = (0.02, 0.05, 0.1)
_N_FOLDS = 5
_RIDGE = 30.0
_N_STEPS = 50


@dataclass(frozen=True, kw_only=True)
class GroupMeasurement(Measurement):
    """What a calibration of group decisions is made from; its trials hold no pairs of items.

    Attributes:
        group: The form of the score, fitted where it is `learned`.
        weights: (n, F + 1) `learned`: weights that each query was scored with; None for others.
    """

    group: Group
    weights: Floats | None
    tables: GroupTables

    def own_scores_apart(self, look_alikes: Ints) -> Floats:
        """(n,) score of each query's own group without items of its visit by likeness; -inf with none left.

        Args:
            look_alikes: (n_items,) visit of each item by likeness.
        """
        table, groups, pairs = self.tables.with_label, self.tables.groups, self.pairs
        own = look_alikes[self.query_images][:, None]
        is_out = (look_alikes[table.positions] == own) & (table.positions >= 0)
        # Items of one visit and group, as one number.
        width = int(groups.codes.max(initial=0)) + 1
        together, counts = np.unique(look_alikes * width + groups.codes, return_counts=True)
        asked = own * width + np.maximum(table.codes, 0)
        places = np.minimum(np.searchsorted(together, asked), len(together) - 1)
        gone = np.where(together[places] == asked, counts[places], 0)
        totals = np.append(groups.sizes, np.ones(width - len(groups.sizes), dtype=np.int64))
        sizes = totals[np.maximum(table.codes, 0)] - gone
        scores = _own(self, table.without(is_out, sizes).scored(self.group, self.weights))
        is_left = look_alikes[self.query_images[pairs.mate_queries]] != look_alikes[pairs.mate_items]
        has_left = np.bincount(pairs.mate_queries[is_left], minlength=len(scores)) > 0
        return np.where(has_left, scores, -np.inf)

    def best_without_nearest(self) -> Floats:
        """(Q,) best score of the queries without a mate when the label of the best group is left out too."""
        table, weights = self.tables.without_label, self._weights_without
        labels = _group_labels(self)
        first = table.scored(self.group, weights).codes[:, :1]
        top = np.where(first >= 0, labels[np.maximum(first, 0)], -1)
        found = np.where(table.codes >= 0, labels[np.maximum(table.codes, 0)], -1)
        is_out = ((found == top) & (top >= 0)) | (table.codes == first)
        scores = table.without(is_out, table.sizes).scored(self.group, weights).scores[:, 0]
        return np.maximum(scores, 0.0)

    def own_scores_with_one_less(self, seed: int = 0) -> Floats:
        """(n,) score of each query's own group without one of its mates, drawn; -inf with fewer than two."""
        pairs, table = self.pairs, self.tables.with_label
        order = np.lexsort((np.random.default_rng(seed).random(len(pairs.mate_queries)), pairs.mate_queries))
        queries, items = pairs.mate_queries[order], pairs.mate_items[order]
        last = np.flatnonzero(np.append(np.diff(queries) != 0, True)) if len(queries) else order
        gone = np.full(len(self.query_codes), -1, dtype=np.int64)
        gone[queries[last]] = items[last]
        codes = np.where(gone >= 0, self.tables.groups.of_items(gone), -1)[:, None]
        sizes = table.sizes - ((table.codes == codes) & (codes >= 0))
        is_out = (table.positions == gone[:, None]) & (gone >= 0)[:, None]
        scores = _own(self, table.without(is_out, sizes).scored(self.group, self.weights))
        n_mates = np.bincount(pairs.mate_queries, minlength=len(scores))
        return np.where(n_mates > 1, scores, -np.inf)

    @property
    def _weights_without(self) -> Floats | None:
        return None if self.weights is None else self.weights[self.impostors.queries]


def require_group_target(group: Group, target: Target) -> None:
    """Refuse a target that speaks of pairs of photos where groups are decided."""
    if target.rate in ("far", "frr", "utility"):
        raise CalibrationError(
            f"{target} speaks of pairs of photos, and decisions by {group.by} are about groups of them: name "
            "fpir=5%, fnir=20% or precision=95%"
        )


def require_reached(measured: GroupMeasurement, target: Target, threshold: float) -> None:
    """Refuse a threshold that even groups reach of which a search finds no item."""
    scores = measured.trials.best_mate_scores
    if target.rate == "fnir" and threshold <= 0.0:
        lowest = float((scores <= 0.0).mean())
        raise UnreachableTargetError(
            str(target), lowest, "lowest", f"{(scores <= 0.0).sum():,} groups are not among the candidates"
        )


def group_forms(by: str, score: GroupChoice = "auto") -> tuple[Group, ...]:
    """The forms of group score that are tried, the simplest first.

    Args:
        score: One score alone, in its usual form; all when `auto`.
    """
    if score != "auto":
        return (Group(by=by, score=score),)
    tempered: tuple[GroupScore, ...] = ("lme", "vote", "share")
    return (
        Group(by=by),
        *(Group(by=by, score="mean", m=m) for m in (2, 3, 5)),
        *(Group(by=by, score=score, temperature=t) for score in tempered for t in _TEMPERATURES),
        Group(by=by, score="learned"),
    )


def measure_groups(items: Measurement, group: Group) -> GroupMeasurement:
    """Decide the searches of a measurement by group.

    Args:
        group: The form of the score; `learned` without weights is fitted, and cross-fitted, on the trials.
    """
    if items.tables is None:
        raise CalibrationError("these items were scored without groups: calibrate with group_by")
    tables, weights = items.tables, None
    if group.score == "learned" and not group.weights:
        group, weights = _learn(items, tables, group)
    mates, chosen = items.mates, items.impostors.queries
    found = tables.with_label.scored(group, weights)
    out = tables.without_label.scored(group, None if weights is None else weights[chosen])
    own = _own(items, found)
    firsts = _labels_of(_group_labels(items), found.codes[:, 0])
    hits = (firsts == items.query_codes)[mates.has_mate]
    fields = {name: getattr(items, name) for name in Measurement.__dataclass_fields__}
    changed = {
        "trials": _trials(items, tables, found=found, out=out, own=own),
        "hit_rate_1": float(hits.mean()) if len(hits) else None,
        "top_scores": np.maximum(found.scores[:, 0], 0.0),
        "best_items": _best_items(tables.with_label, found),
        "impostors": Impostors(
            scores=out.scores,
            groups=out.codes,
            n_groups=len(np.unique(tables.groups.codes)) - tables.is_taken_out,
            best_items=_best_items(tables.without_label, out),
            queries=chosen,
        ),
        "mates": replace(mates, best_scores=np.where(mates.has_mate, own, -np.inf)),
        "first_labels": firsts,
    }
    return GroupMeasurement(**{**fields, **changed}, group=group, weights=weights)


@dataclass(frozen=True)
class TriedForm:
    """A form of group score, and the error that it leaves at the target.

    Attributes:
        group: The form.
        error: FNIR (or FPIR, where the target holds FNIR) at the threshold that holds the target; None where
            none does.
        difference: error minus that of `max`.
        low: Lower end of the difference's interval over labels, which holds 95 % for all forms together.
        high: Upper end.
    """

    group: Group
    error: float | None
    difference: float | None = None
    low: float | None = None
    high: float | None = None


def choose_form(
    items: Measurement, forms: Sequence[Group], target: Target, *, seed: int = 0
) -> tuple[GroupMeasurement, tuple[TriedForm, ...]]:
    """The form with the lowest error, where its interval excludes chance; else the first.

    The interval is that of the difference to the first form on the same drawn labels, at 5 % shared out
    between all other forms, so that to try many of them makes none look better than it is.
    """
    measured = [measure_groups(items, form) for form in forms]
    if len(measured) == 1:
        return measured[0], ()
    figures = [_error(one, target) for one in measured]
    first = figures[0]
    tried = [TriedForm(one.group, None) for one in measured]
    if first is None or not items.mates.has_mate.any() or not len(items.impostors.queries):
        return measured[0], tuple(tried)
    codes = items.query_codes.astype(np.int64)
    draws = LabelDraws(codes[items.mates.has_mate], codes[items.impostors.queries], seed)
    known = [(place, one) for place, one in enumerate(figures) if one is not None]
    errors, drawn = (find([one for _, one in known]) for find in (draws.measured, draws.drawn))
    share = 0.025 / max(1, len(known) - 1)
    for (place, _), error, values in zip(known, errors, drawn, strict=True):
        low, high = np.quantile(values - drawn[0], [share, 1.0 - share])
        tried[place] = TriedForm(
            measured[place].group, float(error), float(error - errors[0]), float(low), float(high)
        )
    best = min(known, key=lambda one: tried[one[0]].error or 0.0)[0]
    is_sure = (tried[best].high or 0.0) < 0.0
    return measured[best if is_sure else 0], tuple(tried)


def _error(measured: Measurement, target: Target) -> Figure | None:
    """What is compared between forms; None where a form cannot hold the target."""
    trials, codes = measured.trials, measured.query_codes.astype(np.int64)
    searches = Searches(
        trials.best_mate_scores,
        codes[measured.mates.has_mate],
        trials.best_scores_without_mate,
        codes[measured.impostors.queries],
    )
    if target.rate == "fpir" or target.rate == "fnir":
        return searches.error_when_held(target.rate, target.value)
    try:
        return searches.fnir(choose_threshold(trials, target))
    except CalibrationError:
        return None


def _group_labels(items: Measurement) -> Ints:
    """(codes,) number of the label of each group; -1 for one whose items have none."""
    tables = items.tables
    if tables is None or items.trials.labels is None:
        return np.empty(0, dtype=np.int64)
    codes, labels = tables.groups.codes, tables.item_labels
    n_labels = len(items.trials.labels.names)
    is_labelled = labels < n_labels
    pairs, counts = np.unique(codes[is_labelled] * n_labels + labels[is_labelled], return_counts=True)
    # The most frequent label of a group last, of equally frequent ones the first by name.
    order = np.lexsort((-pairs, counts))
    found = np.full(int(codes.max(initial=0)) + 1, -1, dtype=np.int64)
    found[pairs[order] // n_labels] = pairs[order] % n_labels
    return found


def _labels_of(labels: Ints, codes: Ints) -> Ints:
    return np.where(codes >= 0, labels[np.maximum(codes, 0)], -1)


def _own(items: Measurement, found: GroupedCandidates) -> Floats:
    """(n,) best score of a group of each query's label; 0 where none is among the candidates."""
    is_own = _labels_of(_group_labels(items), found.codes) == items.query_codes[:, None]
    return np.where(is_own, found.scores, 0.0).max(axis=1)


def _trials(
    items: Measurement, tables: GroupTables, *, found: GroupedCandidates, out: GroupedCandidates, own: Floats
) -> Trials:
    """Trials of groups in place of items: of each query's own group, of the best other, and of all answers.

    Args:
        out: Those of the queries without a mate.
        own: (n,) score of each query's own group.
    """
    named = items.trials.labels
    if named is None:
        raise CalibrationError("these trials carry no labels")
    has_mate, without_mate = items.mates.has_mate, items.query_codes[items.impostors.queries]
    # Where every query is searched for twice, both searches answer.
    searches = [(found, items.query_codes, has_mate)]
    if tables.is_taken_out:
        searches.append((out, without_mate, np.zeros(len(without_mate), dtype=bool)))
    labels = _group_labels(items)
    answers = [_answers(*one, labels, len(named.names)) for one in searches]
    scores, is_mate, answer_codes, answer_has_mate = map(np.concatenate, zip(*answers, strict=True))
    none = items.query_codes[:0]
    return Trials(
        mate_scores=np.empty(0),
        non_mate_scores=np.empty(0),
        best_mate_scores=own[has_mate],
        best_scores_without_mate=np.where(np.isfinite(out.scores[:, 0]), out.scores[:, 0], 0.0),
        answer_scores=scores,
        answer_is_mate=is_mate,
        answer_has_mate=answer_has_mate,
        n_searches=items.trials.n_searches,
        labels=TrialLabels(
            names=named.names,
            mates=none,
            non_mate_queries=none,
            non_mate_items=none,
            best_mates=items.query_codes[has_mate],
            without_mate=without_mate,
            answers=answer_codes,
        ),
    )


def _best_items(table: GroupTable, found: GroupedCandidates) -> Ints:
    columns = found.best[:, 0]
    return np.where(columns >= 0, table.positions[np.arange(len(columns)), np.maximum(columns, 0)], -1)


def _answers(
    found: GroupedCandidates,
    codes: Codes,
    has_mate: Mask,
    labels: Ints,
    n_labels: int,
) -> tuple[Floats, Mask, Codes, Mask]:
    """Score of each group with a known label, whether it is the query's, its label, whether it has a mate."""
    known = _labels_of(labels, found.codes)
    rows, columns = np.nonzero((known >= 0) & (known < n_labels))
    return found.scores[rows, columns], known[rows, columns] == codes[rows], codes[rows], has_mate[rows]


@dataclass(frozen=True)
class _Examples:
    """What `learned` is fitted on.

    Attributes:
        features: (R, F).
        is_own: (R,) whether the group is the query's own.
        query_labels: (R,) label of the query.
        group_labels: (R,) label of the group, -1 without one.
    """

    features: Floats
    is_own: Mask
    query_labels: Ints
    group_labels: Ints

    @classmethod
    def of(cls, items: Measurement, tables: GroupTables, group: Group) -> _Examples:
        labels, codes = _group_labels(items), items.query_codes.astype(np.int64)
        parts = []
        for table, queries in (
            (tables.with_label, codes),
            (tables.without_label, codes[items.impostors.queries]),
        ):
            rows, numbers, features = group_features(table.scores, table.codes, table.sizes, group)
            known = labels[numbers]
            parts.append((features, known == queries[rows], queries[rows], known))
        return cls(*(np.concatenate(one) for one in zip(*parts, strict=True)))

    def fit(self, left_out: Mask) -> Floats:
        """(F + 1,) weights and intercept, without the queries and groups of some labels.

        Args:
            left_out: (labels + 1,) which labels; the last is that of groups without one.
        """
        kept = ~left_out[self.query_labels] & ~left_out[self.group_labels]
        return _logistic(self.features[kept], self.is_own[kept])


def _learn(items: Measurement, tables: GroupTables, group: Group) -> tuple[Group, Floats]:
    """The group with weights of all trials, and for each query those of a model that never saw its label."""
    examples = _Examples.of(items, tables, group)
    n_labels = int(items.query_codes.max(initial=0)) + 1
    n_labels = max(n_labels, int(examples.group_labels.max(initial=0)) + 1)
    folds = np.random.default_rng(0).permutation(n_labels) % _N_FOLDS
    # Groups without a label, the last number, are in no fold.
    fitted = np.stack([examples.fit(np.append(folds == fold, False)) for fold in range(_N_FOLDS)])
    whole = examples.fit(np.zeros(n_labels + 1, dtype=bool))
    return group.model_copy(update={"weights": tuple(whole.tolist())}), fitted[folds[items.query_codes]]


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
