"""`vicinal gallery add|remove|compact|versions|activate|check`: live changes and versions of a gallery."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from vicinal.indexer.errors import GalleryBusyError
from vicinal.indexer.jobs.changes import remove_items
from vicinal.indexer.jobs.compaction import Compaction, compact
from vicinal.indexer.jobs.live_run import LiveAddition, add_source
from vicinal.indexer.jobs.refinement import refine_gallery
from vicinal.indexer.jobs.retention import Pruning, describe_versions
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources import SourceItem, read_source
from vicinal.indexer.views.refined_snapshot import RefinementPlan
from vicinal.models.bundle import ModelBundle
from vicinal.models.decoding import IMAGE_SUFFIXES
from vicinal.refine.context_refiner import ContextRefiner
from vicinal.service.cli.console import console, errors, print_json, progress_bar
from vicinal.service.cli.options import (
    BundleOption,
    DataDirOption,
    JsonOption,
    load_embedder,
    load_settings,
    open_gallery,
)
from vicinal.service.comparisons.version_store import summary_of
from vicinal.service.galleries.maintenance import check_version, prune_gallery
from vicinal.service.galleries.versions import activate_version
from vicinal.service.settings import Settings

__all__ = ["activate", "add", "check", "compact_gallery", "refine", "remove", "versions"]

NameArgument = Annotated[str, typer.Argument(help="Name of the gallery.")]


def add(
    name: NameArgument,
    source: Annotated[Path, typer.Argument(help="Image, folder of images, or .csv or .parquet manifest.")],
    label: Annotated[str | None, typer.Option(help="Label of all of them, in place of their own.")] = None,
    data_dir: DataDirOption = None,
    bundle: BundleOption = None,
    json_output: JsonOption = False,
) -> None:
    """Add images while the gallery is searched; one whose id is there replaces it."""
    settings = load_settings(data_dir=data_dir, bundle=bundle)
    embedder = load_embedder(settings)
    reader = GalleryReader(open_gallery(settings, name, embedder.bundle))
    items = [
        item if label is None else SourceItem(item.id, item.path, label, item.metadata)
        for item in _items_of(source)
    ]
    with progress_bar() as update:
        done = add_source(
            reader,
            items,
            embedder,
            on_progress=lambda done, total, _failed: update("Adding", done, total),
        )
    if settings.compaction.is_due(reader.view()):
        try:
            _compact(reader, settings)
        except GalleryBusyError as error:
            # The items are there all the same; whoever is at it, or the next change, compacts them.
            errors.print(f"Not compacted now: {error}", markup=False, soft_wrap=True)
    if json_output:
        print_json({**asdict(done), "n_items": len(reader.view())})
    else:
        _print_addition(name, done, len(reader.view()))


def remove(
    name: NameArgument,
    ids: Annotated[list[str], typer.Argument(help="Ids of the items.")],
    data_dir: DataDirOption = None,
) -> None:
    """Remove items while the gallery is searched: all of them, or none when one is not there."""
    reader = GalleryReader(open_gallery(load_settings(data_dir=data_dir), name))
    change = remove_items(reader, ids)
    console.print(f"Removed {change.n_removed:,} items, gallery {name} holds {len(reader.view()):,}")


def compact_gallery(
    name: NameArgument,
    data_dir: DataDirOption = None,
    bundle: BundleOption = None,
    json_output: JsonOption = False,
) -> None:
    """Make a new version of the live changes now, and remove versions that are no longer kept."""
    settings = load_settings(data_dir=data_dir, bundle=bundle)
    opened = ModelBundle.open(settings.bundle)
    done, pruned = _compact(GalleryReader(open_gallery(settings, name, opened)), settings)
    if json_output:
        print_json({"compaction": done and asdict(done), "pruning": asdict(pruned)})
        return
    console.print(
        f"Gallery {name} has no live changes"
        if done is None
        else f"Gallery {name} version {done.version}: {done.n_items:,} items, index {done.index}"
    )
    if pruned.versions:
        console.print(f"Removed versions {pruned.versions}, {_size(pruned.bytes_freed)} freed")


def refine(
    name: NameArgument,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of the refiner; all by default.")] = None,
    data_dir: DataDirOption = None,
    bundle: BundleOption = None,
) -> None:
    """Refine the items of the active version with the bundle's refiner, while it is searched."""
    settings = load_settings(data_dir=data_dir, bundle=bundle)
    refiner = ContextRefiner(ModelBundle.open(settings.bundle))
    n_steps = steps or settings.refine_steps or refiner.n_steps
    with progress_bar() as update:
        version = refine_gallery(
            open_gallery(settings, name),
            RefinementPlan(refiner, n_steps),
            on_progress=lambda done, total: update("Refining", done, total),
        )
    console.print(f"Gallery {name} version {version}: refined by {refiner.fingerprint} in {n_steps} steps")


def versions(name: NameArgument, data_dir: DataDirOption = None, json_output: JsonOption = False) -> None:
    """Versions of a gallery, newest first, with what each takes on the disk."""
    gallery = open_gallery(load_settings(data_dir=data_dir), name)
    described = describe_versions(gallery)
    summaries = {one.version: summary_of(gallery, one.version) for one in described}
    if json_output:
        print_json([{**asdict(one), "comparison": summaries[one.version]} for one in described])
        return
    table = Table("", "version", "made", "by", "items", "index", "files", "own rows", "comparison", box=None)
    for one in described:
        table.add_row(
            "active" if one.is_active else "",
            str(one.version),
            f"{one.created_at:%Y-%m-%d %H:%M}",
            one.kind,
            "damaged" if one.n_items is None else f"{one.n_items:,}",
            one.index or "",
            _size(one.derived_bytes),
            _size(one.own_table_bytes),
            summaries[one.version] or "",
        )
    console.print(table)


def activate(
    name: NameArgument,
    version: int,
    as_built: Annotated[
        bool, typer.Option("--as-built", help="Without the live changes made while it was active before.")
    ] = False,
    data_dir: DataDirOption = None,
) -> None:
    """Search another version, from the next request on."""
    gallery = open_gallery(load_settings(data_dir=data_dir), name)
    activate_version(gallery, version, as_built=as_built)
    console.print(f"Gallery {name} now answers from version {version}")


def check(name: NameArgument, data_dir: DataDirOption = None, bundle: BundleOption = None) -> None:
    """Read every derived file in full, and make damaged ones again from the table."""
    settings = load_settings(data_dir=data_dir, bundle=bundle)
    gallery = open_gallery(settings, name, ModelBundle.open(settings.bundle))
    for version in gallery.versions():
        damage = check_version(gallery, version)
        console.print(
            f"Version {version} is whole" if damage is None else f"{damage}: it was made again",
            markup=False,
            soft_wrap=True,
        )


def _items_of(source: Path) -> list[SourceItem]:
    if source.suffix.lower() in IMAGE_SUFFIXES and source.is_file():
        return [SourceItem(source.name, source)]
    return read_source(source)


def _compact(reader: GalleryReader, settings: Settings) -> tuple[Compaction | None, Pruning]:
    with progress_bar() as update:
        done = compact(reader, on_progress=lambda done, total: update("Finding neighbors", done, total))
    return done, prune_gallery(reader.gallery, settings.retention)


def _print_addition(name: str, done: LiveAddition, n_items: int) -> None:
    console.print(
        f"Added {done.n_added:,} items and replaced {done.n_replaced:,}, gallery {name} holds {n_items:,}"
    )
    for failure in done.failures[:10]:
        console.print(f"  left out {failure.path}: {failure.reason}", markup=False, soft_wrap=True)
    if len(done.failures) > 10:
        console.print(f"  and {len(done.failures) - 10:,} more; the whole list is in --json")


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:,.1f} MiB"
