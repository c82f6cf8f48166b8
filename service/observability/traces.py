"""Traces: one span a request, with its stages, sent to an OpenTelemetry collector where one is named."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from vicinal.models.errors import MissingPackageError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
    from opentelemetry.trace import Span, Tracer

logger = logging.getLogger(__name__)
# Any of these names a collector; they and all others that begin so are read by OpenTelemetry's own packages.
_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_SERVICE = "vicinal"
# What a client sends of its own trace, https://www.w3.org/TR/trace-context/.
_CARRIED = ("traceparent", "tracestate")
# For what is not yet sent, when the server stops.
_END_SECONDS = 2.0


def open_traces() -> Traces | None:
    """Maker of spans, where the environment names a collector; else None."""
    named = next((name for name in _VARIABLES if os.environ.get(name)), None)
    if named is None:
        return None
    try:
        return Traces()
    except ImportError as error:
        raise MissingPackageError("opentelemetry-exporter-otlp-proto-http", "otel", named) from error


class Traces:
    """Makes spans, and sends them in the background; the collector's address is in the environment."""

    def __init__(self) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        resource = Resource.create()
        if str(resource.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
            resource = resource.merge(Resource({SERVICE_NAME: _SERVICE}))
        self._exporter = _ToldOnce(OTLPSpanExporter())
        # What is left at the end is sent by `close`, which does not wait for a collector that is away.
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(cast("SpanExporter", self._exporter)))
        self._tracer = self._provider.get_tracer(_SERVICE)
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, method: str, headers: Mapping[str, str], request: str) -> RequestSpan:
        """Begin the span of a request, in the trace that its client names."""
        from opentelemetry.trace import SpanKind

        carried = {name: headers[name] for name in _CARRIED if name in headers}
        span = self._tracer.start_span(
            method,
            context=self._propagator.extract(carried),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": method, "vicinal.request_id": request},
        )
        return RequestSpan(self._tracer, span, method)

    def close(self) -> None:
        """Send what is left, and give up after some seconds; later spans are dropped."""
        closing = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        closing.start()
        closing.join(_END_SECONDS)
        if closing.is_alive():
            # It would try again and again.
            self._exporter.shutdown()


class _ToldOnce(logging.Handler):
    """An exporter that says once that its collector is away, and once that it is back."""

    def __init__(self, exporter: SpanExporter) -> None:
        super().__init__()
        self._exporter = exporter
        self._reason = ""
        self._is_away = False
        self.shutdown = exporter.shutdown
        self.force_flush = exporter.force_flush
        its_logger = logging.getLogger(type(exporter).__module__)
        its_logger.addHandler(self)
        its_logger.propagate = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans; those that cannot be sent are lost."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        try:
            result = self._exporter.export(spans)
        except Exception as error:
            # Version 1.35 raises what its connection does, and the SDK would log a traceback each time.
            result, self._reason = SpanExportResult.FAILURE, str(error)
        was_away, self._is_away = self._is_away, result.name != "SUCCESS"
        if self._is_away and not was_away:
            logger.warning("the collector of traces takes no spans, they are lost: %s", self._reason)
        elif was_away and not self._is_away:
            logger.warning("the collector of traces takes spans again")
        return result

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what the exporter says."""
        self._reason = record.getMessage()


class RequestSpan:
    """The span of one request; the id of its trace has 32 hexadecimal digits."""

    def __init__(self, tracer: Tracer, span: Span, method: str) -> None:
        self._tracer = tracer
        self._span = span
        self._method = method
        self.trace_id = f"{span.get_span_context().trace_id:032x}"

    def add_stages(self, milliseconds: Mapping[str, float]) -> None:
        """Add the stages of a search that is over, one after the other up to now: no start was measured."""
        from opentelemetry.trace import set_span_in_context

        parent = set_span_in_context(self._span)
        begin = time.time_ns() - round(1e6 * sum(milliseconds.values()))
        for stage, spent in milliseconds.items():
            end = begin + round(1e6 * spent)
            self._tracer.start_span(stage, context=parent, start_time=begin).end(end)
            begin = end

    def end(self, route: str, status: int | None, *, gallery: str | None = None) -> None:
        """End the span; `status` is None where the client was gone before there was an answer."""
        from opentelemetry.trace import StatusCode

        self._span.update_name(f"{self._method} {route}")
        self._span.set_attribute("http.route", route)
        if gallery is not None:
            self._span.set_attribute("vicinal.gallery", gallery)
        if status is not None:
            self._span.set_attribute("http.response.status_code", status)
        if status is not None and status >= 500:
            self._span.set_attribute("error.type", str(status))
            self._span.set_status(StatusCode.ERROR)
        self._span.end()
