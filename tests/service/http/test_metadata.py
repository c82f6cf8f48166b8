"""Metadata keys of a gallery over HTTP, and the order that matches are sorted in by them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.service.types import Encode, MakeSettings, View
from vicinal.service.http.app import create_app

SHOES = "/v1/galleries/shoes"
# Of the six views of one label: numbers as such and as text, nothing, and what is no number.
PRICES: list[Any] = [30, "4.50", None, 100, "cheap", -2]


def view_of(number: int) -> str:
    return f"plain/view {number}.png"


@pytest.fixture
def client(data_dir: Path, make_settings: MakeSettings) -> Iterator[TestClient]:
    with TestClient(create_app(make_settings(data_dir))) as opened:
        for number, price in enumerate(PRICES):
            metadata = {"price": price, "on sale": number < 2, "made": {"on": f"2026-01-0{number + 1}"}}
            answered = opened.patch(f"{SHOES}/item?id={view_of(number)}", json={"metadata": metadata})
            assert answered.status_code == 200
        yield opened


def keys(client: TestClient, **params: int) -> dict[str, Any]:
    body = client.get(f"{SHOES}/metadata", params=params).json()
    return {one.pop("field"): one for one in body["keys"]}


def test_keys_tell_of_their_values(client: TestClient) -> None:
    found = keys(client)
    assert list(found)[:2] == ['metadata."on sale"', "metadata.made.on"]
    price, sale, made = found["metadata.price"], found['metadata."on sale"'], found["metadata.made.on"]
    assert (price["n_items"], price["kinds"]) == (5, {"number": 4, "text": 1})
    assert (price["low"], price["high"]) == (-2.0, 100.0)
    assert sale["values"] == [{"value": "false", "n": 4}, {"value": "true", "n": 2}]
    assert (made["kinds"], made["first_day"], made["last_day"]) == ({"date": 6}, "2026-01-01", "2026-01-06")
    assert [len(one["values"]) for one in keys(client, values=1).values()] == [1] * len(found)


def test_every_key_is_a_field_that_filters_know(client: TestClient) -> None:
    odd = {'a"b': 1, "x.y": 2, "größe": 3, "": 4, "c": {"d": {"e": 5}}}
    client.patch(f"{SHOES}/item?id={view_of(0)}", json={"metadata": odd})
    for field, key in keys(client).items():
        body = {"item_id": view_of(1), "filter": f"{field} IS NOT NULL", "threshold": 0.0, "limit": 100}
        answer = client.post(f"{SHOES}/search", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json()["n_searched"] == key["n_items"], field


def ids(client: TestClient, **options: Any) -> list[str]:
    body = {"item_id": "blé/view 0.png", "threshold": 0.0, "filter": "label = 'plain'", **options}
    answer = client.post(f"{SHOES}/search", json=body)
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["matches"]]


def test_matches_come_in_the_order_that_was_asked_for(client: TestClient) -> None:
    best = ids(client)
    assert ids(client, sort_by="score") == best
    assert ids(client, sort_by="score desc") == best[::-1]
    by_price = [view_of(one) for one in (5, 1, 0, 3, 4)]
    assert ids(client, sort_by="metadata.price") == [*by_price, view_of(2)]
    assert ids(client, sort_by="metadata.price desc") == [*by_price[::-1], view_of(2)]
    assert ids(client, sort_by="metadata.made.on DESC", limit=2) == [view_of(5), view_of(4)]
    assert ids(client, sort_by="added") == [view_of(one) for one in range(6)]
    # Equal ones stay best first.
    assert ids(client, sort_by="label") == ids(client, sort_by="label desc") == best


def test_what_is_no_order_is_refused(client: TestClient) -> None:
    for order in ("price", "metadata", "label = 'a' or label", "id", "score up", ""):
        answer = client.post(f"{SHOES}/search", json={"item_id": view_of(0), "sort_by": order})
        assert answer.status_code == 422
        assert "sort by score, added, label or metadata.NAME" in answer.json()["detail"]


def test_copies_of_a_better_item_are_marked(client: TestClient, encode: Encode, view: View) -> None:
    plain = view(0, 0)
    for name, image in (("same", encode(plain)), ("again", encode(plain, "JPEG", quality=90))):
        sent = {"image": (f"{name}.png", image, "image/png")}
        assert client.post(f"{SHOES}/items", files=sent, data={"id": name}).status_code == 200
    files = {"image": ("a.png", encode(plain), "image/png")}
    options = {"threshold": "0", "limit": "100", "mark_copies": "true"}
    found = client.post(f"{SHOES}/search", files=files, data=options).json()["matches"]
    alike = ("red shoe/view 0.png", "same", "again")
    best, *others = [one for one in found if one["id"] in alike]
    assert best["copy_of"] is None
    assert [one["copy_of"] for one in others] == [best["id"]] * 2
    unmarked = client.post(f"{SHOES}/search", files=files, data={**options, "mark_copies": "false"}).json()
    assert {one["copy_of"] for one in unmarked["matches"]} == {None}
