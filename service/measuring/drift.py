"""Drift of searches by what each process counted."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from vicinal.calibration import TopScoreCounts, measure_drift
from vicinal.calibration.frozen import Frozen
from vicinal.indexer.state import DamagedRowError
from vicinal.indexer.state.schema import search_counts
from vicinal.service.measuring.records.record import CalibrationRecord
from vicinal.service.measuring.records.store import CalibrationStore

logger = logging.getLogger(__name__)

DriftLevel = Annotated[
    Literal["unknown", "none", "moderate", "strong"],
    Field(description="How far searches have drifted from the calibration's queries."),
]


class DriftState(BaseModel, frozen=True):
    """Drift of the searches from those of a calibration.

    Attributes:
        since: When the calibration was put in force.
        level: `unknown` where there is nothing to compare; see `calibration.Drift` for the others.
        n_queries: Searches that were counted since, in all processes; those with a filter are not.
        psi: Population stability index of the top scores.
        chance_psi: What it reaches by chance in one of a hundred comparisons of so many searches.
        no_match_then: Share of the calibration's queries without a match.
        no_match_now: Share of the searches since without a match.
        no_match_interval: 95 % interval of the difference, now minus then.
        edges: Edges between the bins of top scores.
        counts_then: The calibration's queries in each bin.
        counts_now: Searches since in each bin.
    """

    calibration: str
    pipeline: str
    since: datetime | None
    level: DriftLevel
    reason: str | None = None
    n_queries: int = 0
    psi: float | None = None
    chance_psi: float | None = None
    no_match_then: float | None = None
    no_match_now: float | None = None
    no_match_interval: tuple[float, float] | None = None
    edges: tuple[float, ...] = ()
    counts_then: tuple[int, ...] = ()
    counts_now: tuple[int, ...] = ()


class SearchCounts(Frozen):
    """Counts of one process since a calibration was put in force."""

    since: datetime | None
    counts: TopScoreCounts

    def write(self, store: CalibrationStore, calibration: str, counter: str) -> None:
        """Keep them as those of one process, in place of what it kept before."""
        row = {"calibration": calibration, "counter": counter, "since": _seconds(self.since)}
        with store.state.noting() as rows:
            rows.put(search_counts, {**row, "content": self.model_dump_json()})


def read_drift(
    store: CalibrationStore,
    record: CalibrationRecord,
    *,
    own: SearchCounts | None = None,
    counter: str = "",
) -> DriftState:
    """Drift since a record was put in force, over what all processes have written; with `own` counts of one
    process in place of what that has written.
    """
    activation = store.activation(record.pipeline)
    unknown = DriftState(calibration=record.id, pipeline=record.pipeline.key, since=None, level="unknown")
    if record.evidence is None:
        return unknown.model_copy(update={"reason": "the record has no scores to compare with"})
    if activation is None or activation.calibration != record.id:
        return unknown.model_copy(update={"reason": "it is not in force: searches are not counted"})
    unknown = unknown.model_copy(update={"since": activation.at})
    reference = record.evidence.top_scores
    since = search_counts.c.since == _seconds(activation.at)
    with store.state.reading() as rows:
        written = rows.all(search_counts, search_counts.c.calibration == record.id, since, on_damage=_tell)
    parts = [SearchCounts.model_validate_json(one.content) for one in written if one.counter != counter]
    parts += [own] if own is not None else []
    counted = [reference.emptied()]
    counted += [
        one.counts for one in parts if one.since == activation.at and one.counts.edges == reference.edges
    ]
    counts = (sum(bins) for bins in zip(*(one.counts for one in counted), strict=True))
    n_no_match = sum(one.n_no_match for one in counted)
    current = TopScoreCounts(reference.edges, tuple(counts), n_no_match)
    if not current.n:
        return unknown.model_copy(update={"reason": "no search was counted since"})
    found = measure_drift(reference, current)
    return unknown.model_copy(
        update={
            "level": found.level,
            "n_queries": found.n_queries,
            "psi": found.psi,
            "chance_psi": found.chance_psi,
            "no_match_then": reference.no_match_share,
            "no_match_now": current.no_match_share,
            "no_match_interval": found.no_match_interval,
            "edges": reference.edges,
            "counts_then": reference.counts,
            "counts_now": current.counts,
        }
    )


def drift_note(gallery: str, state: DriftState) -> str:
    """Note for an answer while searches have drifted strongly."""
    return (
        f"searches have drifted strongly from the queries of calibration {state.calibration}, so that its "
        f"rates may no longer hold: see `vicinal calibration drift -g {gallery}`, and try what was promised "
        f"with queries of today by `vicinal calibration check -g {gallery} --queries FOLDER`"
    )


def _tell(damage: DamagedRowError) -> None:
    logger.warning("%s: these counts of searches are left out", damage)


def _seconds(at: datetime | None) -> float | None:
    return None if at is None else at.timestamp()
