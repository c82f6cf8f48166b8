"""Sealed JSON: it stays JSON, gives back what was sealed, and nothing that a byte was changed of."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vicinal.models.configs.sealed_json import BrokenSealError, sealed, unsealed, unsealed_if_sealed

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text().filter("sha256".__ne__), values, max_size=4)


@given(objects, st.sampled_from([None, 1, 2]))
def test_what_was_sealed_comes_back_and_is_json_meanwhile(fields: dict[str, Any], indent: int | None) -> None:
    stored = sealed(json.dumps(fields, indent=indent))
    assert json.loads(unsealed(stored)) == fields
    assert {**json.loads(stored)} == {**fields, "sha256": json.loads(stored)["sha256"]}


@given(objects, st.data())
def test_a_changed_byte_is_refused(fields: dict[str, Any], data: st.DataObject) -> None:
    stored = bytearray(sealed(json.dumps(fields)))
    place = data.draw(st.integers(0, len(stored) - 1))
    stored[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(BrokenSealError):
        unsealed(bytes(stored))


@given(objects, st.data())
def test_a_cut_file_is_refused(fields: dict[str, Any], data: st.DataObject) -> None:
    stored = sealed(json.dumps(fields))
    with pytest.raises(BrokenSealError):
        unsealed(stored[: data.draw(st.integers(0, len(stored) - 1))])


@pytest.mark.parametrize("text", ["", "[]", "5", '"a"', '{"a": 1'])
def test_only_an_object_can_be_sealed(text: str) -> None:
    with pytest.raises(ValueError, match="only an object can be sealed"):
        sealed(text)


def test_what_was_never_sealed_is_taken_where_that_is_said() -> None:
    assert unsealed_if_sealed(b'{"a": 1}') == b'{"a": 1}'
    assert unsealed_if_sealed(sealed('{"a": 1}')) == b'{"a": 1}'
    with pytest.raises(BrokenSealError):
        unsealed(b'{"a": 1}')
    with pytest.raises(BrokenSealError):
        unsealed_if_sealed(sealed('{"a": 1}').replace(b"1", b"2", 1))
