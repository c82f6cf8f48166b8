"""Both clients: they have the same methods, and keep their key to themselves."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import httpx
import pytest

import vicinal_client
from tests.client.conftest import Either, problem
from vicinal_client import AsyncClient, Client, NoAnswerError, ProblemError

KEY = "a-very-secret-key"
# What closes each, and what takes the steps.
OWN = {"close", "take_now"}, {"aclose", "take"}


def public_methods(kind: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(getattr(kind, name))
        for name in dir(kind)
        if not name.startswith("_") and callable(getattr(kind, name))
    }


def test_both_have_the_same_methods_with_the_same_arguments() -> None:
    sync, awaited = public_methods(Client), public_methods(AsyncClient)
    assert (set(sync) - set(awaited), set(awaited) - set(sync)) == OWN
    for name in set(sync) & set(awaited):
        assert list(sync[name].parameters.values()) == list(awaited[name].parameters.values()), name
    assert len(set(sync) & set(awaited)) > 25


def test_the_comparison_of_the_methods_sees_another_default() -> None:
    """Negative control."""

    class Other(AsyncClient):
        async def get_item(self, gallery: str, item_id: str = "") -> None:  # type: ignore[override]
            """Differs."""

    assert public_methods(Other)["get_item"] != public_methods(Client)["get_item"]


def test_the_key_is_sent_and_never_shown(connect: Callable[..., Either]) -> None:
    seen: list[str] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["authorization"])
        return problem(401, "unauthorized", "send a valid API key")

    client = connect(refuse, api_key=KEY)
    with pytest.raises(ProblemError) as refused:
        client.list_galleries()
    assert seen == [f"Bearer {KEY}"]
    assert KEY not in f"{client.client!r} {refused.value!r} {refused.value} {vars(refused.value)}"


def test_a_password_in_the_address_is_not_shown(connect: Callable[..., Either]) -> None:
    def away(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    client = connect(away, url="http://me:secret@shop.example:80/images")
    with pytest.raises(NoAnswerError) as lost:
        client.livez()
    assert "secret" not in f"{client.client!r} {lost.value}"
    assert "shop.example" in str(lost.value)


def test_items_are_gone_through_page_by_page(is_async: bool, connect: Callable[..., Either]) -> None:
    def page(request: httpx.Request) -> httpx.Response:
        first = int(request.url.params.get("after", 0))
        assert request.url.params["size"] == "2"
        ids = [str(one) for one in range(first, min(first + 2, 5))]
        items = [{"id": one, "label": None, "uri": "", "metadata": {}} for one in ids]
        return httpx.Response(200, json={"items": items, "next": str(first + 2) if first < 4 else None})

    client: Any = connect(page).client
    if is_async:

        async def collect() -> list[str]:
            return [item.id async for item in client.iter_items("shop", size=2)]

        found = asyncio.run(collect())
    else:
        found = [item.id for item in client.iter_items("shop", size=2)]
    assert found == ["0", "1", "2", "3", "4"]


def test_public_names_are_sorted_and_exist() -> None:
    assert vicinal_client.__all__ == sorted(vicinal_client.__all__)
    assert [name for name in vicinal_client.__all__ if not hasattr(vicinal_client, name)] == []


def test_a_client_is_closed_by_its_block(is_async: bool) -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json={"status": "alive"}))
    if is_async:

        async def use() -> AsyncClient:
            async with AsyncClient(transport=transport) as client:
                await client.livez()
            return client

        assert asyncio.run(use())._http.is_closed
    else:
        with Client(transport=transport) as client:
            client.livez()
        assert client._http.is_closed
