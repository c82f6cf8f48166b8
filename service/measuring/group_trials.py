"""Group trials: scores that groups get for labelled queries, and whether the gallery's own metric finds more.

FNIR counts the queries whose own group stays below the threshold, FPIR those that any group reaches with
their own label taken out. The label of a group is that of most of its labelled items (of equally many the
first by name). A query's own group scores 0 where none of its items is among the candidates. A metric is
cross-fitted: no query that is an item, and none without its label, is scored by one that saw the label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from vicinal.calibration import (
    CalibrationError,
    Target,
    UnreachableTargetError,
    choose_threshold,
)
from vicinal.calibration.arrays import Floats, Ints, Mask
from vicinal.calibration.frozen import Frozen
from vicinal.calibration.lda import LabelScatter, NoMetricError
from vicinal.calibration.rates.paired_bootstrap import Figure, LabelDraws, Searches
from vicinal.service.measuring.label_folds import LabelFolds
from vicinal.service.measuring.measurement import Found, GroupTables, Measurement
from vicinal.service.request_fields import MetricChoice
from vicinal.service.search.label_scores import labels_beside, metric_of, note_metric
from vicinal.service.search.pipeline import Group


def speaks_of_pairs(target: Target) -> bool:
    """Tell whether a target is about pairs of photos, which groups have none of."""
    return target.rate in ("far", "frr", "utility")


def require_group_target(group: Group, target: Target) -> None:
    """Refuse a target that speaks of pairs of photos where groups are decided."""
    if speaks_of_pairs(target):
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


def measure_groups(items: Measurement, group: Group, folds: LabelFolds | None = None) -> Measurement:
    """Decide a measurement's searches by group. A metric that `group` does not name is made of the gallery,
    or that of `folds` of the same gallery.

    Raises:
        NoMetricError: The gallery's labels tell none.
    """
    tables, mates, chosen = _tables(items), items.mates, items.without.queries
    if group.score == "lda":
        folder = tables.groups.view.snapshot.path.parent.parent
        used = metric_of(folder, group.metric) if group.metric else None
        folds = folds or LabelFolds(tables.groups, used, _labels_beside(tables))
        group = group.model_copy(update={"metric": group.metric or note_metric(folds.whole)})
        # A query from outside finds its label by the metric of all, as searches do.
        seen = tables.codes if items.are_items else np.full(len(tables.codes), -1)
        gone = [tables.excluded[row] for row in chosen]
        with_label = folds.by_label(tables.with_label, tables.embeddings, seen, tables.excluded)
        without = folds.by_label(tables.without_label, tables.embeddings[chosen], tables.codes[chosen], gone)
        tables = replace(
            tables,
            with_label=replace(tables.with_label, by_label=with_label),
            without_label=replace(tables.without_label, by_label=without),
        )
    found = tables.found(items.found.queries, tables.with_label)
    out = tables.found(chosen, tables.without_label)
    mates = replace(mates, best_scores=np.where(mates.has_mate, _own_scores(items, found), -np.inf))
    return replace(items, found=found, without=out, mates=mates, tables=tables, group=group, folds=folds)


def _tables(measured: Measurement) -> GroupTables:
    if measured.tables is None:
        raise CalibrationError("these items were scored without groups: calibrate with group_by")
    return measured.tables


def _labels_beside(tables: GroupTables) -> LabelScatter | None:
    snapshot = tables.groups.view.snapshot
    return labels_beside(snapshot.path.parent.parent, snapshot.manifest.bundle)


def _own_scores(measured: Measurement, found: Found) -> Floats:
    """(n,) best score of a group of each query's label; 0 where none is among the candidates."""
    return np.where(found.labels == measured.codes[:, None], found.scores, 0.0).max(axis=1)


def _scored_without(measured: Measurement, is_out: Mask, gone: Sequence[Ints]) -> Floats:
    """(n,) score of each query's own group without some of the candidates, and without the items `gone`."""
    tables = _tables(measured)
    table = tables.with_label.without(is_out)
    if measured.folds is not None:
        # Of the others nothing is asked.
        table = replace(table, codes=np.where(table.codes == tables.codes[:, None], table.codes, -1))
        seen = tables.codes if measured.are_items else np.full(len(tables.codes), -1)
        excluded = [np.union1d(*both) for both in zip(tables.excluded, gone, strict=True)]
        by_label = measured.folds.by_label(table, tables.embeddings, seen, excluded)
        table = replace(table, by_label=by_label)
    return _own_scores(measured, tables.found(measured.found.queries, table))


def own_scores_apart(measured: Measurement, look_alikes: Ints) -> Floats:
    """(n,) score of each query's own group without items of its visit by likeness; -inf with none left."""
    tables, pairs = _tables(measured), measured.pairs
    table, own = tables.with_label, look_alikes[measured.images]
    is_out = (look_alikes[table.positions] == own[:, None]) & (table.positions >= 0)
    order = np.argsort(look_alikes, kind="stable")
    ends = np.searchsorted(look_alikes[order], own, "left"), np.searchsorted(look_alikes[order], own, "right")
    gone = [np.sort(order[start:end]) for start, end in zip(*ends, strict=True)]
    scores = _scored_without(measured, is_out, gone)
    is_left = look_alikes[measured.images[pairs.mate_queries]] != look_alikes[pairs.mate_items]
    has_left = np.bincount(pairs.mate_queries[is_left], minlength=len(scores)) > 0
    return np.where(has_left, scores, -np.inf)


def best_without_nearest(measured: Measurement) -> Floats:
    """(Q,) best score of the queries without a mate when the label of the best group is left out too."""
    tables, found = _tables(measured), measured.without
    table, labels = tables.without_label, tables.labels_of(tables.without_label.codes)
    top = found.labels[:, :1]
    is_out = ((labels == top) & (top >= 0)) | (table.codes == found.groups[:, :1])
    return np.maximum(table.without(is_out).scored().scores[:, 0], 0.0)


def own_scores_with_one_less(measured: Measurement, seed: int = 0) -> Floats:
    """(n,) score of each query's own group, or best mate, without one of its mates, drawn; -inf with fewer
    than two.
    """
    pairs = measured.pairs
    order = np.lexsort((np.random.default_rng(seed).random(len(pairs.mate_queries)), pairs.mate_queries))
    queries, items = pairs.mate_queries[order], pairs.mate_items[order]
    last = np.flatnonzero(np.append(np.diff(queries) != 0, True)) if len(queries) else order
    if measured.group is None:
        scores, left = np.full(len(measured.codes), -np.inf), np.delete(order, last)
        np.maximum.at(scores, pairs.mate_queries[left], pairs.mate_scores["final"][left])
        return scores
    table = _tables(measured).with_label
    gone = np.full(len(measured.codes), -1, dtype=np.int64)
    gone[queries[last]] = items[last]
    is_out = (table.positions == gone[:, None]) & (gone >= 0)[:, None]
    scores = _scored_without(measured, is_out, [one[one >= 0] for one in gone[:, None]])
    n_mates = np.bincount(pairs.mate_queries, minlength=len(scores))
    return np.where(n_mates > 1, scores, -np.inf)


class MetricTrial(Frozen):
    """The gallery's own metric beside the best photo's score, on the same queries.

    Attributes:
        cosine: FNIR (or FPIR, where the target holds FNIR) by the best photo at the threshold that holds the
            target; None where none does.
        lda: The same by the gallery's own metric.
        low: Lower end of the 95 % interval over labels of lda - cosine.
        chosen: The one that scores.
        chose_labels: Whether it also chose that labels are decided, or items.
        reason: Why there is no metric, where there is none.
    """

    chosen: Literal["cosine", "lda"]
    cosine: float | None = None
    lda: float | None = None
    low: float | None = None
    high: float | None = None
    chose_labels: bool = False
    reason: str | None = None


def choose_metric(
    items: Measurement, by: str, target: Target, metric: MetricChoice = "auto", *, seed: int = 0
) -> tuple[Measurement, MetricTrial | None]:
    """Decide by group with the score that leaves the lower error; see `MetricTrial`.

    Raises:
        NoMetricError: The metric is asked for, and the labels tell none.
    """
    if metric == "lda":
        return measure_groups(items, Group(by=by, score="lda")), None
    plain = measure_groups(items, Group(by=by))
    if metric == "cosine" or by != "label":
        return plain, None
    form, tables = Group(by=by, score="lda"), _tables(items)
    # What is found when items are left out does not show what labels beside bring, see `operations.fit`.
    has_beside = items.are_items and _labels_beside(tables) is not None
    try:
        own = measure_groups(items, form, LabelFolds(tables.groups) if has_beside else None)
    except NoMetricError as error:
        return plain, MetricTrial(chosen="cosine", reason=str(error))
    figures = [_error_figure(one, target) for one in (plain, own)]
    codes, has_mate = items.codes.astype(np.int64), items.mates.has_mate
    known = [one for one in figures if one is not None]
    if len(known) < 2 or not has_mate.any() or not len(items.without.queries):
        return plain, MetricTrial(chosen="cosine", reason="no threshold holds the target with both")
    draws = LabelDraws(codes[has_mate], codes[items.without.queries], seed)
    cosine, lda = draws.changes(known)
    chosen: Literal["cosine", "lda"] = "lda" if lda.difference < 0.0 else "cosine"
    trial = MetricTrial(chosen=chosen, cosine=cosine.value, lda=lda.value, low=lda.low, high=lda.high)
    if chosen == "cosine":
        return plain, trial
    return (measure_groups(items, form) if has_beside else own), trial


def _error_figure(measured: Measurement, target: Target) -> Figure | None:
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
