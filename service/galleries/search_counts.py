"""Search counts of a process, which holds `<data_dir>/replicas/<replica>.lock` for as long as it runs."""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Self

from prometheus_client.core import GaugeMetricFamily

from vicinal.calibration import TopScoreCounts
from vicinal.indexer.errors import GalleryBusyError
from vicinal.indexer.storage.files import file_lock, write_sealed
from vicinal.indexer.storage.home import Mirror
from vicinal.service.errors import CalibrationRecordError
from vicinal.service.measuring.drift import (
    DriftLevel,
    DriftState,
    SearchCounts,
    counts_file,
    drift_note,
    read_counts,
    read_drift,
)
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.measuring.records.record import CalibrationRecord
from vicinal.service.measuring.records.store import CalibrationStore
from vicinal.service.process import BackgroundWork
from vicinal.service.search.answers import Answer, Threshold

logger = logging.getLogger(__name__)
_SECONDS_BETWEEN_WRITES = 30.0
_MOST_REPLICAS = 1024
_LEVELS = ("none", "moderate", "strong")


class _Tally:
    """Counts of this process for one activation of a calibration."""

    def __init__(self, store: CalibrationStore, record: CalibrationRecord, kept: SearchCounts) -> None:
        self.store = store
        self.record = record
        self.since = kept.since
        self._edges = kept.counts.edges
        self._counts = list(kept.counts.counts)
        self._n_no_match = kept.counts.n_no_match
        self._lock = threading.Lock()
        self._n_written = kept.counts.n

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

    def write(self, replica: str) -> None:
        """Bring the counts to the disk, if there are new ones and the gallery is still there."""
        kept = self.kept()
        if kept.counts.n == self._n_written or not self.store.path.is_dir():
            return
        path = counts_file(self.store, self.record, replica)
        path.parent.mkdir(exist_ok=True)
        write_sealed(path, kept.model_dump_json())
        self._n_written = kept.counts.n


class DriftMonitor(BackgroundWork):
    """Counts the searches of one process; as a context it also writes the counts."""

    name = "drift counts"

    def __init__(self, replicas: Path, *, seconds: float = _SECONDS_BETWEEN_WRITES) -> None:
        super().__init__()
        self._replicas = replicas
        self._seconds = seconds
        self._replica: str | None = None
        self._lock = threading.Lock()
        # By gallery and pipeline; None where a calibration has nothing to compare with.
        self._tallies: dict[tuple[str, str], _Tally | None] = {}
        self._keys: dict[tuple[str, str], tuple[str, datetime | None]] = {}
        # As last computed, by gallery and pipeline.
        self._states: dict[tuple[str, str], DriftState] = {}
        self._held = ExitStack()

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
        try:
            self._states = {(gallery, state.pipeline): state for gallery, state in self.states()}
        except (CalibrationRecordError, OSError) as error:
            logger.warning("drift cannot be computed: %s", error)

    def drift(self, matcher: Matcher, record: CalibrationRecord) -> DriftState:
        """Drift since a record was put in force, over all processes."""
        tally = self._tallies.get((matcher.gallery.name, record.pipeline.key))
        is_own = tally is not None and tally.record.id == record.id
        return read_drift(
            matcher.calibrations,
            record,
            own=tally.kept() if tally is not None and is_own else None,
            replica=self._replica,
        )

    def write(self) -> None:
        """Bring all counts to the disk."""
        if self._replica is None:
            return
        for tally in list(self._tallies.values()):
            if tally is not None:
                tally.write(self._replica)

    def states(self) -> list[tuple[str, DriftState]]:
        """Gallery and drift of everything that this process has searched with a calibration."""
        return [
            (gallery, read_drift(tally.store, tally.record, own=tally.kept(), replica=self._replica))
            for (gallery, _), tally in list(self._tallies.items())
            if tally
        ]

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

    def __enter__(self) -> Self:
        try:
            self._replica = self._claimed()
        except OSError as error:
            logger.warning("counts of searches are kept in memory only: %s", error)
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._write_or_say_why()
        self._held.close()
        self._replica = None

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
        if self._keys.get(place) == key:
            return self._tallies[place]
        with self._lock:
            if self._keys.get(place) != key:
                self._tallies[place] = self._opened(matcher.calibrations, *key)
                self._keys[place] = key
            return self._tallies[place]

    def _opened(self, store: CalibrationStore, calibration: str, since: datetime | None) -> _Tally | None:
        """Go on with what this process, or the one before of its number, has counted."""
        record = store.get(calibration)
        if record.evidence is None:
            return None
        empty = SearchCounts(since=since, counts=record.evidence.top_scores.emptied())
        known = None if self._replica is None else read_counts(counts_file(store, record, self._replica))
        fits = known is not None and known.since == since and known.counts.edges == empty.counts.edges
        return _Tally(store, record, known if known is not None and fits else empty)

    def _claimed(self) -> str:
        """The lowest number that no other running process has."""
        self._replicas.mkdir(parents=True, exist_ok=True)
        for number in range(_MOST_REPLICAS):
            try:
                self._held.enter_context(file_lock(self._replicas / f"{number}.lock", "another process"))
            except GalleryBusyError:
                continue
            mirror = Mirror.of(self._replicas)
            return str(number) if mirror is None else f"{mirror.replica}-{number}"
        raise OSError(f"more than {_MOST_REPLICAS} processes count searches")

    def _work(self) -> None:
        while not self._waited(self._seconds):
            self._write_or_say_why()
            self.compute()

    def _write_or_say_why(self) -> None:
        try:
            self.write()
        except OSError as error:
            # They are still in memory, and the next write tries again.
            logger.warning("counts of searches cannot be written: %s", error)
