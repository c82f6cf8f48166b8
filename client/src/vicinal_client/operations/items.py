"""Calls about items: read, added, changed and removed while the gallery is searched."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vicinal_client.models import (
    Addition,
    BroughtBack,
    Deletion,
    Item,
    ItemPage,
    MetadataKeyList,
    Readiness,
    SetAside,
    SetAsideList,
)
from vicinal_client.operations.calls import Calls, operation
from vicinal_client.requests import Image, NewEmbedding, NewItem, OnConflict, given, items_body, path_of
from vicinal_client.retries import Retries, Steps
from vicinal_client.uploads import (
    LabelFrom,
    Source,
    UploadProgress,
    UploadResult,
    UploadSource,
    embeddings_source,
    images_source,
    upload,
)

__all__ = ["ItemCalls"]

_KEEP: Any = object()


class ItemCalls(Calls):
    """Items of a gallery."""

    @operation
    def list_items(
        self,
        gallery: str,
        *,
        after: str | None = None,
        at: int | None = None,
        filter: str | None = None,
        size: int | None = None,
    ) -> Steps[ItemPage]:
        """Items of one page; `after` is `next` of the page before. `iter_items` goes through all pages.

        `at` begins at the item with that number, from 0; `filter` leaves those that fulfil it.
        """
        params = given(after=after, at=at, filter=filter, size=size)
        return (yield from self._ask("GET", path_of("galleries", gallery, "items"), ItemPage, params=params))

    @operation
    def get_item(self, gallery: str, item_id: str) -> Steps[Item]:
        """Item of a gallery."""
        path = path_of("galleries", gallery, "item")
        return (yield from self._ask("GET", path, Item, params={"id": item_id}))

    @operation
    def get_thumbnail(self, gallery: str, item_id: str) -> Steps[bytes]:
        """Thumbnail of one item, a JPEG of at most 256 pixels a side."""
        path = path_of("galleries", gallery, "thumbnail")
        return (yield from self._send("GET", path, params={"id": item_id})).content

    @operation
    def get_image(self, gallery: str, item_id: str) -> Steps[bytes]:
        """Picture of one item in full size, an upright JPEG; an error where its file is not there."""
        path = path_of("galleries", gallery, "image")
        return (yield from self._send("GET", path, params={"id": item_id})).content

    @operation
    def list_metadata_keys(self, gallery: str, *, values: int | None = None) -> Steps[MetadataKeyList]:
        """Keys of the items' metadata, each with the kinds of its values and the most usual of them."""
        path = path_of("galleries", gallery, "metadata")
        return (yield from self._ask("GET", path, MetadataKeyList, params=given(values=values)))

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
        """Add one image; the next search finds it. See `add_items`.

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
    def add_items(
        self,
        gallery: str,
        items: Sequence[NewItem] | Sequence[NewEmbedding],
        *,
        on_conflict: OnConflict | None = None,
        space: str | None = None,
    ) -> Steps[Addition]:
        """Add images or ready embeddings in one request; `add_images` and `add_embeddings` are for more.

        Each is taken or refused on its own. When all are refused it is an error, whose `errors` say what was
        wrong with each.

        Args:
            gallery: Name of the gallery.
            items: Images, or embeddings.
            on_conflict: What to do when an id belongs to another image or embedding.
            space: What made the embeddings: refused unless it is the gallery's.
        """
        return (yield from self._add(gallery, items, on_conflict, space))

    @operation
    def add_images(
        self,
        gallery: str,
        source: Source,
        *,
        label_from: LabelFrom = "folder",
        prefix: str | None = None,
        include_hidden: bool = False,
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
            include_hidden: Also send hidden images of a folder: those in bins, thumbnails, snapshots.
            on_conflict: What to do with an image whose id belongs to another one.
            concurrency: Requests under way at once, at least 1.
            batch_bytes: Size of a request in bytes, as far as its images can be divided. A few times as much
                is in memory for each request under way, however many images there are.
            patience: Seconds that each request is sent again while the server is away.
            on_progress: Called after each request, one at a time.

        Raises:
            UploadStoppedError: Nothing more can be added: the server stays away, refuses the key, or has no
                such gallery. It says what was done.
            ValueError: The source is no folder and nothing of the above.
        """
        images = images_source(source, label_from, prefix, include_hidden=include_hidden)
        how: dict[str, Any] = {
            "concurrency": concurrency,
            "batch_bytes": batch_bytes,
            "on_progress": on_progress,
        }
        return (yield from self._upload(gallery, images, patience, on_conflict, **how))

    @operation
    def add_embeddings(
        self,
        gallery: str,
        items: Iterable[NewEmbedding],
        *,
        space: str | None = None,
        on_conflict: OnConflict = "error",
        concurrency: int = 2,
        batch_bytes: int = 8 * 2**20,
        patience: float = 300.0,
        on_progress: Callable[[UploadProgress], object] | None = None,
    ) -> Steps[UploadResult]:
        """Add any number of ready embeddings, some at a time; else as `add_images`.

        Args:
            gallery: Name of a gallery of ready embeddings.
            items: The embeddings.
            space: What made them: refused unless it is the gallery's.
            on_conflict: What to do with an embedding whose id belongs to another one.
            concurrency: Requests under way at once, at least 1.
            batch_bytes: Size of a request in bytes, at most.
            patience: Seconds that each request is sent again while the server is away.
            on_progress: Called after each request, one at a time.

        Raises:
            UploadStoppedError: Nothing more can be added.
        """
        how: dict[str, Any] = {
            "concurrency": concurrency,
            "batch_bytes": batch_bytes,
            "on_progress": on_progress,
        }
        return (
            yield from self._upload(gallery, embeddings_source(items), patience, on_conflict, space, **how)
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
        path, params = path_of("galleries", gallery, "item"), {"id": item_id}
        return (yield from self._ask("PATCH", path, Item, params=params, json=body, repeatable=True))

    @operation
    def set_items_aside(
        self, gallery: str, ids: Sequence[str], reason: str, *, instead: Mapping[str, str] | None = None
    ) -> Steps[SetAside]:
        """Let nothing find some items any more, until they are brought back: all of them, or none.

        `instead` has the item that stays for each copy, by id: it gets the labels and metadata that it lacks.
        """
        path = path_of("galleries", gallery, "set-aside")
        body = {"ids": list(ids), "reason": reason, **given(instead=instead and dict(instead))}
        return (yield from self._ask("POST", path, SetAside, json=body))

    @operation
    def bring_item_back(self, gallery: str, item_id: str) -> Steps[BroughtBack]:
        """Bring an item back that was set aside, as it was."""
        path = path_of("galleries", gallery, "set-aside")
        return (yield from self._ask("DELETE", path, BroughtBack, params={"id": item_id}))

    @operation
    def list_items_aside(self, gallery: str) -> Steps[SetAsideList]:
        """Items that are set aside, in the order in which they were."""
        return (yield from self._ask("GET", path_of("galleries", gallery, "set-aside"), SetAsideList))

    @operation
    def get_thumbnail_aside(self, gallery: str, item_id: str) -> Steps[bytes]:
        """Thumbnail of an item that is set aside, a JPEG."""
        path = path_of("galleries", gallery, "set-aside", "thumbnail")
        return (yield from self._send("GET", path, params={"id": item_id})).content

    @operation
    def delete_item(self, gallery: str, item_id: str) -> Steps[None]:
        """Remove one item; the next search does not find it."""
        yield from self._send("DELETE", path_of("galleries", gallery, "item"), params={"id": item_id})

    @operation
    def delete_items(self, gallery: str, ids: Sequence[str]) -> Steps[Deletion]:
        """Remove several items in one change: all of them, or none when one is not there."""
        path = path_of("galleries", gallery, "items", "delete")
        return (yield from self._ask("POST", path, Deletion, json={"ids": list(ids)}))

    def _add(
        self,
        gallery: str,
        items: Sequence[NewItem] | Sequence[NewEmbedding],
        on_conflict: OnConflict | None,
        space: str | None = None,
        retries: Retries | None = None,
    ) -> Steps[Addition]:
        # It may come twice: an image that is there already under its id is `unchanged`, and without an id it
        # gets a digest of its file, which is the same again.
        body = items_body(items, on_conflict=on_conflict, space=space)
        path = path_of("galleries", gallery, "items")
        return (yield from self._ask("POST", path, Addition, repeatable=True, retries=retries, **body))

    def _upload(
        self,
        gallery: str,
        source: UploadSource,
        patience: float,
        on_conflict: OnConflict,
        space: str | None = None,
        **how: Any,
    ) -> Steps[UploadResult]:
        # As soon as the server is back it goes on.
        longest = min(self.retries.longest_wait, 5.0)
        patient = replace(self.retries, attempts=None, seconds=patience, longest_wait=longest)
        readiness = self._ask("GET", "/readyz", Readiness, accepted=(503,))
        return (
            yield from upload(
                lambda items: self._add(gallery, items, on_conflict, space, patient), readiness, source, **how
            )
        )
