"""Pipeline comparison: several pipelines on the same queries, and which of them to use.

Every pipeline gets the calibration that it would get alone, by the very code that serves, so that the one
that is chosen comes into force together with its threshold. Embeddings, refined items and neighbor graphs are
made once and shared. A difference to the present pipeline is measured on the same queries, with an interval
by bootstrap over labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt

from vicinal.calibration import CalibrationError, LabelCounts, Target
from vicinal.calibration.rates.paired_bootstrap import paired_difference, paired_variance_difference
from vicinal.calibration.rates.pipeline_choice import SearchScores, draw_labels, selection_split, split_labels
from vicinal.service.calibrator.calibrator import Calibration, Calibrator, picture_comparison
from vicinal.service.calibrator.curves import CalibrationCurves, Utilities
from vicinal.service.calibrator.evidence import RateEvidence, rate_evidence
from vicinal.service.calibrator.item_groups import PhotoGroups
from vicinal.service.calibrator.queries import LabelledQueries, OnProgress, QueryReading
from vicinal.service.calibrator.record import CalibrationRecord, StoredScores
from vicinal.service.calibrator.trials import Measurement
from vicinal.service.comparisons.pipeline_record import (
    FigureDifference,
    PipelineComparison,
    PipelineComparisonOptions,
    PipelineFigures,
    PipelineVariant,
    SelectionOptimism,
)
from vicinal.service.comparisons.pipeline_variants import variant_pipelines
from vicinal.service.matcher.matcher import Matcher
from vicinal.service.scoring.item_spaces import SearchSpace
from vicinal.service.scoring.pipeline import Pipeline

__all__ = ["ComparedPipelines", "KeptCalibration", "compare_pipelines"]

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

_N_DRAWS = 1000
_N_SPLITS = 500
# Below this many labels a percentile interval is too short.
_FEW_LABELS = 30


@dataclass(frozen=True)
class ComparedPipelines:
    """What a comparison gives.

    Attributes:
        comparison: What is kept for good.
        recommended: The whole calibration of the recommended pipeline.
    """

    comparison: PipelineComparison
    recommended: KeptCalibration


@dataclass(frozen=True)
class KeptCalibration:
    """What is kept of a calibration, without what it was measured from; see `service.calibrator`."""

    record: CalibrationRecord
    scores: StoredScores
    curves: CalibrationCurves


@dataclass(frozen=True)
class _Tried:
    """One pipeline, as far as others are compared with it.

    Attributes:
        scores: Best scores of its searches.
        precisions: (M,) average precision over the first R candidates of each query with a mate.
        hits: (M,) whether its best candidate is a mate.
        labels: (M,) number of its label.
        utilities: Of all classes; None where none has any.
        figures: Its own figures.
    """

    calibration: KeptCalibration
    scores: SearchScores
    precisions: Floats
    hits: Floats
    labels: Numbers
    utilities: Utilities | None
    figures: PipelineFigures


def compare_pipelines(
    matcher: Matcher,
    options: PipelineComparisonOptions,
    queries: QueryReading | None = None,
    *,
    name: str,
    on_progress: OnProgress | None = None,
) -> ComparedPipelines:
    """Try the variants on one version of a gallery; nothing is kept.

    Args:
        matcher: The gallery; its pipeline is the present one.
        options: Which pipelines, and for which target.
        queries: Labelled queries from outside; without them every labelled item is left out once.
        name: Id of the comparison.
        on_progress: Called with `score`, finished and all searches, of all pipelines together.

    Raises:
        CalibrationError: No pipeline can be calibrated for the target.
    """
    return _Comparison(matcher, options, queries, on_progress).make(name)


class _Comparison:
    def __init__(
        self,
        matcher: Matcher,
        options: PipelineComparisonOptions,
        queries: QueryReading | None,
        on_progress: OnProgress | None,
    ) -> None:
        self.matcher = matcher
        self.options = options
        self.target = Target.parse(options.target)
        self.groups = PhotoGroups.of(matcher.snapshot, options.group_by) if options.group_by else None
        labelled = (
            LabelledQueries.leave_one_out(matcher.snapshot, self.groups)
            if queries is None
            else queries.labelled()
        )
        self.queries = labelled.sample(options.max_queries, options.seed)
        self.source = "leave_one_out" if queries is None else "queries"
        self.on_progress = on_progress
        self.problems: dict[str, CalibrationError] = {}
        self._spaces: dict[str, SearchSpace] = {}

    def make(self, name: str) -> ComparedPipelines:
        pipelines, left_out = variant_pipelines(self.matcher, self.options.variants)
        tried: dict[str, _Tried] = {}
        for number, pipeline in enumerate(pipelines):
            try:
                tried[pipeline.key] = self._try(pipeline, number, len(pipelines))
            except CalibrationError as error:
                self.problems[pipeline.key] = error
        if not tried:
            raise next(iter(self.problems.values()))
        present = pipelines[0].key
        times = draw_labels(next(iter(tried.values())).scores, _N_DRAWS, self.options.seed)
        drawn = {key: one.scores.errors(times) for key, one in tried.items()}
        variants = [
            self._variant(one, tried.get(one.key), tried.get(present), (times, drawn)) for one in pipelines
        ]
        recommended, reason = _recommend(variants, self.asked)
        warnings = tuple(self._warnings(tried, left_out))
        manifest = self.matcher.snapshot.manifest
        comparison = PipelineComparison(
            id=name,
            created_at=datetime.now(UTC),
            gallery=self.matcher.gallery.name,
            bundle=manifest.bundle,
            version=manifest.version,
            n_items=manifest.n_items,
            source=self.source,
            options=self.options,
            asked=self.asked,
            n_queries=len(self.queries.labels),
            n_labels=len(set(self.queries.labels)),
            present=present,
            variants=tuple(variants),
            recommended=recommended,
            reason=reason,
            optimism=self._optimism(tried),
            warnings=warnings,
        )
        return ComparedPipelines(comparison, tried[recommended].calibration)

    @property
    def asked(self) -> str:
        """The error that is compared: the one that the target does not hold."""
        return "fpir" if self.target.rate in ("fnir", "frr") else "fnir"

    def _try(self, pipeline: Pipeline, number: int, total: int) -> _Tried:
        calibrator = Calibrator(
            self.matcher.snapshot,
            pipeline,
            max_queries=self.options.max_queries,
            seed=self.options.seed,
            refinement=self.matcher.refinement(pipeline),
            groups=self.groups,
            same_pictures=picture_comparison(self.matcher.gallery, self.matcher.snapshot),
        )
        # Items are the same for all that refine the same sides, and so are the graphs between them.
        key = pipeline.refine.model_dump_json()
        calibrator.scorer.space = self._spaces.setdefault(key, calibrator.scorer.space)

        def report(stage: str, done: int, n: int) -> None:
            if self.on_progress is not None:
                self.on_progress(stage, number * n + done, total * n)

        return self._tried(calibrator.measure(self.queries, self.target, on_progress=report))

    def _tried(self, found: Calibration) -> _Tried:
        measured, trials = found.measured, found.measured.trials
        labels = trials.labels
        if labels is None:
            raise CalibrationError("pipelines are compared by label, these trials carry none")
        held = self.target.rate if self.target.rate in ("fpir", "fnir") else None
        scores = SearchScores(
            mates=trials.best_mate_scores,
            mate_labels=labels.best_mates.astype(np.int64),
            others=trials.best_scores_without_mate,
            other_labels=labels.without_mate.astype(np.int64),
            threshold=found.record.threshold,
            held="fpir" if held == "fpir" else "fnir" if held == "fnir" else None,
            limit=self.target.value or 0.0,
            asked="fpir" if self.asked == "fpir" else "fnir",
        )
        precisions, hits = _ranked(measured)
        return _Tried(
            calibration=KeptCalibration(found.record, found.scores, found.curves),
            scores=scores,
            precisions=precisions,
            hits=hits,
            labels=scores.mate_labels,
            utilities=found.curves.utilities.get("final"),
            figures=_figures(found, scores, (precisions, hits), self.asked),
        )

    def _variant(
        self,
        pipeline: Pipeline,
        one: _Tried | None,
        present: _Tried | None,
        drawn: tuple[npt.NDArray[np.int64], dict[str, Floats]],
    ) -> PipelineVariant:
        if one is None:
            problem = self.problems[pipeline.key]
            return PipelineVariant(pipeline=pipeline, key=pipeline.key, problem=str(problem))
        differences = {}
        if present is not None and one is not present:
            differences = _differences(one, present, drawn, self.options.seed)
        return PipelineVariant(
            pipeline=pipeline,
            key=pipeline.key,
            record=one.calibration.record.model_copy(update={"gallery": self.matcher.gallery.name}),
            figures=one.figures,
            differences=differences,
        )

    def _optimism(self, tried: dict[str, _Tried]) -> SelectionOptimism | None:
        pipelines = [one.scores for one in tried.values()]
        halves = split_labels(pipelines[0], _N_SPLITS, self.options.seed)
        if halves is None:
            return None
        first, second = (np.stack([one.errors(half) for one in pipelines]) for half in halves)
        found = selection_split(first, second)
        return SelectionOptimism(
            promised=found.promised,
            shown=found.shown,
            optimism=found.optimism,
            n_splits=found.n_splits,
            n_pipelines=len(pipelines),
        )

    def _warnings(self, tried: dict[str, _Tried], left_out: dict[str, str]) -> list[str]:
        found = [f"refinement of {sides} was not tried: {reason}" for sides, reason in left_out.items()]
        found += [f"'{key}' was not compared: {problem}" for key, problem in self.problems.items()]
        found.append(
            f"the best of {len(tried)} pipelines on the same queries looks better than it is: `optimism` "
            "says by how much"
        )
        n_labels = len(set(self.queries.labels))
        if n_labels < _FEW_LABELS:
            found.append(f"only {n_labels} labels: intervals of differences are too short")
        if self.target.rate not in ("fpir", "fnir"):
            found.append(
                "intervals take the thresholds as given, because they were not chosen on the searches that "
                "are compared"
            )
        return found


def _figures(
    found: Calibration, scores: SearchScores, ranked: tuple[Floats, Floats], asked: str
) -> PipelineFigures:
    record, (precisions, hits) = found.record, ranked
    evidence = record.evidence
    if evidence is None or asked not in evidence.rates:
        raise CalibrationError("pipelines are compared on queries with a mate and on queries without one")
    once = np.ones((1, int(max(scores.mate_labels.max(), scores.other_labels.max())) + 1), np.int64)
    opis = evidence.opis.get("final")
    return PipelineFigures(
        threshold=record.threshold,
        error=evidence.rates[asked],
        hit_rate=_hit_rate(hits, scores.mate_labels),
        map_at_r=float(precisions.mean()),
        auroc=float(scores.auroc(once)[0]),
        opis=None if opis is None else opis.opis,
        opis_floor=None if opis is None else opis.floor,
    )


def _hit_rate(hits: Floats, labels: Numbers) -> RateEvidence:
    counts = LabelCounts.of(hits > 0, labels.astype(np.uint64))
    if counts is None:
        raise CalibrationError("there are no queries with a mate")
    return rate_evidence(counts)


def _ranked(measured: Measurement) -> tuple[Floats, Floats]:
    """(M,) average precision over the first R candidates, and hit, of each query with a mate (METHODS 7)."""
    n = len(measured.query_codes)
    n_mates = np.bincount(measured.pairs.mate_queries, minlength=n)
    is_mate = measured.ranked_labels == measured.query_codes[:, None].astype(np.int64)
    ranks = np.arange(1, is_mate.shape[1] + 1)
    # Of very large labels only as many mates can be found as there are candidates.
    depth = np.minimum(n_mates, len(ranks))
    counted = is_mate & (ranks <= depth[:, None])
    precisions = (counted.cumsum(axis=1) / ranks * counted).sum(axis=1) / np.maximum(depth, 1)
    rows = measured.mates.has_mate
    return precisions[rows], is_mate[rows, 0].astype(np.float64)


def _differences(
    one: _Tried,
    present: _Tried,
    drawn: tuple[npt.NDArray[np.int64], dict[str, Floats]],
    seed: int,
) -> dict[str, FigureDifference]:
    times, errors = drawn
    keys = [tried.calibration.record.pipeline.key for tried in (one, present)]
    names = ("error", "auroc")
    spread = {
        "error": errors[keys[0]] - errors[keys[1]],
        "auroc": one.scores.auroc(times) - present.scores.auroc(times),
    }
    found = {}
    for name in names:
        values = [
            tried.figures.error.rate if name == "error" else tried.figures.auroc for tried in (one, present)
        ]
        low, high = np.quantile(spread[name], [0.025, 0.975])
        found[name] = FigureDifference(difference=values[0] - values[1], low=float(low), high=float(high))
    codes = one.labels.astype(np.uint64)
    for name, before, after in (
        ("hit_rate", present.hits, one.hits),
        ("map_at_r", present.precisions, one.precisions),
    ):
        paired = paired_difference(before, after, codes, seed=seed)
        found[name] = FigureDifference(difference=paired.difference, low=paired.low, high=paired.high)
    if one.utilities is not None and present.utilities is not None and len(one.utilities.labels) > 1:
        paired = paired_variance_difference(_by_label(present.utilities), _by_label(one.utilities), seed=seed)
        found["opis"] = FigureDifference(difference=paired.difference, low=paired.low, high=paired.high)
    return found


def _by_label(utilities: Utilities) -> Floats:
    """(N, T) utilities in the order of the labels."""
    order = np.argsort(np.array(utilities.labels, dtype=object), kind="stable")
    return np.asarray(utilities.values, dtype=np.float64)[order]


def _recommend(variants: list[PipelineVariant], asked: str) -> tuple[str, str]:
    """Key of the pipeline to use, and why."""
    present, name = variants[0], asked.upper()
    known = [(one.figures.error.rate, one) for one in variants if one.figures is not None]
    rate, best = min(known, key=lambda one: one[0])
    if present.figures is None:
        return best.key, f"the present pipeline cannot hold the target; this one has the lowest {name}"
    if best.key == present.key or rate >= present.figures.error.rate:
        return present.key, f"no pipeline has a lower {name} than the present one"
    change = best.differences["error"]
    interval = f"{100 * change.low:.1f} to {100 * change.high:.1f} points of {name}"
    if change.high >= 0.0:
        return present.key, (
            f"the present pipeline stays: '{best.key}' has the lowest {name}, but its difference of "
            f"{interval} does not exclude 0"
        )
    return best.key, f"it has the lowest {name}; its difference to the present pipeline is {interval}"
