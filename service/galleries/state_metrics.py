"""State of the galleries as Prometheus metrics, looked up when they are asked for without opening any."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import get_args
from weakref import WeakKeyDictionary

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from vicinal.indexer.errors import IndexerError
from vicinal.indexer.jobs.retention import created_at
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.service.answering.store import SearchStore
from vicinal.service.errors import CalibrationRecordError
from vicinal.service.galleries.open_galleries import IntegrityState, OpenGalleries
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.search.answers import CalibrationState

logger = logging.getLogger(__name__)


class GalleryStateMetrics:
    """Collector of what is known of each gallery; of one that is not open only the state of its files."""

    def __init__(self, galleries: OpenGalleries) -> None:
        self._galleries = galleries
        # What the report of a version says does not change.
        self._made: WeakKeyDictionary[Snapshot, datetime] = WeakKeyDictionary()

    def collect(self) -> Iterable[Metric]:
        """All series."""
        items = GaugeMetricFamily("vicinal_gallery_items", "Items in a gallery", labels=["gallery"])
        staleness = GaugeMetricFamily(
            "vicinal_gallery_graph_staleness",
            "Share of the items that changed since the neighbor lists of all items were made",
            labels=["gallery"],
        )
        table = GaugeMetricFamily(
            "vicinal_gallery_table_changed",
            "1 where the team's table that a gallery was read from has changed since",
            labels=["gallery"],
        )
        age = GaugeMetricFamily(
            "vicinal_gallery_index_age_seconds", "Time since the active version was made", labels=["gallery"]
        )
        integrity = GaugeMetricFamily(
            "vicinal_gallery_integrity",
            "1 for what is known of a gallery's files",
            labels=["gallery", "state"],
        )
        calibration = GaugeMetricFamily(
            "vicinal_gallery_calibration",
            "1 for the state of the threshold of searches without further options",
            labels=["gallery", "state"],
        )
        kept = GaugeMetricFamily(
            "vicinal_gallery_kept_searches", "Searches that are kept to be asked about", labels=["gallery"]
        )
        kept_bytes = GaugeMetricFamily(
            "vicinal_gallery_kept_searches_bytes", "Bytes of kept searches on the disk", labels=["gallery"]
        )
        up = GaugeMetricFamily(
            "vicinal_engine_up", "Whether an engine answers, as far as was asked", labels=["engine"]
        )
        failures = CounterMetricFamily(
            "vicinal_engine_failures", "Questions that an engine did not answer", labels=["engine"]
        )
        for engine in self._galleries.bundles.engines.states:
            up.add_metric([engine.engine], float(engine.problem is None))
            failures.add_metric([engine.engine], engine.n_failures)
        for name in self._galleries.names():
            searches = SearchStore(self._galleries.path / name)
            if searches.exists and (n_kept := searches.n_readable) is not None:
                kept.add_metric([name], n_kept)
                kept_bytes.add_metric([name], searches.n_bytes)
            _add_states(
                integrity, name, get_args(IntegrityState), self._galleries.integrity.state(name).state
            )
            matcher = self._galleries.opened(name)
            if matcher is None or not _is_readable(matcher):
                continue
            items.add_metric([name], len(matcher.view))
            staleness.add_metric([name], matcher.view.graph_staleness)
            if (watch := matcher.thresholds.watch) is not None:
                table.add_metric([name], float(watch.change is not None))
            with _told(name):
                age.add_metric([name], (datetime.now(UTC) - self._made_at(matcher)).total_seconds())
            with _told(name):
                threshold = matcher.thresholds.in_force(matcher.active_pipeline.pipeline)
                _add_states(calibration, name, get_args(CalibrationState), threshold.state)
        return items, staleness, table, age, integrity, calibration, kept, kept_bytes, up, failures

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


def _add_states(family: GaugeMetricFamily, gallery: str, states: Iterable[str], present: str) -> None:
    for state in states:
        family.add_metric([gallery, state], float(state == present))
