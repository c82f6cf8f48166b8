"""Rules of items: what is refused, and what is served of what was stored before there were rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.indexer.errors import ItemRefusedError
from vicinal.indexer.item_rules import checked_id, checked_metadata, checked_uri, id_of_path
from vicinal.indexer.views.snapshot import served_metadata


def nested(depth: int) -> dict[str, Any]:
    value: Any = 1
    for n in range(depth):
        value = {"a": value} if n % 2 == 0 or n == depth - 1 else [value]
    return dict(value)


@pytest.mark.parametrize(
    "item_id", ["", "a\nb", "a\rb", "\0", "a\tb", "\x7f", "\x85", "\u2028", "\ud800", "x" * 1025], ids=ascii
)
def test_ids_that_cannot_be_read_again_are_refused_on_one_line(item_id: str) -> None:
    with pytest.raises(ItemRefusedError) as caught:
        checked_id(item_id)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "item_id",
    [
        *("..", ".", "../../other", "a/../b", "a/..", "./a", "a/./b", "/..", "a//../b"),
        *("%2e%2e", "a/%2E./b", ".%2e/a", "%252e%252e/a", "..%2fa", "a%5C..%5cb", "..\\a", "a\\..\\..\\b"),
    ],
)
def test_ids_that_shorten_an_address_are_refused(item_id: str) -> None:
    with pytest.raises(ItemRefusedError, match="holds the segment"):
        checked_id(item_id)


@pytest.mark.parametrize(
    ("path", "item_id"),
    [
        ("../photos/1.jpg", "photos/1.jpg"),
        ("./1.jpg", "1.jpg"),
        ("a/../b/./1.jpg", "b/1.jpg"),
        ("../../1.jpg", "1.jpg"),
        ("/data/../1.jpg", "/1.jpg"),
        ("https://host/a//1.jpg", "https://host/a//1.jpg"),
        ("a..b/1.jpg", "a..b/1.jpg"),
        ("", ""),
    ],
)
def test_the_id_of_a_path_has_no_segments_that_shorten_an_address(path: str, item_id: str) -> None:
    assert id_of_path(path) == item_id


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        (nested(33), "nested more than 32 deep"),
        (nested(5000), "nested more than 32 deep"),
        ({"a": "x" * 65536}, "at most 65,536 are kept"),
        ({"a": "é" * 32768}, "at most 65,536 are kept"),
        ({str(n): n for n in range(10_000)}, "at most 65,536 are kept"),
        ({"a": float("nan")}, "are no JSON"),
        ({"a": [float("-inf")]}, "are no JSON"),
        ({"a": "\ud800"}, "half of a character"),
        ({"\udfff": 1}, "half of a character"),
        ({"a": ["x\0"]}, "NUL"),
        ({"\0": {}}, "NUL"),
        ({"a": {1, 2}}, "are no JSON"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_metadata_that_no_answer_could_carry_are_refused(metadata: dict[str, Any], reason: str) -> None:
    with pytest.raises(ItemRefusedError, match=reason) as caught:
        checked_metadata(metadata, "some id")
    assert "'some id'" in str(caught.value)


@pytest.mark.parametrize(
    "metadata",
    [{}, nested(32), {"a": "x" * 65_000}, {"a": "é\\u0000 is written so"}, {"a": None, "b": [1e308]}],
)
def test_metadata_up_to_the_limits_are_kept_and_served_whole(metadata: dict[str, Any]) -> None:
    """Negative control of the refusals."""
    assert served_metadata(checked_metadata(metadata, "a")) == metadata


@given(
    st.dictionaries(
        st.text(max_size=3), st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5)
    )
)
def test_what_is_not_refused_is_served_as_it_was(metadata: dict[str, Any]) -> None:
    try:
        text = checked_metadata(metadata, "a")
    except ItemRefusedError:
        return
    assert served_metadata(text) == metadata


@pytest.mark.parametrize("uri", ["a\0b", "/photos/\0.jpg", "\0", "a/b\0"])
def test_no_path_holds_nul_which_no_system_would_open(uri: str) -> None:
    with pytest.raises(ItemRefusedError, match="the uri of 'a' holds the character NUL"):
        checked_uri(uri, "a")
    assert checked_uri(uri.replace("\0", ""), "a") == uri.replace("\0", "")
