"""Logs: one object a line with the id of its request, whoever logs, and never what a client made up."""

from __future__ import annotations

import io
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.service.observability.logs import (
    configure_logs,
    request_id,
    request_id_of,
    with_request_id,
)


def written(stream: io.StringIO) -> str:
    """What has been logged; a thread writes it."""
    for handler in logging.getLogger().handlers:
        handler.flush()
    return stream.getvalue()


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in written(stream).splitlines()]


@pytest.fixture
def stream() -> io.StringIO:
    found = io.StringIO()
    configure_logs("info", "json", to=found)
    return found


def test_a_line_is_an_object_with_level_logger_and_time(stream: io.StringIO) -> None:
    logging.getLogger("vicinal.some").warning("gallery '%s' is away", "shoes")
    (line,) = lines(stream)
    assert (line["message"], line["level"], line["logger"]) == (
        "gallery 'shoes' is away",
        "warning",
        "vicinal.some",
    )
    assert line["timestamp"].endswith("Z")


def test_a_line_names_its_request_also_in_a_thread(stream: io.StringIO) -> None:
    with with_request_id("abc"), ThreadPoolExecutor(1) as pool:
        pool.submit(copy_context().run, logging.getLogger("vicinal").info, "inside").result()
        assert request_id() == "abc"
    logging.getLogger("vicinal").info("outside")
    assert [line.get("request_id") for line in lines(stream)] == ["abc", None]
    assert request_id() is None


@pytest.mark.parametrize(
    "sent", [None, "", "-a", "a b", "a\nb", "a\r\nSet-Cookie: b", "ä", "x" * 65, "a\x00", "a\n"]
)
def test_another_one_is_replaced(sent: str | None) -> None:
    made = request_id_of(sent)
    assert (made == sent, len(made)) == (False, 16)


@pytest.mark.slow
@given(st.text())
def test_no_text_makes_two_lines_or_a_header(sent: str) -> None:
    assert request_id_of(sent).isascii()
    assert request_id_of(sent).isprintable()
    assert " " not in request_id_of(sent)
