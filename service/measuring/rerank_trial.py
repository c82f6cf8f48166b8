"""Rerank trial: whether re-ranking finds more on a gallery, before its threshold is chosen.

None and some neighborhoods are tried on the same sample of queries. Leaving items out flatters re-ranking:
photos of one visit share their neighborhoods, which photos of another day do not. So it is tried in both
readings of what was taken together (`.visits`), and taken only where it is surely better in both: where each
reading's interval over labels excludes chance, at 5 % for all neighborhoods together. What takes far longer
than none, as among many items at one distance, is not tried to its end and not taken.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vicinal.calibration import Target
from vicinal.calibration.rates.paired_bootstrap import Figure, FigureChange, LabelDraws
from vicinal.models.progress import OnProgress, no_progress
from vicinal.service.measuring.calibrator import Calibrator, pass_of
from vicinal.service.measuring.evidence import Reading, RerankTrial, TriedRerank
from vicinal.service.measuring.group_trials import error_figure
from vicinal.service.measuring.measurement import Measurement, TrialScoring
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.measuring.visits import Visits, visits_by_likeness
from vicinal.service.search.pipeline import Rerank
from vicinal.service.search.scorer import Scorer

_NEIGHBORHOODS = (4, 8, 16)
_MOST_QUERIES = 400
# Queries between two looks at the clock.
_AT_ONCE = 64
# All ways together may take so many times as long as none, and at least so many seconds.
_TIMES, _SECONDS = 24.0, 20.0
# Below this many labels an interval over labels is too short.
_FEWEST_LABELS = 10


class _TooLongError(Exception):
    pass


def try_reranks(
    calibrator: Calibrator, queries: LabelledQueries, target: Target, on_progress: OnProgress = no_progress
) -> RerankTrial | None:
    """Try ways to re-rank beside those of a calibrator's pipeline; None where nothing can be compared."""
    own = calibrator.scorer.pipeline.rerank
    sampled = queries.sample(min(_MOST_QUERIES, calibrator.most_queries), calibrator.seed)
    if len(set(sampled.labels)) < 2:
        return None
    none, *ways = dict.fromkeys(
        [
            own.model_copy(update={"method": "off"}),
            *(own.model_copy(update={"method": "contextual", "k": k}) for k in _NEIGHBORHOODS),
            own,
        ]
    )
    errors: dict[Rerank, dict[Reading, FigureChange]] = {way: {} for way in (none, *ways)}
    left, trial = ways, _Trial(calibrator, target)
    readings = _readings(calibrator, sampled)
    for number, (reading, visits) in enumerate(readings.items()):
        report = pass_of(on_progress, number, len(readings))
        changes = trial.changes([none, *left], _with_visits(sampled, visits), visits, report)
        for way, change in changes.items():
            errors[way][reading] = change
        left = [way for way in left if way in changes and changes[way].high < 0.0]
        if not left:
            break
    tried = {way: TriedRerank(rerank=way, errors=found) for way, found in errors.items()}
    return RerankTrial(
        n_queries=len(sampled.labels),
        tried=tuple(tried.values()),
        chosen=max(left, key=lambda way: tried[way].gain, default=none),
        took_too_long=trial.took_too_long,
    )


class _Trial:
    """A trial under way."""

    def __init__(self, calibrator: Calibrator, target: Target) -> None:
        self.calibrator, self.target = calibrator, target
        self.deadline: float | None = None
        self.took_too_long = False

    def changes(
        self, ways: Sequence[Rerank], queries: LabelledQueries, visits: Visits | None, report: OnProgress
    ) -> dict[Rerank, FigureChange]:
        """Errors of the ways that can be compared with the first, in one reading."""
        figures: dict[Rerank, Figure] = {}
        draws: LabelDraws | None = None
        started = time.monotonic()
        for number, way in enumerate(ways):
            try:
                measured = self._measured(way, queries, visits, pass_of(report, number, len(ways)))
            except _TooLongError:
                self.took_too_long = True
                break
            if self.deadline is None:
                now = time.monotonic()
                self.deadline = now + max(_SECONDS, _TIMES * (now - started))
            codes, figure = measured.codes.astype(np.int64), error_figure(measured, self.target)
            known, others = codes[measured.mates.has_mate], codes[measured.without.queries]
            if number == 0 and (figure is None or len(np.unique(known)) < _FEWEST_LABELS or not len(others)):
                break
            draws = draws or LabelDraws(known, others, self.calibrator.seed)
            if figure is not None:
                figures[way] = figure
        return {} if draws is None else dict(zip(figures, draws.changes([*figures.values()]), strict=True))

    def _measured(
        self, way: Rerank, queries: LabelledQueries, visits: Visits | None, report: OnProgress
    ) -> Measurement:
        known = self.calibrator.scorer
        pipeline = known.pipeline.model_copy(update={"rerank": way})
        scorer = Scorer(self.calibrator.snapshot, pipeline, known.refinement)
        # Items are the same, and so are the graphs between them.
        scorer.space = known.space
        scoring = TrialScoring(
            *(self.calibrator.snapshot, scorer, queries),
            visits=visits,
            device=self.calibrator.device,
            at_once=_AT_ONCE,
        )

        def heard(_stage: str, done: int, n: int, _note: str = "", /) -> None:
            report("try", done, n)
            if self.deadline is not None and time.monotonic() > self.deadline:
                raise _TooLongError

        return self.calibrator.decide(scoring.measure(heard))


def _readings(calibrator: Calibrator, queries: LabelledQueries) -> dict[Reading, Visits | None]:
    visits = calibrator.visits
    if queries.positions is None or visits is None or visits.are_told:
        return {"apart": visits}
    return {"apart": visits_by_likeness(calibrator.snapshot, visits), "together": visits}


def _with_visits(queries: LabelledQueries, visits: Visits | None) -> LabelledQueries:
    if queries.positions is None or visits is None:
        return queries
    return replace(queries, visits=visits.names[queries.positions])
