"""The real application, called in this process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from tests.service.types import Encode, MakeSettings, View
from vicinal.service.http.app import create_app
from vicinal_client import AccessError, AsyncClient

KEYS = {"reads": ["search"], "writes": ["search", "write"]}


def test_the_real_application_is_searched_and_refuses_who_may_not(
    data_dir: Path, make_settings: MakeSettings, view: View, encode: Encode
) -> None:
    transport = httpx.ASGITransport(app=create_app(make_settings(data_dir, api_keys=KEYS)))

    async def use() -> None:
        async with AsyncClient(transport=transport, api_key="reads") as client:
            answer = await client.search("shoes", encode(view(3, 9)), limit=3, include_candidates=True)
            assert (answer.no_match, answer.threshold.state) == (None, "none")
            assert answer.candidates[0].label == "o'brien"
            with pytest.raises(AccessError) as refused:
                await client.delete_item("shoes", "plain/view 0.png")
            assert refused.value.kind == "forbidden"
        async with AsyncClient(transport=transport, api_key="writes") as client:
            await client.delete_item("shoes", "plain/view 0.png")

    asyncio.run(use())
