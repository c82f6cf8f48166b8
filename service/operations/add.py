"""Add: images or ready embeddings of a source become items while the gallery is searched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from vicinal.service.errors import RequestError
from vicinal.service.operations.index import holds_ready, open_items
from vicinal.service.operations.place import Progress
from vicinal.service.request_fields import CommandOption, ItemSource

if TYPE_CHECKING:
    from vicinal.indexer.jobs.source_addition import LiveAddition
    from vicinal.service.operations.place import Place

STAGES = {"embed": "Adding"}


class AddRequest(ItemSource):
    """Request to add items."""

    command_order = ("source", "label")

    source: Annotated[
        str | None,
        CommandOption(
            "Image, or any source that `vicinal index` takes: of images, or for a gallery of ready "
            "embeddings one of these.",
            default=...,
            is_argument=True,
        ),
    ] = None
    label: Annotated[str | None, CommandOption("Label of all of them, in place of their own.")] = None


def run(place: Place, request: AddRequest, progress: Progress) -> LiveAddition:
    """Add what the gallery can take, some hundred a commit; what is committed is searched at once."""
    from vicinal.indexer.jobs.source_addition import add_embeddings, add_source
    from vicinal.indexer.sources import EmbeddingSource
    from vicinal.service.galleries.uploads import require_images, require_space

    embedder = place.matcher.embedder
    name, held = place.gallery.name, embedder.bundle.manifest
    if holds_ready(place, request, place.readable.refusal):
        require_space(name, held, request.space)
    else:
        require_images(name, held)
    source = open_items(place, request)
    if source is None:
        raise RequestError("name a source: there is nothing to add")
    progress.opened(source)
    more: dict[str, Any] = {
        "label": request.label,
        "conflict": request.conflict,
        "on_progress": progress,
    }
    if isinstance(source, EmbeddingSource):
        return add_embeddings(place.reader, source, held, name=source.name, **more)
    return add_source(place.reader, source.items, embedder, source=source.name, **more)
