"""A program over the client as its users write it; it needs no server."""

from __future__ import annotations

import asyncio

import httpx

from vicinal_client import Answer, AsyncClient, Client, NoAnswerError, Retries


def labels_of(answer: Answer) -> list[str | None]:
    return [match.label for match in answer.matches]


def galleries(_: httpx.Request) -> httpx.Response:
    return httpx.Response(200, json={"galleries": []})


def search(client: Client) -> list[str | None]:
    return labels_of(client.search("shop", b"an image", limit=3, group_by="label"))


async def search_awaited(client: AsyncClient) -> list[str | None]:
    return labels_of(await client.search("shop", embedding=[0.5, 0.5], limit=3))


async def list_awaited() -> int:
    async with AsyncClient(transport=httpx.MockTransport(galleries)) as client:
        return len((await client.list_galleries()).galleries)


def main() -> None:
    with Client(transport=httpx.MockTransport(galleries)) as client:
        found = len(client.list_galleries().galleries)
    try:
        Client("http://127.0.0.1:9", retries=Retries(attempts=1)).livez()
    except NoAnswerError as error:
        print(f"{found + asyncio.run(list_awaited())} galleries; {error}")


if __name__ == "__main__":
    main()
