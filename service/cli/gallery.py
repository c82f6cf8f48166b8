"""`vicinal gallery`: list, show, change, roll back and delete galleries, and their versions."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from vicinal.service.cli import transfer
from vicinal.service.cli.console import (
    errors,
    print_failures,
    print_json,
    print_look,
    print_table,
    progress_bar,
    progress_of,
    say,
)
from vicinal.service.cli.options import DataHome, Home, JsonOption, NameArgument, conflict_rule, end_by
from vicinal.service.errors import RequestError
from vicinal.service.operations import add as add_operation
from vicinal.service.request_fields import CommandOption
from vicinal.service.surfaces.command_line import Commands
from vicinal.service.words import mebibytes, number_of, search_words, unread_lines

if TYPE_CHECKING:
    from vicinal.indexer.gallery import Gallery
    from vicinal.indexer.jobs.compaction import Compaction
    from vicinal.indexer.jobs.retention import Pruning
    from vicinal.indexer.jobs.source_addition import LiveAddition
    from vicinal.indexer.reader import GalleryReader
    from vicinal.indexer.sources import EmbeddingSource, Source
    from vicinal.service.galleries.bundles import ServedBundles
    from vicinal.service.settings import Settings

app = Commands(help="List, show, change, roll back and delete galleries.", no_args_is_help=True)


@app.command("compact")
def compact_gallery(name: NameArgument, home: Home, json_output: JsonOption = False) -> None:
    """Make a new version of the live changes now, and remove versions that are no longer kept."""
    from vicinal.indexer.reader import GalleryReader

    done, pruned = _compact_now(GalleryReader(home.matcher(name).gallery), home.settings())
    if json_output:
        print_json({"compaction": done, "pruning": pruned})
        return
    say(
        f"Gallery {name} has no live changes"
        if done is None
        else f"Gallery {name} version {done.version}: {number_of(done.n_items, 'item')}, index {done.index}"
    )
    if pruned.versions:
        say(f"Removed versions {pruned.versions}, {mebibytes(pruned.bytes_freed)} freed")


@app.command("refine")
def refine(
    name: NameArgument,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of the refiner; all by default.")] = None,
    *,
    home: Home,
) -> None:
    """Refine the items of the active version with the bundle's refiner, while it is searched."""
    from vicinal.indexer.jobs.refinement import refine_gallery
    from vicinal.indexer.views.refined_snapshot import RefinementPlan
    from vicinal.refine.errors import RefinerNotFoundError

    matcher = home.matcher(name)
    refiner = matcher.refiner
    if refiner is None:
        raise RefinerNotFoundError(matcher.embedder.bundle.name)
    settings = home.settings()
    n_steps = steps or settings.refine_steps or refiner.n_steps
    with progress_bar() as update:
        version = refine_gallery(
            matcher.gallery,
            RefinementPlan(refiner, n_steps, device=settings.device),
            on_progress=lambda _stage, done, total, *_: update("Refining", done, total),
        )
    say(f"Gallery {name} version {version}: refined by {refiner.fingerprint} in {number_of(n_steps, 'step')}")


@app.command("versions")
def versions(name: NameArgument, home: DataHome, json_output: JsonOption = False) -> None:
    """Versions of a gallery, newest first, with what each takes on the disk."""
    from vicinal.indexer.jobs.retention import describe_versions
    from vicinal.service.comparing.store import ComparisonStore

    gallery = home.gallery(name)
    described = describe_versions(gallery)
    summaries = ComparisonStore(gallery.path).summaries()
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


@app.command("activate")
def activate(
    name: NameArgument,
    version: int,
    as_built: Annotated[
        bool, typer.Option("--as-built", help="Without the live changes made while it was active before.")
    ] = False,
    *,
    home: DataHome,
) -> None:
    """Search another version, from the next request on."""
    from vicinal.service.galleries.versions import activate_version

    activate_version(home.gallery(name), version, as_built=as_built)
    say(f"Gallery {name} now answers from version {version}")


@app.command("check")
def check(name: NameArgument, home: Home) -> None:
    """Read every file in full, make damaged ones of versions again, and say what to do about others."""
    from vicinal.service.galleries.versions import check_version
    from vicinal.service.records import damaged_records
    from vicinal.service.words import command_names

    gallery = home.gallery(name)
    # First, because a damaged pointer ends the rest.
    damaged = damaged_records(gallery, command_names)
    say(*damaged)
    home.bundles().resolve(gallery, None)
    for version in gallery.versions():
        damage = check_version(gallery, version)
        say(f"Version {version} is whole" if damage is None else f"{damage}: it was made again")
    if damaged:
        raise typer.Exit(2)


app.command("export")(transfer.export)
app.command("import")(transfer.import_archive)
app.command("copy")(transfer.copy)
app.command("rename")(transfer.rename)
app.command("alias")(transfer.alias)


@app.command("list")
def list_all(home: DataHome, json_output: JsonOption = False) -> None:
    """All galleries."""
    from vicinal.indexer.gallery import list_galleries
    from vicinal.service.galleries.open_galleries import UNREADABLE
    from vicinal.service.words import in_commands

    folder, rows, problems = home.settings().galleries_path, [], {}
    for gallery in list_galleries(folder):
        try:
            rows.append(_summary(home.gallery(gallery.name)))
        except UNREADABLE as error:
            problems[gallery.name] = in_commands(error)
    if json_output:
        print_json([*rows, *({"name": name, "problem": reason} for name, reason in problems.items())])
        return
    if not rows and not problems:
        say(f"No galleries in {folder}: make one with `vicinal index`")
        return
    table = Table("name", "version", "items", "labels", "index", "embedded by", "aliases", box=None)
    for row in rows:
        cells = (str(row[key]) for key in ("name", "version", "n_items", "n_labels", "index"))
        table.add_row(*cells, row["space"] or row["bundle"], ", ".join(row["aliases"]))
    if rows:
        print_table(table)
    say(*(f"Gallery {name} cannot be opened: {reason}" for name, reason in problems.items()))


@app.command("show")
def show(name: NameArgument, home: Home, json_output: JsonOption = False) -> None:
    """What a gallery holds, how it is searched, and what its threshold promises; all of it with --json."""
    from vicinal.indexer.reader import GalleryReader
    from vicinal.service.answering.store import SearchStore
    from vicinal.service.measuring.records.store import CalibrationStore
    from vicinal.service.reports.gallery import gallery_lines, hygiene_now

    gallery, bundles = home.gallery(name), home.bundles()
    if not json_output:
        say(*gallery_lines(gallery, bundles))
        return
    summary, (n_kept, n_bytes) = _summary(gallery), SearchStore(gallery.path).readable
    report, view = gallery.reports.of(summary["version"]), GalleryReader(gallery).view()
    print_json(
        {
            **summary,
            **_searches(bundles, gallery),
            "versions": gallery.versions(),
            "report": {**report, "hygiene": asdict(hygiene_now(gallery, view, report))},
            "calibrations": CalibrationStore(gallery.path).history(),
            "kept_searches": n_kept,
            "kept_searches_bytes": n_bytes,
        }
    )


@app.command("add")
def add(
    name: NameArgument,
    request: add_operation.AddRequest,
    replaces: Annotated[
        bool,
        CommandOption(after="label"),
        typer.Option("--replace", help="Put them in the place of others with their ids."),
    ] = False,
    skips: Annotated[
        bool,
        CommandOption(after="replaces"),
        typer.Option("--skip", help="Leave out those whose ids belong to others."),
    ] = False,
    *,
    home: Home,
    json_output: JsonOption = False,
) -> None:
    """Add images or embeddings while the gallery is searched; what is there stays without --replace."""
    from vicinal.indexer.errors import ItemExistsError

    request = request.deciding(conflict_rule(replaces=replaces, skips=skips))
    place = home.place(name)
    unread: dict[str, str] = {}

    def show(source: Source | EmbeddingSource) -> None:
        unread.update(source.unread)
        look = source.look()
        print_look(look if request.label is None else look.with_one_label(), as_json=json_output)

    try:
        with progress_of(add_operation.STAGES, show) as progress:
            done = add_operation.run(place, request, progress)
    except ItemExistsError as error:
        advice = "nothing was added: take --replace or --skip"
        raise ItemExistsError(name, error.item_ids, advice, error.what) from error
    reader = place.reader
    _compact_if_due(reader, place.settings)
    if json_output:
        print_json({**asdict(done), "n_items": len(reader.view()), "unread": unread})
    else:
        _print_addition(name, done, len(reader.view()))
        say(*unread_lines(unread))
    end_by(done.failures or unread)


@app.command("remove")
def remove(
    name: NameArgument,
    ids: Annotated[list[str] | None, typer.Argument(help="Ids of the items.")] = None,
    list_file: Annotated[
        Path | None,
        typer.Option(
            "--from", exists=True, dir_okay=False, help="File with one id a line, such as a delete list."
        ),
    ] = None,
    *,
    home: DataHome,
) -> None:
    """Remove items while the gallery is searched: all of them, or none when one is not there."""
    from vicinal.indexer.jobs.changes import remove_items
    from vicinal.indexer.reader import GalleryReader

    if bool(ids) == (list_file is not None):
        raise RequestError("name the items, or give --from FILE")
    listed = [] if list_file is None else list_file.read_text(encoding="utf-8").split("\n")
    reader = GalleryReader(home.gallery(name))
    change = remove_items(reader, ids or [line for line in listed if line])
    say(f"Removed {number_of(change.n_removed, 'item')}, gallery {name} holds {len(reader.view()):,}")


@app.command("set-aside")
def set_aside_items(
    name: NameArgument,
    ids: Annotated[
        list[str] | None, typer.Argument(help="Ids of the items; without any they are listed.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Why, in words for others.")] = None,
    back: Annotated[bool, typer.Option("--back", help="Bring them back, as they were.")] = False,
    *,
    home: DataHome,
    json_output: JsonOption = False,
) -> None:
    """Set items aside: no search and no calibration finds them until they are brought back."""
    from vicinal.indexer.jobs.set_aside import bring_back, listed_aside, set_aside
    from vicinal.indexer.reader import GalleryReader
    from vicinal.service.operations.answer import user_name

    reader = GalleryReader(home.gallery(name))
    if ids and back:
        for one in ids:
            bring_back(reader, one)
            say(f"Item {one} is found again")
    elif ids:
        if not reason:
            raise RequestError("say why, by --reason")
        change = set_aside(reader, ids, reason=reason, by=user_name())
        say(f"Set {number_of(change.n_removed, 'item')} aside, gallery {name} holds {len(reader.view()):,}")
    elif json_output:
        print_json([asdict(one) for one in listed_aside(reader)])
    else:
        table = Table("id", "label", "since", "by", "reason", box=None)
        for item in listed_aside(reader):
            table.add_row(item.id, item.label or "", f"{item.at:%Y-%m-%d %H:%M}", item.by, item.reason)
        print_table(table)


@app.command("delete")
def delete(
    name: NameArgument,
    home: DataHome,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove a gallery with all its versions and calibrations."""
    gallery = home.gallery(name)
    if not yes and not typer.confirm(f"Delete gallery {name} and all its versions?"):
        raise RequestError("nothing was deleted")
    gallery.delete()
    say(f"Gallery {name} is gone")


def _compact_now(reader: GalleryReader, settings: Settings) -> tuple[Compaction | None, Pruning]:
    """Make a version of the live changes, and remove versions that are no longer kept."""
    from vicinal.indexer.jobs.compaction import compact
    from vicinal.service.galleries.versions import prune_gallery

    with progress_bar() as update:
        done = compact(
            reader, on_progress=lambda _stage, done, total, *_: update("Finding neighbors", done, total)
        )
    return done, prune_gallery(reader.gallery, settings.retention)


def _compact_if_due(reader: GalleryReader, settings: Settings) -> None:
    from vicinal.indexer.errors import GalleryBusyError

    if not settings.compaction.is_due(reader.view()):
        return
    try:
        _compact_now(reader, settings)
    except GalleryBusyError as error:
        # The items are there all the same; whoever is at it, or the next change, compacts them.
        say(f"Not compacted now: {error}", to=errors)


def _print_addition(name: str, done: LiveAddition, n_items: int) -> None:
    others = {"replaced": done.n_replaced, "skipped": done.n_skipped, "unchanged": done.n_unchanged}
    counts = "".join(f", {word} {count:,}" for word, count in others.items())
    say(f"Added {number_of(done.n_added, 'item')}{counts}; gallery {name} holds {n_items:,}")
    print_failures(done.failures, "--json")


def _searches(bundles: ServedBundles, gallery: Gallery) -> dict[str, Any]:
    """Stages and threshold of its searches, None where its bundle is not here, and what that promises."""
    from vicinal.indexer.errors import BundleMismatchError
    from vicinal.service.reports.report import say_promise

    try:
        matcher = bundles.matcher(gallery)
    except BundleMismatchError:
        return {"searches": None, "threshold": None, "promise": ()}
    words = search_words(matcher.pipeline, matcher.embedder.bundle)
    return {"searches": words, "threshold": matcher.threshold(), "promise": say_promise(matcher)}


def _summary(gallery: Gallery) -> dict[str, Any]:
    from vicinal.indexer.reader import GalleryReader

    view, space = GalleryReader(gallery).view(), gallery.space
    present = {
        "revision": view.revision,
        "n_items": len(view),
        "n_labels": view.n_labels,
        "graph_staleness": view.graph_staleness,
        "aliases": gallery.aliases,
        "space": space and f"{space.space}@{space.version}",
    }
    built = view.snapshot.manifest.model_dump(exclude={"files", "next_number", "table"})
    return {"name": gallery.name, **built, **present}
