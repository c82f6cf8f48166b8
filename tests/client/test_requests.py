"""Requests: paths, forms and embeddings as they are sent."""

from __future__ import annotations

import asyncio
import json

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.client.conftest import Form
from vicinal_client.requests import NewEmbedding, NewItem, items_body, path_of


async def echo(request: Request) -> JSONResponse:
    return JSONResponse(request.path_params)


APP = Starlette(routes=[Route("/v1/galleries/{gallery}/items/{item_id:path}", echo)])


def arrives(item_id: str) -> str:
    """The id that a server reads of a path, after httpx has put the address together."""
    transport = httpx.ASGITransport(app=APP)

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return await client.get(path_of("galleries", "shop", "items", item_id))

    return str(asyncio.run(ask()).json()["item_id"])


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20))
def test_any_id_arrives_as_it_is(item_id: str) -> None:
    assert arrives(item_id) == item_id


def form_of(*items: NewItem, **options: str) -> Form:
    return Form(httpx.Request("POST", "http://x", **items_body(items, **options)))


def test_fields_of_a_form_are_in_the_order_of_its_images() -> None:
    form = form_of(NewItem(b"1", "a", "x", {"n": 1}), NewItem(b"2", "b"), on_conflict="skip")
    assert (form.images, form.fields("id"), form.fields("label")) == ([b"1", b"2"], ["a", "b"], ["x", ""])
    assert [json.loads(one) for one in form.fields("metadata")] == [{"n": 1}, {}]
    assert (form.names, form.fields("on_conflict")) == (["a", "b"], ["skip"])


def test_a_number_that_json_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        form_of(NewItem(b"1", metadata={"n": float("nan")}))


def test_images_and_embeddings_do_not_come_together() -> None:
    with pytest.raises(ValueError, match="apart from each other"):
        items_body([NewItem(b"1"), NewEmbedding("a", [1.0])])  # type: ignore[list-item]


def test_embeddings_are_sent_as_json() -> None:
    body = items_body([NewEmbedding("a", np.ones(2), "b", {"c": 1}, "u")], space="clip")
    item = {"id": "a", "embedding": [1.0, 1.0], "label": "b", "metadata": {"c": 1}, "uri": "u"}
    assert body == {"json": {"items": [item], "space": "clip"}}
