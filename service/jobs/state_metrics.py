"""Jobs as Prometheus metrics, counted when they are asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import product
from typing import get_args

from prometheus_client.core import GaugeMetricFamily

from vicinal.service.errors import JobsUnavailableError
from vicinal.service.jobs.records import JobState
from vicinal.service.jobs.store import JobStore


class JobStateMetrics:
    """A collector of the jobs that the store remembers, by kind and state."""

    def __init__(self, store: JobStore, kinds: Iterable[str]) -> None:
        self._store = store
        self._kinds = tuple(kinds)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """All series; none while the store does not answer."""
        jobs = GaugeMetricFamily(
            "vicinal_jobs",
            "Jobs by kind and state; finished ones are forgotten later",
            labels=["kind", "state"],
        )
        try:
            found = Counter((job.kind, job.state) for job in self._store.all())
        except JobsUnavailableError:
            return [jobs]
        for kind, state in sorted({*product(self._kinds, get_args(JobState)), *found}):
            jobs.add_metric([kind, state], found[kind, state])
        return [jobs]
