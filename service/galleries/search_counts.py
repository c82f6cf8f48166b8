"""Search counts of a process, which it adds to those of others under a name that it draws."""

from __future__ import annotations

import logging
import secrets
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily

from vicinal.calibration import TopScoreCounts
from vicinal.indexer.errors import GalleryError
from vicinal.service.errors import CalibrationRecordError
from vicinal.service.measuring.drift import (
    DriftLevel,
    DriftState,
    SearchCounts,
    drift_note,
    read_drift,
)
from vicinal.service.measuring.evidence import Evidence
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.records.record import CalibrationRecord
from vicinal.service.measuring.records.store import CalibrationStore
from vicinal.service.process import BackgroundWork
from vicinal.service.search.answers import Answer, Threshold

logger = logging.getLogger(__name__)
_SECONDS_BETWEEN_WRITES = 60.0
_LEVELS = ("none", "moderate", "strong")


class _Tally:
    """Counts of this process for one activation of a calibration."""

    def __init__(
        self, store: CalibrationStore, record: CalibrationRecord, since: datetime | None, evidence: Evidence
    ) -> None:
        self.store, self.record, self.since = store, record, since
        self._edges = evidence.top_scores.edges
        self._counts, self._n_no_match = [0] * (len(self._edges) + 1), 0
        self._lock = threading.Lock()
        self._counter, self._n_written = secrets.token_hex(8), 0

    def count(self, score: float) -> None:
        """Count a search with this top score."""
        place = bisect_right(self._edges, score)
        is_no_match = score < self.record.threshold
        with self._lock:
            self._counts[place] += 1
            self._n_no_match += is_no_match

    def kept(self) -> SearchCounts:
        """The counts so far."""
        with self._lock:
            counts = TopScoreCounts(self._edges, tuple(self._counts), self._n_no_match)
        return SearchCounts(since=self.since, counts=counts)

    def drift(self) -> DriftState:
        """Drift over all processes."""
        return read_drift(self.store, self.record, own=self.kept(), counter=self._counter)

    def write(self) -> None:
        """Keep the counts, if there are new ones and the gallery is still there."""
        kept = self.kept()
        if kept.counts.n != self._n_written and self.store.state.exists:
            kept.write(self.store, self.record.id, self._counter)
            self._n_written = kept.counts.n


class DriftMonitor(BackgroundWork):
    """Counts the searches of one process; as a context it also writes the counts."""

    name = "drift counts"

    def __init__(self, *, seconds: float = _SECONDS_BETWEEN_WRITES) -> None:
        super().__init__()
        self._seconds = seconds
        self._lock = threading.Lock()
        # By gallery and pipeline; None where a calibration has nothing to compare with.
        self._tallies: dict[tuple[str, str], tuple[tuple[str, datetime | None], _Tally | None]] = {}
        # As last computed, by gallery and pipeline.
        self._states: dict[tuple[str, str], DriftState] = {}

    def record(self, answers: Sequence[Answer], matcher: Matcher) -> None:
        """Count the answers of one call that the calibration in force decided, without a filter."""
        if not answers or answers[0].threshold.source != "calibration":
            return
        if answers[0].n_searched != len(matcher.view):
            return
        tally = self._tally(answers[0], matcher)
        if tally is None:
            return
        for answer in answers:
            tally.count(-1.0 if answer.top_score is None else answer.top_score)

    def noted(self, answers: list[Answer]) -> list[Answer]:
        """The answers of one call; their threshold says so where searches have drifted strongly."""
        if not answers:
            return answers
        gallery, threshold = answers[0].gallery, answers[0].threshold
        state = self._known(gallery, answers[0].pipeline, threshold)
        if state is None or state.level != "strong":
            return answers
        note = "; ".join(one for one in (threshold.note, drift_note(gallery, state)) if one)
        drifted = replace(threshold, drift="strong", note=note)
        return [replace(answer, threshold=drifted) for answer in answers]

    def level(self, gallery: str, pipeline: str, threshold: Threshold) -> DriftLevel:
        """Drift of the searches of a gallery, as last computed."""
        state = self._known(gallery, pipeline, threshold)
        return "unknown" if state is None else state.level

    def compute(self) -> None:
        """Compute how far all searches have drifted; searches only look that up."""
        self._states |= {(gallery, state.pipeline): state for gallery, state in self.states()}

    def drift(self, matcher: Matcher, record: CalibrationRecord) -> DriftState:
        """Drift since a record was put in force, over all processes."""
        _, tally = self._tallies.get((matcher.gallery.name, record.pipeline.key), (None, None))
        is_own = tally is not None and tally.record.id == record.id
        return tally.drift() if tally is not None and is_own else read_drift(matcher.calibrations, record)

    def write(self) -> None:
        """Keep all counts."""
        for _, tally in list(self._tallies.values()):
            if tally is not None:
                tally.write()

    def states(self) -> Iterator[tuple[str, DriftState]]:
        """Gallery and drift of everything that this process has searched with a calibration."""
        for (gallery, _), (_, tally) in list(self._tallies.items()):
            try:
                if tally is not None:
                    yield gallery, tally.drift()
            except (CalibrationRecordError, GalleryError) as error:
                logger.warning("drift cannot be computed: %s", error)

    def collect(self) -> list[GaugeMetricFamily]:
        """Drift of the searched galleries as Prometheus metrics, computed when they are asked for."""
        names = ["gallery", "pipeline"]
        psi = GaugeMetricFamily(
            "vicinal_drift_psi",
            "Population stability index of top scores since the calibration",
            labels=names,
        )
        level = GaugeMetricFamily("vicinal_drift_level", "0 none, 1 moderate, 2 strong", labels=names)
        change = GaugeMetricFamily(
            "vicinal_drift_no_match_change", "Share of searches without a match, now minus then", labels=names
        )
        queries = GaugeMetricFamily("vicinal_drift_queries", "Searches counted since", labels=names)
        for gallery, state in self.states():
            labels = [gallery, state.pipeline]
            queries.add_metric(labels, state.n_queries)
            if state.level == "unknown":
                continue
            level.add_metric(labels, _LEVELS.index(state.level))
            psi.add_metric(labels, state.psi or 0.0)
            change.add_metric(labels, (state.no_match_now or 0.0) - (state.no_match_then or 0.0))
        return [psi, level, change, queries]

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._write_or_say_why()

    def _known(self, gallery: str, pipeline: str, threshold: Threshold) -> DriftState | None:
        """State that was computed last, if it was for the calibration that decides."""
        state = self._states.get((gallery, pipeline))
        if state is None or threshold.source != "calibration":
            return None
        is_same = (state.calibration, state.since) == (threshold.calibration, threshold.since)
        return state if is_same else None

    def _tally(self, answer: Answer, matcher: Matcher) -> _Tally | None:
        threshold = answer.threshold
        place, key = (answer.gallery, answer.pipeline), (threshold.calibration or "", threshold.since)
        with self._lock:
            known = self._tallies.get(place)
            if known is None or known[0] != key:
                record = matcher.calibrations.get(key[0])
                evidence = record.evidence
                tally = None if evidence is None else _Tally(matcher.calibrations, record, key[1], evidence)
                known = self._tallies[place] = key, tally
            return known[1]

    def _work(self) -> None:
        while not self._waited(self._seconds):
            self._write_or_say_why()
            self.compute()

    def _write_or_say_why(self) -> None:
        try:
            self.write()
        except GalleryError as error:
            # They are still in memory, and the next write tries again.
            logger.warning("counts of searches cannot be written: %s", error)
