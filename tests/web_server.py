"""A web server of this machine that answers as a test tells it to, well or badly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

Answer = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class WebServer:
    """What it answers by path, and what it was asked.

    Attributes:
        port: Its port, on every address of the loopback network.
        answers: By path, with its query or without; others are 404.
        asked: Paths, in order.
    """

    port: int
    answers: dict[str, Answer] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        """Address of a path."""
        return f"http://{host}:{self.port}{path}"


def sends(body: bytes, status: int = 200, **headers: str) -> Answer:
    """Answers with a body; underscores in names of headers are dashes."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        for name, value in {"Content_Length": str(len(body)), **headers}.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)

    return answer


@contextmanager
def serving() -> Iterator[WebServer]:
    """A server on a free port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked.append(self.path)
            try:
                path = self.path if self.path in made.answers else self.path.partition("?")[0]
                made.answers.get(path, sends(b"nothing here", 404))(self)
            except (BrokenPipeError, ConnectionResetError):
                # Who reads no more than it has to hangs up.
                self.close_connection = True

        do_HEAD = do_GET  # noqa: N815  the name that is looked for

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("", 0), Handler) as server:
        server.daemon_threads = True
        made = WebServer(server.server_port)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join()
