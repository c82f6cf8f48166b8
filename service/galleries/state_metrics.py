"""State of the galleries as Prometheus metrics, looked up when they are asked for without opening any."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, get_args
from weakref import WeakKeyDictionary

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from vicinal.indexer.engines import ENGINE
from vicinal.indexer.errors import IndexerError
from vicinal.indexer.jobs.retention import created_at
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.service.answering.store import SearchStore
from vicinal.service.errors import CalibrationRecordError
from vicinal.service.galleries.open_galleries import IntegrityState, OpenGalleries
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.search.answers import CalibrationState

logger = logging.getLogger(__name__)

# What each says, and its labels.
_GAUGES = {
    "vicinal_gallery_items": ("Items in a gallery", "gallery"),
    "vicinal_gallery_graph_staleness": (
        "Share of the items that changed since all lists were made",
        "gallery",
    ),
    "vicinal_gallery_index_age_seconds": ("Time since the active version was made", "gallery"),
    "vicinal_gallery_integrity": ("1 for what is known of a gallery's files", "gallery", "state"),
    "vicinal_gallery_calibration": ("1 for the state of the threshold of usual searches", "gallery", "state"),
    "vicinal_gallery_kept_searches": ("Searches that are kept to be asked about", "gallery"),
    "vicinal_gallery_kept_searches_bytes": ("Bytes of kept searches on the disk", "gallery"),
    "vicinal_engine_up": ("Whether an engine answers, as far as was asked", "engine"),
}


class GalleryStateMetrics:
    """Collector of what is known of each gallery; of one that is not open only the state of its files."""

    def __init__(self, galleries: OpenGalleries) -> None:
        self._galleries = galleries
        # What the report of a version says does not change.
        self._made: WeakKeyDictionary[Snapshot, datetime] = WeakKeyDictionary()

    def collect(self) -> Iterable[Metric]:
        """All series."""
        of: dict[str, Any] = {
            name: GaugeMetricFamily(name, told, labels=labels) for name, (told, *labels) in _GAUGES.items()
        }
        failures = CounterMetricFamily(
            "vicinal_engine_failures", "Questions that an engine did not answer", labels=["engine"]
        )
        engine = self._galleries.bundles.engine
        if engine.address is not None:
            of["vicinal_engine_up"].add_metric([ENGINE], float(engine.problem is None))
            failures.add_metric([ENGINE], engine.n_failures)
        for name in self._galleries.names():
            n_kept, n_bytes = SearchStore(self._galleries.path / name).readable
            if n_kept:
                of["vicinal_gallery_kept_searches"].add_metric([name], n_kept)
                of["vicinal_gallery_kept_searches_bytes"].add_metric([name], n_bytes)
            integrity = self._galleries.integrity.state(name).state
            _add_states(of["vicinal_gallery_integrity"], name, get_args(IntegrityState), integrity)
            matcher = self._galleries.opened(name)
            if matcher is None or not _is_readable(matcher):
                continue
            of["vicinal_gallery_items"].add_metric([name], len(matcher.view))
            of["vicinal_gallery_graph_staleness"].add_metric([name], matcher.view.graph_staleness)
            with _told(name):
                of["vicinal_gallery_index_age_seconds"].add_metric(
                    [name], (datetime.now(UTC) - self._made_at(matcher)).total_seconds()
                )
            with _told(name):
                threshold = matcher.thresholds.in_force(matcher.active_pipeline.pipeline)
                states = get_args(CalibrationState)
                _add_states(of["vicinal_gallery_calibration"], name, states, threshold.state)
        return *of.values(), failures

    def _made_at(self, matcher: Matcher) -> datetime:
        """Time when the version under a matcher was made."""
        snapshot = matcher.snapshot
        if snapshot not in self._made:
            self._made[snapshot] = created_at(matcher.gallery, snapshot.manifest.version)
        return self._made[snapshot]


def _is_readable(matcher: Matcher) -> bool:
    """Tell whether the gallery's pointer still lets it be searched; what is open may be the past."""
    try:
        return matcher.gallery.activation is not None
    except IndexerError:
        return False


@contextmanager
def _told(gallery: str) -> Iterator[None]:
    """Leave out what cannot be read; /readyz, or a search, says why."""
    try:
        yield
    except (IndexerError, CalibrationRecordError, OSError) as error:
        logger.debug("gallery '%s' cannot be looked at: %s", gallery, error)


def _add_states(family: Any, gallery: str, states: Iterable[str], present: str) -> None:
    for state in states:
        family.add_metric([gallery, state], float(state == present))
