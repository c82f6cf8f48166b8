"""Calls about items: read, added, changed and removed while the gallery is searched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vicinal_client.models import Addition, Deletion, Item, ItemPage, Readiness
from vicinal_client.operations.calls import Calls, operation
from vicinal_client.requests import Image, NewItem, OnConflict, given, image_form, path_of
from vicinal_client.retries import Retries, Steps
from vicinal_client.uploads import LabelFrom, Source, UploadProgress, UploadResult, upload_images

__all__ = ["ItemCalls"]

_KEEP: Any = object()


class ItemCalls(Calls):
    """Items of a gallery."""

    @operation
    def list_items(
        self, gallery: str, *, after: str | None = None, size: int | None = None
    ) -> Steps[ItemPage]:
        """One page of items; `after` is `next` of the page before. `iter_items` goes through all pages."""
        params = given(after=after, size=size)
        return (yield from self._ask("GET", path_of("galleries", gallery, "items"), ItemPage, params=params))

    @operation
    def get_item(self, gallery: str, item_id: str) -> Steps[Item]:
        """One item."""
        return (yield from self._ask("GET", path_of("galleries", gallery, "items", item_id), Item))

    @operation
    def get_item_image(self, gallery: str, item_id: str) -> Steps[bytes]:
        """Thumbnail of one item, a JPEG of at most 256 pixels a side."""
        path = path_of("galleries", gallery, "items", item_id, "image")
        return (yield from self._send("GET", path)).content

    @operation
    def add_item(
        self,
        gallery: str,
        image: Image,
        *,
        id: str | None = None,  # noqa: A002 (the API's name)
        label: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        on_conflict: OnConflict | None = None,
    ) -> Steps[Addition]:
        """Add one image; the next search finds it. See `add_item_images`.

        Args:
            gallery: Name of the gallery.
            image: The bytes of an image file, or its path.
            id: Id of the item; a digest of its file when None.
            label: What it shows.
            metadata: Further values, as JSON can hold them.
            on_conflict: What to do when the id belongs to another image: `error`, `replace` or `skip`.
        """
        item = NewItem(image, id, label, metadata or {})
        return (yield from self._add(gallery, [item], on_conflict))

    @operation
    def add_item_images(
        self, gallery: str, items: Sequence[NewItem], *, on_conflict: OnConflict | None = None
    ) -> Steps[Addition]:
        """Add images in one request, each taken or refused on its own; `add_images` is for more of them.

        When all are refused it is an error, whose `errors` say what was wrong with each.
        """
        return (yield from self._add(gallery, items, on_conflict))

    @operation
    def add_images(
        self,
        gallery: str,
        source: Source,
        *,
        label_from: LabelFrom = "folder",
        prefix: str | None = None,
        on_conflict: OnConflict = "error",
        concurrency: int = 2,
        batch_bytes: int = 8 * 2**20,
        patience: float = 300.0,
        on_progress: Callable[[UploadProgress], object] | None = None,
    ) -> Steps[UploadResult]:
        """Add a folder of images, or any number of them, some at a time.

        An image that cannot be used is listed with the reason, and the others go on. The call can be
        repeated: what is there already is counted as `unchanged`.

        Args:
            gallery: Name of the gallery.
            source: A folder, or an iterable of paths, `(id, path)`, `(id, path, label)` or `NewItem`.
            label_from: `folder`: the topmost folder inside the source, or of a path in an iterable the folder
                that it is in; None: no labels; or a function of the path. What names its label keeps it.
            prefix: Stands before the ids of a folder's images; None for the folder's name, '' for none.
            on_conflict: What to do with an image whose id belongs to another one.
            concurrency: Requests under way at once, at least 1.
            batch_bytes: Size of a request in bytes, as far as its images can be divided. Up to
                `concurrency` times as much is in memory.
            patience: Seconds that each request is sent again while the server is away.
            on_progress: Called after each request, one at a time.

        Raises:
            UploadStoppedError: Nothing more can be added: the server stays away, refuses the key, or has no
                such gallery. It says what was done.
            ValueError: The source is no folder and nothing of the above.
        """
        # As soon as the server is back it goes on.
        longest = min(self.retries.longest_wait, 5.0)
        patient = replace(self.retries, attempts=None, seconds=patience, longest_wait=longest)
        return (
            yield from upload_images(
                lambda items: self._add(gallery, items, on_conflict, patient),
                self._ask("GET", "/readyz", Readiness, accepted=(503,)),
                source,
                label_from=label_from,
                prefix=prefix,
                concurrency=concurrency,
                batch_bytes=batch_bytes,
                on_progress=on_progress,
            )
        )

    @operation
    def patch_item(
        self,
        gallery: str,
        item_id: str,
        *,
        label: str | None = _KEEP,
        metadata: Mapping[str, Any] | None = None,
    ) -> Steps[Item]:
        """Change label and metadata of an item; metadata is merged, and None in it removes a member.

        A label that is left out stays; None removes it.
        """
        body = given(metadata=metadata) | ({} if label is _KEEP else {"label": label})
        path = path_of("galleries", gallery, "items", item_id)
        return (yield from self._ask("PATCH", path, Item, json=body, repeatable=True))

    @operation
    def delete_item(self, gallery: str, item_id: str) -> Steps[None]:
        """Remove one item; the next search does not find it."""
        yield from self._send("DELETE", path_of("galleries", gallery, "items", item_id))

    @operation
    def delete_items(self, gallery: str, ids: Sequence[str]) -> Steps[Deletion]:
        """Remove several items in one change: all of them, or none when one is not there."""
        path = path_of("galleries", gallery, "items", "delete")
        return (yield from self._ask("POST", path, Deletion, json={"ids": list(ids)}))

    def _add(
        self,
        gallery: str,
        items: Sequence[NewItem],
        on_conflict: OnConflict | None,
        retries: Retries | None = None,
    ) -> Steps[Addition]:
        # It may come twice: an image that is there already under its id is `unchanged`, and without an id it
        # gets a digest of its file, which is the same again.
        form = image_form(items, on_conflict=on_conflict)
        path = path_of("galleries", gallery, "items")
        return (yield from self._ask("POST", path, Addition, repeatable=True, retries=retries, **form))
