"""Prometheus metrics of one application."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector

from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.observability.shared_counts import counts_folder
from vicinal.service.search.answers import Answer

_BUCKETS = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_MOST_GALLERIES = 200
_OTHERS = "others"


class Metrics:
    """Counters and histograms of a server's processes, and `states` of the process that answers."""

    def __init__(self, bundles: ServedBundles) -> None:
        self.registry = CollectorRegistry()
        self.states = CollectorRegistry()
        self.states.register(_OpenBundle(bundles))
        self._names = BoundedNames()
        self._requests = Histogram(
            "vicinal_http_request_seconds",
            "Time from a request's head to the end of its answer",
            ["method", "route", "status"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._waits = Histogram(
            "vicinal_queue_wait_seconds",
            "Time that searches wait for a thread",
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._batches = Histogram(
            "vicinal_batch_size",
            "Searches that a thread takes together",
            buckets=_SIZES,
            registry=self.registry,
        )
        self._stages = Histogram(
            "vicinal_stage_seconds",
            "Time a search spends in each stage",
            ["gallery", "stage"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._answers = Counter(
            "vicinal_answers", "Answers by outcome", ["gallery", "outcome"], registry=self.registry
        )
        self._problems = Counter("vicinal_problems", "Refused requests", ["type"], registry=self.registry)

    def record_request(self, method: str, route: str, status: int | None, seconds: float) -> None:
        """Count a request; `status` is None where the client was gone before there was an answer."""
        self._requests.labels(method, route, "none" if status is None else str(status)).observe(seconds)

    def record_batch(self, waits: Sequence[float]) -> None:
        """Count searches that a thread takes together."""
        self._batches.observe(len(waits))
        for seconds in waits:
            self._waits.observe(seconds)

    def record(self, answers: Sequence[Answer]) -> None:
        """Count the answers of one call and the time by stage."""
        if not answers:
            return
        gallery = self._names.of(answers[0].gallery)
        for answer in answers:
            self._answers.labels(gallery, _outcome(answer)).inc()
        for stage, spent in answers[0].milliseconds.items():
            self._stages.labels(gallery, stage).observe(spent / 1e3)

    def record_problem(self, kind: str) -> None:
        """Count a refused request by the last part of its problem type."""
        self._problems.labels(kind).inc()

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        counted, folder = self.registry, counts_folder()
        if folder is not None:
            counted = CollectorRegistry()
            MultiProcessCollector(counted, str(folder))
        return generate_latest(counted) + generate_latest(self.states)


class _OpenBundle:
    """The bundle of the settings, looked up when the metrics are asked for."""

    def __init__(self, bundles: ServedBundles) -> None:
        self._bundles = bundles

    def collect(self) -> list[GaugeMetricFamily]:
        """Collect what is in use."""
        embedder = GaugeMetricFamily(
            "vicinal_embedder_info", "Device and bundle in use", labels=["provider", "bundle"]
        )
        refiner = GaugeMetricFamily(
            "vicinal_refiner_info",
            "Refiner of the bundle, and what is refined where a search does not say",
            labels=["refiner", "refine"],
        )
        own = self._bundles.own_if_open
        if own is not None:
            embedder.add_metric([own.embedder.provider, own.bundle.fingerprint], 1.0)
        if own is not None and own.refiner is not None:
            refiner.add_metric([own.refiner.fingerprint, own.pipeline.refine.sides], 1.0)
        return [embedder, refiner]


class BoundedNames:
    """Names of galleries as labels, each a series for good: the first so many, and one for all others."""

    def __init__(self, most: int = _MOST_GALLERIES) -> None:
        self._most = most
        self._known: set[str] = set()

    def of(self, name: str) -> str:
        """Label of a gallery."""
        if name in self._known:
            return name
        if len(self._known) >= self._most:
            return _OTHERS
        self._known.add(name)
        return name


def _outcome(answer: Answer) -> str:
    if answer.no_match is None:
        return "undecided"
    return "no_match" if answer.no_match else "match"
