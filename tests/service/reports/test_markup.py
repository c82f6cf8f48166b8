"""Markup: whatever a text holds, a reader of HTML gets that text back and nothing else."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.service.reports.markup import element, to_html


class Reading(HTMLParser):
    """Collects tags, attributes and texts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str | None] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [value for _, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


CHARACTERS = st.characters(exclude_categories=("Cs", "Cc", "Cn"))


@given(st.text(CHARACTERS), st.text(CHARACTERS))
def test_texts_and_attributes_come_back_as_they_were(text: str, attribute: str) -> None:
    reading = Reading(to_html(element("p", element("b", text), title=attribute)))
    assert reading.tags == ["p", "b"]
    assert reading.text.strip() == text.strip()
    assert reading.attributes == [attribute]


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", '"><img src=x onerror=1>', "&lt;b&gt;", "]]>"])
def test_markup_in_a_text_stays_text(text: str) -> None:
    reading = Reading(to_html(element("p", text, title=text)))
    assert (reading.tags, reading.text.strip(), reading.attributes) == (["p"], text, [text])


def test_an_escape_that_is_left_out_would_be_noticed() -> None:
    assert Reading("<p><script>alert(1)</script></p>").tags == ["p", "script"]


def test_what_no_page_can_hold_is_replaced() -> None:
    assert "a\ufffdb\ufffd" in to_html(element("p", "a\x00b\ud800"))


def test_texts_stand_before_and_after_elements() -> None:
    assert to_html(element("p", "a", element("b", "c"), "d", None, "e")).endswith("<p>a<b>c</b>de</p>\n")


def test_names_of_attributes_are_those_of_html() -> None:
    page = to_html(element("p", class_="x", data_name="y", title=None, width=1.5))
    assert '<p class="x" data-name="y" width="1.5">' in page
