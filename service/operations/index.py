"""Index: what is new or changed in a source is taken over into a gallery, while it is searched."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, StrictBool, StrictInt

from vicinal.service.errors import RequestError
from vicinal.service.operations.place import Progress
from vicinal.service.request_fields import CommandOption, ItemSource

if TYPE_CHECKING:
    from vicinal.indexer.cluster import Cluster
    from vicinal.indexer.jobs.index_job import IndexJob
    from vicinal.indexer.jobs.sync.plan import IndexResult
    from vicinal.indexer.sources import EmbeddingSource, ImageFile, Source
    from vicinal.service.operations.place import Place

STAGES = {
    "copy": "Copying",
    "embed": "Embedding",
    "neighbors": "Finding neighbors",
    "refiner": "Asking the labels",
    "publish": "Publishing",
}


class NewVersion(ItemSource):
    """Making of a gallery's new version, whoever asks; without a source its own items are taken."""

    source: Annotated[
        str | None,
        CommandOption(
            "Folder of images, .csv, .tsv or .parquet manifest, .parquet files with images inside, alone or "
            "in a folder, .tar shards, bucket (s3://, gs://, az://), data set of the hub (hf:owner/name), or "
            "ready embeddings (.parquet, .lance, saved dataset of Hugging Face, .npz, .npy beside a .csv). "
            "Default: what the gallery holds.",
            is_argument=True,
        ),
    ] = Field(
        None,
        description="Folder, manifest, dataset or ready embeddings below `sources_dir`, or a public data set "
        "of the hub, `hf:owner/name`, where addresses are allowed: what is new or changed there is taken "
        "over, and what the gallery holds stays.",
    )
    delete: Annotated[
        StrictBool,
        CommandOption("Remove items of this source that it does not list any more.", "--delete", kind=bool),
    ] = Field(False, description="Remove items that came from this source and that it no longer lists.")
    restore: Annotated[
        StrictBool,
        CommandOption("Bring back removed items that this source still lists.", "--restore", kind=bool),
    ] = Field(
        False,
        description="Bring back items that were removed and that this source still lists; they are left out "
        "without it.",
    )
    bundle: Annotated[str | None, CommandOption(is_hidden=True)] = Field(
        None, pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$", description="Name of a bundle below `bundles_dir`."
    )
    index: Annotated[
        str | None,
        CommandOption("auto (at first), Flat, SQ8, IVF1024,SQ8 and the like, or milvus."),
    ] = Field(
        None,
        description="Kind of the vector index; null for that of the searched version, at first `auto`: "
        "`auto`, `Flat`, `SQ8`, `PQ16x4fs`, or inverted lists before them such as `IVF1024,SQ8`; or "
        "`milvus`, at the address that is the setting `milvus_url`.",
        examples=["auto"],
    )
    refine: Annotated[
        Literal["auto", "bundle"],
        CommandOption("bundle: what the bundle has; auto: as the searched version has it."),
    ] = Field(
        "auto",
        description="Refiner of the version: `bundle` for that of the bundle, if it has one, `auto` for that "
        "of the searched version.",
    )
    max_failures: Annotated[
        StrictInt | None, CommandOption("Give up when more items than this cannot be read.")
    ] = Field(None, ge=0, description="Most images or rows that may be left out.")


class IndexRequest(NewVersion):
    """Request to index, by a command or a program."""

    command_order = (
        *("source", "index", "refine", "activate", "max_failures", "workers", "build_on", "ray_address"),
        *("delete", "restore", "space"),
    )

    activate: Annotated[
        StrictBool,
        CommandOption(
            "Search the new version at once, or leave it to `vicinal compare` and `use`.", kind=bool
        ),
    ] = True
    workers: Annotated[StrictInt, CommandOption("Threads that decode beside the network.")] = Field(2, ge=1)
    build_on: Annotated[
        Literal["here", "ray"],
        CommandOption(
            "Who embeds and finds neighbors: here, this process; ray, a Ray cluster whose nodes all see the "
            "source."
        ),
    ] = "here"
    ray_address: Annotated[
        str | None,
        CommandOption(
            "Cluster for --build-on ray: HOST:PORT of its head, auto (this machine's) or local (processes of "
            "this machine). Default: RAY_ADDRESS, else local.",
            metavar="ADDRESS",
        ),
    ] = None


def run(place: Place, request: IndexRequest, progress: Progress) -> IndexResult:
    """Index, going on where a run over the same files was stopped."""
    gallery = place.gallery
    require_devices(place, request)
    with _cluster(place, request) as gallery.cluster:
        try:
            source = open_items(place, request)
            return index_job(
                place, request, source, progress, activate=request.activate, workers=request.workers
            ).run()
        finally:
            gallery.cluster = None


def _cluster(place: Place, request: IndexRequest) -> AbstractContextManager[Cluster | None]:
    address = request.ray_address
    if address is not None and "@" in address:
        raise RequestError("the address of a Ray cluster is HOST:PORT, without a name or password")
    if request.build_on == "here":
        if address is not None:
            raise RequestError(f"'{address}' would not be asked: build on ray, or leave the address out")
        return nullcontext()
    from vicinal.indexer.jobs.ray_cluster import ray_cluster

    return ray_cluster(address, place.settings.device)


def holds_ready(place: Place, request: ItemSource, refuse: Callable[[ImageFile], str | None]) -> bool | None:
    """Tell whether the source is one of ready embeddings; None for the gallery's own items."""
    from vicinal.indexer.sources import holds_embeddings

    is_ready = None if place.embeddings is None else True
    if request.source is not None:
        is_ready = holds_embeddings(
            place.readable.place(request.source),
            request.source_options,
            expected=bool(request.space or place.gallery.space),
            refuse=refuse,
        )
    for name in ("delete", "restore"):
        if getattr(request, name, False) and is_ready is None:
            raise RequestError(f"{name} is about a source: name it")
    if is_ready is None and not request.is_read_as_usual:
        raise RequestError("name a source: without one there is nothing to read ids and labels from")
    bundles = place.bundles
    named = bundles.named if bundles.own_space is None else None
    name, space = request.source or place.gallery.name, request.space
    # Parts that would play none.
    if space is not None and is_ready is None:
        raise RequestError("space says what made the ready embeddings of a source: name the source")
    if space is not None and is_ready is False:
        raise RequestError(
            f"space '{space}' is for ready embeddings, and '{name}' is read for its images: leave it out, or "
            "name the column of the embeddings"
        )
    if is_ready and (getattr(request, "bundle", None) or named) is not None:
        raise RequestError(f"'{name}' holds ready embeddings, which no bundle embeds: leave the bundle out")
    return is_ready


def open_items(place: Place, request: ItemSource) -> Source | EmbeddingSource | None:
    """The source that a request names; None for the gallery's own items."""
    from vicinal.indexer.gallery import Gallery
    from vicinal.indexer.sources import open_source

    readable = place.readable
    is_ready = bool(holds_ready(place, request, readable.refusal))
    if request.source is None:
        if place.embeddings is None:
            Gallery.open(place.gallery.path)
        return place.embeddings
    options = readable.options(request.source, request.source_options)
    return open_source(readable.place(request.source), options, expects_embeddings=is_ready)


def index_job(
    place: Place,
    request: NewVersion,
    source: Source | EmbeddingSource | None,
    progress: Progress,
    *,
    activate: bool,
    workers: int = 2,
) -> IndexJob:
    """An attempt at the new version, with the bundle that serves it; whoever asks hears of it."""
    from vicinal.indexer.jobs.embedding_run import RunOptions
    from vicinal.indexer.jobs.index_job import IndexJob
    from vicinal.indexer.jobs.sync.plan import IndexPlan
    from vicinal.indexer.sources import Source, SourceOptions

    if source is not None:
        if request.delete:
            source.require_whole()
        progress.opened(source)
    served = place.bundles.resolve(
        place.gallery,
        source,
        bundle=request.bundle,
        space=request.space,
        keeps_refiner=request.refine != "bundle",
    )
    access = place.readable.options("", SourceOptions()).access
    plan = IndexPlan(
        source.items if isinstance(source, Source) else source,
        source=None if source is None else source.name,
        conflict=request.conflict,
        delete=request.delete,
        restore=request.restore,
        index=request.index,
        activate=activate,
        options=RunOptions(max_failures=request.max_failures, workers=workers, access=access),
        refuse=place.readable.refusal,
        unread={} if source is None else source.unread,
        job=place.id if place.is_job else None,
    )

    def report(stage: str, done: int, total: int, _note: str = "", /) -> None:
        sync, progress.failures = job.sync, job.sync.failures
        progress.total, progress.done, progress.skipped = sync.n_items, sync.n_done, sync.n_skipped
        progress(stage, done, total)

    job = IndexJob(place.gallery, served.embedder, plan, on_progress=report)
    return job


def require_devices(place: Place, request: NewVersion) -> None:
    """Refuse a GPU that was asked for and cannot be used, before a source is opened."""
    from vicinal.indexer.graph.gpu import faiss_gpus

    settings = place.settings
    is_ready = bool(request.space or place.gallery.space)
    if not is_ready and request.bundle is None and settings.device.startswith("cuda"):
        # ONNX Runtime does not tell before a network is opened there.
        _ = place.bundles.own
    faiss_gpus(settings.index_device)
