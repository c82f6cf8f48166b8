"""Report parts: headings, notes and tables of a report page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vicinal.service.reports.markup import Element, element

__all__ = ["card", "note", "rate_name", "section_head", "table"]

_NAMES = {"precision": "precision", "hit_rate_1": "R@1"}


def section_head(title: str, text: str | None = None) -> list[Element]:
    """A heading, and a sentence on what stands below it."""
    return [element("h2", title), *([] if text is None else [note(text)])]


def note(text: str) -> Element:
    """A sentence beside the figures."""
    return element("p", text, class_="note")


def card(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Element | None:
    """A table with a title; None without rows."""
    if not rows:
        return None
    return element("div", element("figcaption", title), table(headers, rows), class_="card")


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Element:
    """A table; on narrow screens each cell says what it is."""
    head = element("thead", element("tr", (element("th", one) for one in headers))) if headers else None
    return element("table", head, element("tbody", (element("tr", _cells(headers, row)) for row in rows)))


def _cells(headers: Sequence[str], row: Sequence[str]) -> Iterator[Element]:
    yield element("th", row[0], scope="row")
    for name, text in zip(headers[1:] or [""] * (len(row) - 1), row[1:], strict=True):
        yield element("td", text, data_name=name) if text else element("td", class_="empty")


def rate_name(rate: str) -> str:
    """A rate's name for people."""
    return _NAMES.get(rate, rate.upper())
