"""`vicinal gallery compact|refine|versions|activate|check`: versions of a gallery."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from vicinal.service.cli.console import print_json, print_table, progress_bar, say
from vicinal.service.cli.options import (
    BundleOption,
    DataDirOption,
    JsonOption,
    NameArgument,
    load_settings,
    open_gallery,
    open_matcher,
)
from vicinal.service.words import mebibytes, number_of

if TYPE_CHECKING:
    from vicinal.indexer.jobs.compaction import Compaction
    from vicinal.indexer.jobs.retention import Pruning
    from vicinal.indexer.reader import GalleryReader
    from vicinal.service.settings import Settings


def compact_now(reader: GalleryReader, settings: Settings) -> tuple[Compaction | None, Pruning]:
    """Make a version of the live changes, and remove versions that are no longer kept."""
    from vicinal.indexer.jobs.compaction import compact
    from vicinal.service.galleries.versions import prune_gallery

    with progress_bar() as update:
        done = compact(
            reader, on_progress=lambda _stage, done, total, *_: update("Finding neighbors", done, total)
        )
    return done, prune_gallery(reader.gallery, settings.retention)


def compact_gallery(
    name: NameArgument,
    data_dir: DataDirOption = None,
    bundle: BundleOption = None,
    json_output: JsonOption = False,
) -> None:
    """Make a new version of the live changes now, and remove versions that are no longer kept."""
    from vicinal.indexer.reader import GalleryReader

    gallery = open_matcher(name, data_dir=data_dir, bundle=bundle).gallery
    done, pruned = compact_now(GalleryReader(gallery), load_settings(data_dir=data_dir))
    if json_output:
        print_json({"compaction": done and asdict(done), "pruning": asdict(pruned)})
        return
    say(
        f"Gallery {name} has no live changes"
        if done is None
        else f"Gallery {name} version {done.version}: {number_of(done.n_items, 'item')}, index {done.index}"
    )
    if pruned.versions:
        say(f"Removed versions {pruned.versions}, {mebibytes(pruned.bytes_freed)} freed")


def refine(
    name: NameArgument,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of the refiner; all by default.")] = None,
    data_dir: DataDirOption = None,
    bundle: BundleOption = None,
) -> None:
    """Refine the items of the active version with the bundle's refiner, while it is searched."""
    from vicinal.indexer.jobs.refinement import refine_gallery
    from vicinal.indexer.views.refined_snapshot import RefinementPlan
    from vicinal.refine.errors import RefinerNotFoundError

    matcher = open_matcher(name, data_dir=data_dir, bundle=bundle)
    refiner = matcher.refiner
    if refiner is None:
        raise RefinerNotFoundError(matcher.embedder.bundle.name)
    settings = load_settings(data_dir=data_dir)
    n_steps = steps or settings.refine_steps or refiner.n_steps
    with progress_bar() as update:
        version = refine_gallery(
            matcher.gallery,
            RefinementPlan(refiner, n_steps, device=settings.device),
            on_progress=lambda _stage, done, total, *_: update("Refining", done, total),
        )
    say(f"Gallery {name} version {version}: refined by {refiner.fingerprint} in {number_of(n_steps, 'step')}")


def versions(name: NameArgument, data_dir: DataDirOption = None, json_output: JsonOption = False) -> None:
    """Versions of a gallery, newest first, with what each takes on the disk."""
    from vicinal.indexer.jobs.retention import describe_versions
    from vicinal.service.comparing.store import ComparisonStore

    gallery = open_gallery(load_settings(data_dir=data_dir), name)
    described = describe_versions(gallery)
    summaries = ComparisonStore(gallery).summaries()
    if json_output:
        print_json([{**asdict(one), "comparison": summaries.get(one.version)} for one in described])
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
            mebibytes(one.derived_bytes),
            mebibytes(one.own_table_bytes),
            summaries.get(one.version, ""),
        )
    print_table(table)


def activate(
    name: NameArgument,
    version: int,
    as_built: Annotated[
        bool, typer.Option("--as-built", help="Without the live changes made while it was active before.")
    ] = False,
    data_dir: DataDirOption = None,
) -> None:
    """Search another version, from the next request on."""
    from vicinal.service.galleries.versions import activate_version

    gallery = open_gallery(load_settings(data_dir=data_dir), name)
    activate_version(gallery, version, as_built=as_built)
    say(f"Gallery {name} now answers from version {version}")


def check(name: NameArgument, data_dir: DataDirOption = None, bundle: BundleOption = None) -> None:
    """Read every file in full, make damaged ones of versions again, and say what to do about others."""
    from vicinal.service.galleries.bundles import ServedBundles
    from vicinal.service.galleries.versions import check_version
    from vicinal.service.records import damaged_records
    from vicinal.service.words import command_names

    settings = load_settings(data_dir=data_dir, bundle=bundle)
    gallery = open_gallery(settings, name)
    # First, because a damaged pointer ends the rest.
    damaged = damaged_records(gallery, command_names)
    for line in damaged:
        say(line)
    ServedBundles(settings).resolve(gallery, None)
    for version in gallery.versions():
        damage = check_version(gallery, version)
        say(f"Version {version} is whole" if damage is None else f"{damage}: it was made again")
    if damaged:
        raise typer.Exit(2)
