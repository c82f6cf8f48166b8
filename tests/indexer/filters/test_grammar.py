"""Grammar of filters: what is refused, and what the refusal says."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.indexer.filters.hostile import NO_FILTERS, hostile_filters
from vicinal.indexer.errors import FilterError
from vicinal.indexer.filters.expressions import And, Field, Not, OneOf, Or
from vicinal.indexer.filters.grammar import ALLOWED, MOST_CHARACTERS, parse


@pytest.mark.parametrize("number", range(len(NO_FILTERS)))
def test_what_is_no_filter_is_refused_in_a_sentence(number: int) -> None:
    with pytest.raises(FilterError) as caught:
        parse(NO_FILTERS[number])
    assert 10 < len(caught.value.reason) < 600


def test_the_corpus_is_as_large_as_it_claims() -> None:
    refused = []
    for text in hostile_filters(400):
        try:
            parse(text)
        except FilterError:
            refused.append(text)
    assert len(NO_FILTERS) >= 120
    assert len(refused) >= 350


@given(st.text(max_size=60))
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    with suppress(FilterError):
        parse(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("price < 50", "there is no field `price`, did you mean `metadata.price`?"),
        (
            "id = 'a' AND labels = 'b'",
            "at character 14, `labels = 'b'`: there is no field `labels`, did you mean `label",
        ),
        ("meta.size = 1", "did you mean `metadata.size`"),
        ("uri = 'a'", ALLOWED[1:]),
        ("length(id) > 5", "at character 7, `(id) > 5`: there are no functions such as `length`"),
        ("json_get_int(metadata, 'price') > 5", "write `metadata.price`"),
        ('label = "shoe"', "texts stand in single quotes: 'shoe'"),
        ("label = shoe", "texts stand in single quotes: 'shoe'"),
        ("label == 'a'", "equality is written ="),
        ("label = 'a' && id = 'b'", "write AND"),
        ("label = NULL", "IS NULL"),
        ("label = 5", "write '5'"),
        ("metadata.list-price < 5", 'metadata."list-price"'),
        ("metadata['price'] < 5", "fields are written `metadata.price`"),
        ("label = 'a", "a text ends with a single quote"),
        ("(label = 'a'", "at its end: expected )"),
        ("metadata.a < true", "no order"),
        ("metadata.a = DATE '2024-02-30'", "DATE '2026-01-31'"),
        ("metadata.a = 1e999", "too large"),
        ("label LIKE 'a\\b'", "a backslash"),
        ("id LIKE '" + "%a" * 17 + "' OR id NOT LIKE '" + "%b" * 16 + "'", "more than 32 signs % in all"),
        ("id LIKE '" + "_" * 6 + "' AND NOT id LIKE '" + "_" * 5 + "'", "more than 10 signs _ in all"),
        ("x" * (MOST_CHARACTERS + 1), "4,097 characters, at most 4,096"),
        ("(" * 17 + "id = 'a'" + ")" * 17, "more than 16 deep"),
        (" OR ".join(["id = 'a'"] * 65), "more than 64 comparisons"),
    ],
)
def test_a_refusal_says_where_and_what_was_meant(text: str, reason: str) -> None:
    with pytest.raises(FilterError) as caught:
        parse(text)
    assert reason in caught.value.reason


def test_the_largest_that_is_allowed_is_read() -> None:
    """Negative control of the limits."""
    parse("(" * 16 + "id = 'a'" + ")" * 16)
    parse(" OR ".join(["id = 'a'"] * 64))
    parse(f"id = '{'x' * (MOST_CHARACTERS - 7)}'")
    parse("id LIKE '" + "%a" * 16 + "' OR NOT id LIKE '" + "_%" * 10 + r"\_\%" * 9 + "'")


def test_and_binds_closer_than_or_and_not_closest() -> None:
    a, b, c = (OneOf(Field(("id",)), (one,)) for one in "abc")
    assert parse("id = 'a' OR NOT id = 'b' AND id = 'c'") == Or((a, And((Not(b), c))))


@pytest.mark.parametrize(
    "text", ["metadata.in = 1", "metadata.not = 1", "metadata.date = 1", "metadata.2024 = 1"]
)
def test_words_of_the_language_are_names_of_metadata(text: str) -> None:
    assert parse(text) == OneOf(Field(("metadata", text.split(".")[1].split()[0])), (1,))
