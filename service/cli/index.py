"""`vicinal index`: embed a folder or manifest into a gallery, or index embeddings that are ready."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from vicinal.service.cli.console import console, errors, print_failures, print_json, progress_bar, say
from vicinal.service.cli.options import (
    BundleOption,
    DataDirOption,
    EmbeddingColumnOption,
    GalleryOption,
    IdColumnOption,
    JsonOption,
    LabelColumnOption,
    LabelFromOption,
    PathColumnOption,
    PrefixOption,
    SpaceOption,
    load_settings,
    open_gallery,
)
from vicinal.service.errors import RequestError
from vicinal.service.words import hygiene_lines, look_lines, search_words

if TYPE_CHECKING:
    from vicinal.indexer.embedding_sources import EmbeddingSource
    from vicinal.indexer.jobs.index_plan import IndexResult
    from vicinal.indexer.sources import SourceItem

__all__ = ["index", "print_build"]

_STAGES = {"embed": "Embedding", "neighbors": "Finding neighbors", "publish": "Publishing"}


def index(
    gallery: GalleryOption,
    source: Annotated[
        str | None,
        typer.Argument(
            help="Folder of images, bucket (s3://, gs://, az://), .csv or .parquet manifest, .tar shards, or "
            "ready embeddings (.parquet, .lance, saved dataset of Hugging Face, .npz, .npy beside a "
            ".csv). Default: what the gallery holds."
        ),
    ] = None,
    data_dir: DataDirOption = None,
    bundle: BundleOption = None,
    index_kind: Annotated[str, typer.Option("--index", help="Faiss index_factory string, or auto.")] = "auto",
    activate: Annotated[
        bool,
        typer.Option(help="Search the new version at once, or leave it to `vicinal compare` and `use`."),
    ] = True,
    max_failures: Annotated[
        int | None, typer.Option(min=0, help="Give up when more images than this cannot be read.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Threads that decode beside the network.")] = 2,
    space: SpaceOption = None,
    prefix: PrefixOption = None,
    label_from: LabelFromOption = "auto",
    path_column: PathColumnOption = None,
    label_column: LabelColumnOption = None,
    id_column: IdColumnOption = None,
    embedding_column: EmbeddingColumnOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what the source holds, and write nothing.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Embed images into a gallery, or index embeddings, while it is searched and changed.

    A run that was stopped goes on where it was when it is started again over the same files.
    """
    from vicinal.indexer.embedding_sources import open_source
    from vicinal.indexer.gallery import Gallery
    from vicinal.indexer.jobs.index_job import gallery_items, index_items
    from vicinal.indexer.sources import ANYWHERE, Source, SourceOptions, place_of
    from vicinal.service.galleries.bundles import ServedBundles
    from vicinal.service.scoring.pipeline import ActivePipelineFile

    settings = load_settings(data_dir=data_dir, bundle=bundle)
    options = SourceOptions(
        prefix, label_from, path_column, label_column, id_column, embedding_column, ANYWHERE
    )
    if source is None and (dry_run or options != SourceOptions(None, "auto", access=ANYWHERE)):
        raise RequestError("name a source: without one the items that the gallery holds are indexed")
    target = Gallery(settings.gallery_path(gallery))
    items = (
        None
        if source is None
        else open_source(place_of(source), options, is_ready=bool(space or target.space))
    )
    if items is not None:
        look = items.look()
        if dry_run and json_output:
            print_json(asdict(look))
            return
        for line in look_lines(look):
            say(line, to=errors if json_output else console)
        if dry_run:
            return
    bundles = ServedBundles(settings)
    indexed: EmbeddingSource | list[SourceItem] | None
    if items is None:
        served = bundles.to_index(open_gallery(settings, gallery))
        indexed = None if served.bundle.manifest.space else gallery_items(target, ANYWHERE)
    elif isinstance(items, Source):
        indexed, served = items.items, bundles.own
    else:
        indexed, served = items, bundles.space(target, space, items.dim)
    target.refinement = served.refinement
    stages = {**_STAGES, "embed": "Reading"} if served.bundle.manifest.space else _STAGES
    with progress_bar() as update:
        result = index_items(
            target,
            indexed,
            served.embedder,
            index=index_kind,
            activate=activate,
            max_failures=max_failures,
            workers=workers,
            on_progress=lambda stage, done, total: update(stages[stage], done, total),
        )
    if json_output:
        print_json(asdict(result))
        return
    print_build(gallery, result)
    if not activate:
        say(f"Not searched yet: `vicinal compare {result.version} --gallery {gallery}`, then `vicinal use`")
        return
    pipeline = ActivePipelineFile(target.calibrations_path).resolve(served.pipeline, served.bundle).pipeline
    say(f"Searches: {search_words(pipeline, served.bundle)}")


def print_build(gallery: str, result: IndexResult) -> None:
    """Say what an index job made and what it found."""
    rate = result.n_items / max(1e-9, result.seconds["embed"])
    console.print(
        f"Gallery [bold]{gallery}[/] version {result.version}: {result.n_items:,} items with "
        f"{result.n_labels:,} labels, index {result.index}, {rate:,.0f} {_source_of(result)}"
    )
    if result.remark:
        say(f"  {result.remark}")
    print_failures(result.failures, "--json and the report")
    for line in hygiene_lines(result.hygiene):
        say(f"  {line}")


def _source_of(result: IndexResult) -> str:
    return "rows/s" if result.provider == "none" else f"images/s on {result.provider}"
