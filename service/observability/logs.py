"""Logs: every line of the process, from whichever package, as JSON or for a person, with its request's id."""

from __future__ import annotations

import logging
import random
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Literal

import structlog

from vicinal.service.observability.background_stream import BackgroundStream

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "json", "console"]
# Ids of requests are no secrets; to ask the system for each costs more than to make it.
_RANDOM = random.Random()
# Nothing that could begin a line of its own, or be taken for another field.
_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
# What other packages say in the course of things.
_CHATTY = ("faiss.loader", "httpcore", "httpx", "huey", "PIL", "lance", "filelock")


def configure_logs(level: LogLevel = "info", form: LogFormat = "auto", *, to: IO[str] | None = None) -> None:
    """Send all logs of the process to one place in one form; to standard error when `to` is None."""
    stream = sys.stderr if to is None else to
    is_console = form == "console" or (form == "auto" and stream.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    last: list[structlog.typing.Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta]
    if is_console:
        last.append(structlog.dev.ConsoleRenderer(colors=stream.isatty()))
    else:
        last += [structlog.processors.EventRenamer("message"), structlog.processors.JSONRenderer(default=str)]
    handler = BackgroundStream(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=last, keep_exc_info=False)
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))


def request_id_of(sent: str | None) -> str:
    """Id of a request: what its client sent where that is one, else a new one."""
    return sent if sent is not None and _REQUEST_ID.fullmatch(sent) else f"{_RANDOM.getrandbits(64):016x}"


@contextmanager
def with_request_id(request: str, trace: str | None = None) -> Iterator[None]:
    """Let all that is logged meanwhile, in threads that a request is handed to as well, name the request."""
    named = {"request_id": request} if trace is None else {"request_id": request, "trace_id": trace}
    with structlog.contextvars.bound_contextvars(**named):
        yield


def request_id() -> str | None:
    """Id of the request that is answered here; None outside of one."""
    found = structlog.contextvars.get_contextvars().get("request_id")
    return None if found is None else str(found)
