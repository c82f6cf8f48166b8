"""The module of docs/javascript.md: it comes again when it is asked to, and tells problems."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.docs_blocks import ROOT
from tests.programs import program

pytestmark = pytest.mark.slow

Answer = tuple[int, dict[str, str], bytes]
JSON = {"Content-Type": "application/json"}
PROBLEM = json.dumps(
    {"type": "urn:vicinal:problem:too-many-requests", "detail": "too many", "job": "7"}
).encode()


class Server(ThreadingHTTPServer):
    """Gives one answer after the other, and notes when each was asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[Answer] = []
        self.asked: list[tuple[float, str, str]] = []


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append((time.monotonic(), self.command, self.headers.get("Authorization", "")))
        status, headers, body = self.server.answers.pop(0)
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def printed(folder: Path, server: Server, options: str = "") -> list[object]:
    """What a program prints that asks once: the answer, or the problem."""
    node = program("node")
    page = (ROOT / "docs" / "javascript.md").read_text(encoding="utf-8")
    module = page.partition("```javascript\n")[2].partition("```")[0]
    assert module.startswith("// vicinal.mjs\n")
    (folder / "vicinal.mjs").write_text(module, encoding="utf-8")
    source = f"""
        import {{ Problem, ask }} from "./vicinal.mjs";
        const options = {{ server: "http://127.0.0.1:{server.server_address[1]}", {options} }};
        const told = (e) => [e instanceof Problem, e.status, e.kind, e.message, e.job];
        console.log(JSON.stringify(await ask("/v1/galleries", options).catch(told)));
    """
    command = [node, "--input-type=module", "-"]
    done = subprocess.run(command, input=source, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_it_comes_again_when_the_server_asks_for_it(server: Server, tmp_path: Path) -> None:
    server.answers = [(429, {"Retry-After": "1"}, PROBLEM), (200, JSON, b'{"galleries": []}')]
    assert printed(tmp_path, server, 'key: "secret"') == [{"galleries": []}]
    (first, *_), (second, *_) = server.asked
    assert second - first >= 1.0
    assert {key for *_, key in server.asked} == {"Bearer secret"}


def test_what_is_refused_is_not_sent_again(server: Server, tmp_path: Path) -> None:
    server.answers = [(409, JSON, PROBLEM), (200, JSON, b"{}")]
    assert printed(tmp_path, server)[0] == [True, 409, "too-many-requests", "too many", "7"]
    assert len(server.asked) == 1
