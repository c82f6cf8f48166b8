"""Compare: variants of a gallery on the same queries, each with its own threshold, and which to use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vicinal.service.comparing.record import ComparisonRequest
from vicinal.service.operations import Operation, Progress
from vicinal.service.request_fields import ComparisonFields

if TYPE_CHECKING:
    from vicinal.indexer.gallery import Gallery
    from vicinal.indexer.sources import SourceOptions
    from vicinal.service.comparing.record import Comparison
    from vicinal.service.operations.place import Place


class CompareRequest(ComparisonFields, ComparisonRequest):
    """Request to compare variants, and how the queries are read."""


def require(place: Place, request: CompareRequest) -> None:
    """Refuse variants that cannot be opened, and queries that nothing could be measured with."""
    from vicinal.service.comparing.variants import open_variants

    open_variants(place.gallery, place.bundles, request)
    for name, also in request.sources:
        place.readable.check(name, also=also)
    if not request.versions:
        place.require_queries(request)


def run(place: Place, request: CompareRequest, progress: Progress) -> Comparison:
    """Try the variants, keep the comparison, and make the calibrations of other versions ready."""
    from vicinal.indexer.gallery import Gallery

    place.settle()
    asked = ComparisonRequest(**{name: getattr(request, name) for name in ComparisonRequest.model_fields})
    gallery, options = (
        Gallery.open(place.gallery.path, engine=place.bundles.engine),
        None if place.sent else request.source_options,
    )
    return compared(place, gallery, asked, progress, options=options)


def compared(
    place: Place,
    gallery: Gallery,
    asked: ComparisonRequest,
    progress: Progress,
    *,
    options: SourceOptions | None = None,
) -> Comparison:
    """Compare by what may be read at a place."""
    from vicinal.indexer.sources import refuse_none
    from vicinal.service.comparing.comparison import ComparisonPlan, compare

    queries = None if asked.queries is None else place.readable.place(asked.queries)
    plan = ComparisonPlan(
        gallery,
        place.bundles,
        asked,
        queries=place.sent or queries,
        # What was sent lies in a file of our own, and names no others.
        refuse=refuse_none if place.sent else place.readable.refusal,
        on_stage=progress,
        options=options and place.readable.options(asked.queries or "", options),
    )
    return compare(plan, place.id)


OPERATION = Operation("compare", CompareRequest, run, require=require, told=lambda _, made: made.in_short)
