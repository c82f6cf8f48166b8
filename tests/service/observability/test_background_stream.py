"""Logs that nobody reads stop nothing, and are not kept without an end."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import IO

import pytest

from vicinal.service.observability import logs
from vicinal.service.observability.logs import configure_logs


@pytest.fixture
def pipe() -> Iterator[tuple[IO[str], IO[str]]]:
    """Both ends of a pipe: for who reads, and for who writes."""
    reading, writing = os.pipe()
    with os.fdopen(reading, encoding="utf-8") as reader, os.fdopen(writing, "w", encoding="utf-8") as writer:
        yield reader, writer


@pytest.mark.slow
def test_who_logs_does_not_wait_for_who_reads(
    pipe: tuple[IO[str], IO[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = pipe
    monkeypatch.setattr(logs, "_MOST_LINES", 1_000)
    configure_logs("info", "json", to=writer)
    logger = logging.getLogger("vicinal.some")
    logging_it = threading.Thread(
        target=lambda: [logger.info("a line of the log, number %s", n) for n in range(5_000)], daemon=True
    )
    logging_it.start()
    logging_it.join(60)
    assert not logging_it.is_alive()
    (handler,) = logging.getLogger().handlers
    lines: list[str] = []
    reading = threading.Thread(target=lambda: lines.extend(reader))
    reading.start()
    handler.flush()
    logger.info("the last one")
    handler.close()
    writer.close()
    reading.join()
    told = [json.loads(line)["message"] for line in lines]
    lost = [int(line.split()[0]) for line in told if "were lost" in line]
    assert lost
    # All that is not there was counted, in one line or in several.
    assert len(told) - 1 - len(lost) + sum(lost) == 5_000
    assert told[-1] == "the last one"


@pytest.mark.slow
def test_a_process_ends_though_nobody_reads(pipe: tuple[IO[str], IO[str]]) -> None:
    program = (
        "import logging; from vicinal.service.observability.logs import configure_logs;"
        "configure_logs('info', 'json'); [logging.getLogger('vicinal').info('x' * 90) for n in range(5000)]"
    )
    ended = subprocess.run([sys.executable, "-c", program], stderr=pipe[1], check=False, timeout=120)
    assert ended.returncode == 0
