"""Traces: a span a request with its stages reaches a collector; without one nothing is made."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from structlog.contextvars import get_contextvars

from tests.service.types import MakeSettings
from tests.waiting import SECONDS, wait_until
from vicinal.service.http.app import create_app
from vicinal.service.http.state import state_of
from vicinal.service.observability import traces
from vicinal.service.observability.traces import Traces

SEARCH = "/v1/galleries/shoes/search"
ITEM = {"item_id": "plain/view 0.png"}
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SERVER, OK, ERROR = 2, 0, 2


class Collector(ThreadingHTTPServer):
    """Takes spans over OTLP/HTTP, and decodes them.

    Attributes:
        spans: All that came.
        services: Names of the services that sent them.
        status: What it answers.
    """

    daemon_threads = True

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.services: set[str] = set()
        self.status = 200
        super().__init__(("127.0.0.1", 0), _Taker)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def named(self, name: str) -> Any:
        (found,) = (span for span in self.spans if span.name == name)
        return found


class _Taker(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        assert (self.path, self.headers["Content-Type"]) == ("/v1/traces", "application/x-protobuf")
        body = self.rfile.read(int(self.headers["Content-Length"]))
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.server.services.add(attributes_of(resource.resource)["service.name"])
            self.server.spans += [span for scope in resource.scope_spans for span in scope.spans]
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_arguments: object) -> None:
        pass


def attributes_of(part: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in part.attributes}


@pytest.fixture(autouse=True)
def no_outer_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_SERVICE_NAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", f"{SECONDS:.0f}")
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def client(collector: Collector, calibrated_dir: Path, make_settings: MakeSettings) -> Iterator[TestClient]:
    client = TestClient(create_app(make_settings(calibrated_dir)), raise_server_exceptions=False)
    yield client
    # Else it goes on sending, to a collector that is gone.
    traces_of(client).close()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Warnings and errors that are logged of traces."""
    told: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.addFilter(logging.Filter(traces.__name__))
    handler.emit = lambda record: told.append(record.getMessage())  # type: ignore[method-assign]
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [*root.handlers, handler])
    return told


def traces_of(client: TestClient) -> Traces:
    found = state_of(client.app).traces  # type: ignore[arg-type]
    assert found is not None
    return found


def send_all(client: TestClient) -> None:
    """As the background does every few seconds."""
    traces_of(client)._provider.force_flush()


@pytest.mark.slow
def test_a_search_is_a_span_with_its_stages(client: TestClient, collector: Collector) -> None:
    answer = client.post(SEARCH, json=ITEM, headers={"X-Request-ID": "my-id"})
    send_all(client)
    span = collector.named("POST /v1/galleries/{gallery}/search")
    assert attributes_of(span) == {
        "http.request.method": "POST",
        "http.route": "/v1/galleries/{gallery}/search",
        "http.response.status_code": 200,
        "vicinal.request_id": "my-id",
        "vicinal.gallery": "shoes",
    }
    assert (span.kind, span.status.code, collector.services) == (SERVER, OK, {"vicinal"})
    children = [one for one in collector.spans if one.parent_span_id == span.span_id]
    took = {one.name: (one.end_time_unix_nano - one.start_time_unix_nano) / 1e6 for one in children}
    assert took == pytest.approx(answer.json()["milliseconds"], abs=1e-5)
    assert {one.trace_id for one in children} == {span.trace_id}


def test_lines_of_the_log_name_the_trace(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    named = []
    handler = logging.Handler()
    handler.emit = lambda _: named.append(get_contextvars().get("trace_id"))  # type: ignore[method-assign]
    logger = logging.getLogger("vicinal.access")
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "level", logging.INFO)
    client.get("/v1/galleries", headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})
    assert named == [TRACE]


@pytest.mark.slow
def test_a_collector_that_is_away_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, calibrated_dir: Path, make_settings: MakeSettings
) -> None:
    with Collector() as gone:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", gone.url)
    monkeypatch.setattr(traces, "_END_SECONDS", 0.0)
    with TestClient(create_app(make_settings(calibrated_dir))) as client:
        assert client.post(SEARCH, json=ITEM).status_code == 200
    wait_until(lambda: "last spans" not in {thread.name for thread in threading.enumerate()})
