"""Searches by image, embedding or item."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from vicinal_client.models import Answer, BatchAnswer
from vicinal_client.operations.calls import Calls, operation
from vicinal_client.options import SearchOptions
from vicinal_client.requests import (
    Image,
    Vector,
    floats_of,
    given,
    image_base64,
    image_file,
    path_of,
    vector_of,
)
from vicinal_client.retries import Steps

__all__ = ["SearchCalls"]


class SearchCalls(Calls):
    """Searches. They may be repeated: they change nothing."""

    @operation
    def search(
        self,
        /,
        gallery: str,
        image: Image | None = None,
        *,
        embedding: Vector | None = None,
        item_id: str | None = None,
        search_id: str | None = None,
        **options: Unpack[SearchOptions],
    ) -> Steps[Answer]:
        """Find the matches of one image, embedding, item or kept search, or learn that there is none.

        Args:
            gallery: Name of the gallery.
            image: The bytes of an image file, or its path.
            embedding: An embedding in place of an image, shape (d,).
            item_id: An item of the gallery in place of an image; it is left out of its own search.
            search_id: A kept search, whose picture is searched for again.
            options: See `SearchOptions`: limit, threshold, filter, sort_by, group_by, include_candidates,
                mark_copies, explain, refine, steps, rerank.

        Raises:
            ValueError: Not exactly one of image, embedding, item_id and search_id is given.
        """
        _check_one(image, embedding, item_id, search_id)
        chosen: dict[str, Any] = given(**options)
        sent: dict[str, Any]
        if image is not None:
            sent = {"files": [image_file(image)], "data": chosen}
        elif embedding is not None:
            sent = {"json": {"embedding": vector_of(embedding), **chosen}}
        else:
            named = {"item_id": item_id} if search_id is None else {"search_id": search_id}
            sent = {"json": {**named, **chosen}}
        path = path_of("galleries", gallery, "search")
        return (yield from self._ask("POST", path, Answer, repeatable=True, **sent))

    @operation
    def search_embedding(
        self, /, gallery: str, embedding: Vector | bytes, **options: Unpack[SearchOptions]
    ) -> Steps[Answer]:
        """Search for an embedding that is sent as the bytes of its float32 numbers, not as text.

        Args:
            gallery: Name of the gallery.
            embedding: An embedding, shape (d,), or its bytes: `array.astype("<f4").tobytes()`.
            options: Those of `search`.
        """
        return (
            yield from self._ask(
                "POST",
                path_of("galleries", gallery, "search", "embedding"),
                Answer,
                repeatable=True,
                content=floats_of(embedding),
                headers={"Content-Type": "application/octet-stream"},
                params=given(**options),
            )
        )

    @operation
    def get_kept_picture(self, gallery: str, search: str) -> Steps[bytes]:
        """Picture of a kept search, a small JPEG."""
        return (
            yield from self._send("GET", path_of("galleries", gallery, "kept", search, "picture"))
        ).content

    @operation
    def search_batch(
        self,
        /,
        gallery: str,
        images: Sequence[Image] | None = None,
        *,
        embeddings: Sequence[Vector] | None = None,
        item_ids: Sequence[str] | None = None,
        **options: Unpack[SearchOptions],
    ) -> Steps[BatchAnswer]:
        """Search for several images, embeddings or items; each is answered as if it were alone.

        Args:
            gallery: Name of the gallery.
            images: Image files as bytes, or their paths.
            embeddings: Embeddings in place of images.
            item_ids: Items in place of images.
            options: Those of `search`.

        Raises:
            ValueError: Not exactly one of images, embeddings and item_ids is given.
        """
        _check_one(images, embeddings, item_ids)
        queries: list[dict[str, Any]] = [
            *({"image_base64": image_base64(image)} for image in images or ()),
            *({"embedding": vector_of(one)} for one in embeddings or ()),
            *({"item_id": one} for one in item_ids or ()),
        ]
        body = {"queries": queries, **given(**options)}
        path = path_of("galleries", gallery, "search", "batch")
        return (yield from self._ask("POST", path, BatchAnswer, json=body, repeatable=True))


def _check_one(*queries: object) -> None:
    if sum(one is not None for one in queries) != 1:
        raise ValueError("search for exactly one of: image, embedding, item id, id of a kept search")
