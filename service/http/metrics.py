"""Prometheus metrics of one application."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from vicinal.indexer.views.view import GalleryView
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.matcher.answers import Answer

__all__ = ["Metrics"]

_BUCKETS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Metrics:
    """Counters and histograms, in a registry of their own.

    Args:
        bundles: Bundles of the process; what is said of that of the settings is said once it is open.
    """

    def __init__(self, bundles: ServedBundles) -> None:
        self._bundles = bundles
        self.registry = CollectorRegistry()
        self._stages = Histogram(
            "vicinal_stage_seconds",
            "Time a search spends in each stage",
            ["stage"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._answers = Counter(
            "vicinal_answers", "Answers by outcome", ["gallery", "outcome"], registry=self.registry
        )
        self._problems = Counter("vicinal_problems", "Refused requests", ["type"], registry=self.registry)
        self._items = Gauge(
            "vicinal_gallery_items", "Items in a gallery", ["gallery"], registry=self.registry
        )
        self._staleness = Gauge(
            "vicinal_gallery_graph_staleness",
            "Share of the items that changed since the neighbor lists of all items were made",
            ["gallery"],
            registry=self.registry,
        )
        self._embedder = Gauge(
            "vicinal_embedder_info",
            "Device and bundle in use",
            ["provider", "bundle"],
            registry=self.registry,
        )
        self._refiner = Gauge(
            "vicinal_refiner_info",
            "Refiner of the bundle, and what is refined where a search does not say",
            ["refiner", "refine"],
            registry=self.registry,
        )

    def record(self, answers: Sequence[Answer], view: GalleryView) -> None:
        """Count the answers of one call and the time by stage, and note the state that was searched."""
        for answer in answers:
            self._answers.labels(answer.gallery, _outcome(answer)).inc()
        if answers:
            self._items.labels(answers[0].gallery).set(len(view))
            self._staleness.labels(answers[0].gallery).set(view.graph_staleness)
            self._observe(answers[0].milliseconds)

    def record_problem(self, kind: str) -> None:
        """Count a refused request by the last part of its problem type."""
        self._problems.labels(kind).inc()

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        own = self._bundles.own_if_open
        if own is not None:
            self._embedder.labels(own.embedder.provider, own.bundle.fingerprint).set(1)
        if own is not None and own.refiner is not None:
            self._refiner.labels(own.refiner.fingerprint, own.pipeline.refine.sides).set(1)
        return generate_latest(self.registry)

    def _observe(self, milliseconds: Mapping[str, float]) -> None:
        for stage, spent in milliseconds.items():
            self._stages.labels(stage).observe(spent / 1e3)


def _outcome(answer: Answer) -> str:
    if answer.no_match is None:
        return "undecided"
    return "no_match" if answer.no_match else "match"
