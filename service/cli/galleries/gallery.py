"""`vicinal gallery`: list, show, change, roll back and delete galleries."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from vicinal.service.cli.console import (
    console,
    errors,
    print_failures,
    print_json,
    print_table,
    progress_of,
    say,
)
from vicinal.service.cli.galleries import transfer, versions
from vicinal.service.cli.options import (
    BundleOption,
    DataDirOption,
    JsonOption,
    NameArgument,
    conflict_rule,
    load_settings,
    open_gallery,
    open_place,
)
from vicinal.service.errors import RequestError
from vicinal.service.operations import add as add_operation
from vicinal.service.request_fields import CommandOption
from vicinal.service.surfaces.command_line import from_options
from vicinal.service.words import look_lines, number_of, search_words, unread_lines

if TYPE_CHECKING:
    from vicinal.indexer.gallery import Gallery
    from vicinal.indexer.jobs.source_addition import LiveAddition
    from vicinal.indexer.reader import GalleryReader
    from vicinal.indexer.sources import EmbeddingSource, Source
    from vicinal.service.settings import Settings

app = typer.Typer(help="List, show, change, roll back and delete galleries.", no_args_is_help=True)
app.command("compact")(versions.compact_gallery)
app.command("refine")(versions.refine)
app.command("versions")(versions.versions)
app.command("activate")(versions.activate)
app.command("check")(versions.check)
app.command("export")(transfer.export)
app.command("import")(transfer.import_archive)
app.command("copy")(transfer.copy)
app.command("rename")(transfer.rename)
app.command("alias")(transfer.alias)


@app.command("list")
def list_all(data_dir: DataDirOption = None, json_output: JsonOption = False) -> None:
    """All galleries."""
    from vicinal.indexer.gallery import list_galleries
    from vicinal.service.galleries.open_galleries import UNREADABLE
    from vicinal.service.words import in_commands

    settings = load_settings(data_dir=data_dir)
    rows, problems = [], {}
    for gallery in list_galleries(settings.galleries_path):
        try:
            rows.append(_summary(gallery.name, data_dir))
        except UNREADABLE as error:
            problems[gallery.name] = in_commands(error)
    if json_output:
        print_json([*rows, *({"name": name, "problem": reason} for name, reason in problems.items())])
        return
    if not rows and not problems:
        say(f"No galleries in {settings.galleries_path}: make one with `vicinal index`")
        return
    table = Table("name", "version", "items", "labels", "index", "embedded by", "aliases", box=None)
    for row in rows:
        names = ("name", "version", "n_items", "n_labels", "index")
        cells = (str(row[key]) for key in names)
        table.add_row(*cells, row["space"] or row["bundle"], ", ".join(row["aliases"]))
    if rows:
        print_table(table)
    for name, reason in problems.items():
        say(f"Gallery {name} cannot be opened: {reason}")


@app.command("show")
def show(
    name: NameArgument,
    data_dir: DataDirOption = None,
    bundle: BundleOption = None,
    json_output: JsonOption = False,
) -> None:
    """What a gallery holds, how it is searched, and what its threshold promises; all of it with --json."""
    from vicinal.service.galleries.bundles import ServedBundles
    from vicinal.service.measuring.records.store import CalibrationStore
    from vicinal.service.reports.gallery import gallery_lines

    settings = load_settings(data_dir=data_dir, bundle=bundle)
    gallery = open_gallery(settings, name)
    if not json_output:
        for line in gallery_lines(gallery, ServedBundles(settings)):
            say(line)
        return
    summary = _summary(name, data_dir)
    calibrations = CalibrationStore(gallery.calibrations_path).history()
    print_json(
        {
            **summary,
            **_searches(settings, gallery),
            "versions": gallery.versions(),
            "report": gallery.reports.of(summary["version"]),
            "calibrations": [record.model_dump(mode="json") for record in calibrations],
        }
    )


@app.command("add")
@from_options
def add(
    name: NameArgument,
    request: add_operation.Request,
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
    data_dir: DataDirOption = None,
    bundle: BundleOption = None,
    json_output: JsonOption = False,
) -> None:
    """Add images or embeddings while the gallery is searched; what is there stays without --replace."""
    from vicinal.indexer.errors import ItemExistsError

    request = request.deciding(conflict_rule(replaces=replaces, skips=skips))
    place = open_place(name, data_dir=data_dir, bundle=bundle)
    unread: dict[str, str] = {}

    def show(source: Source | EmbeddingSource) -> None:
        unread.update(source.unread)
        look = source.look()
        for line in look_lines(look if request.label is None else look.with_one_label()):
            say(line, to=errors if json_output else console)

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
        for line in unread_lines(unread):
            say(line)


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
    data_dir: DataDirOption = None,
) -> None:
    """Remove items while the gallery is searched: all of them, or none when one is not there."""
    from vicinal.indexer.jobs.changes import remove_items
    from vicinal.indexer.reader import GalleryReader

    if bool(ids) == (list_file is not None):
        raise RequestError("name the items, or give --from FILE")
    listed = [] if list_file is None else list_file.read_text(encoding="utf-8").split("\n")
    reader = GalleryReader(open_gallery(load_settings(data_dir=data_dir), name))
    change = remove_items(reader, ids or [line for line in listed if line])
    say(f"Removed {number_of(change.n_removed, 'item')}, gallery {name} holds {len(reader.view()):,}")


@app.command("delete")
def delete(
    name: NameArgument,
    data_dir: DataDirOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove a gallery with all its versions and calibrations."""
    gallery = open_gallery(load_settings(data_dir=data_dir), name)
    if not yes and not typer.confirm(f"Delete gallery {name} and all its versions?"):
        raise RequestError("nothing was deleted")
    gallery.delete()
    say(f"Gallery {name} is gone")


def _compact_if_due(reader: GalleryReader, settings: Settings) -> None:
    from vicinal.indexer.errors import GalleryBusyError

    if not settings.compaction.is_due(reader.view()):
        return
    try:
        versions.compact_now(reader, settings)
    except GalleryBusyError as error:
        # The items are there all the same; whoever is at it, or the next change, compacts them.
        say(f"Not compacted now: {error}", to=errors)


def _print_addition(name: str, done: LiveAddition, n_items: int) -> None:
    others = {
        "replaced": done.n_replaced,
        "skipped": done.n_skipped,
        "unchanged": done.n_unchanged,
    }
    counts = "".join(f", {word} {count:,}" for word, count in others.items())
    say(f"Added {number_of(done.n_added, 'item')}{counts}; gallery {name} holds {n_items:,}")
    print_failures(done.failures, "--json")


def _searches(settings: Settings, gallery: Gallery) -> dict[str, Any]:
    """Stages and threshold of its searches; None where its bundle is not here."""
    from vicinal.indexer.errors import BundleMismatchError
    from vicinal.service.galleries.bundles import ServedBundles

    try:
        matcher = ServedBundles(settings).matcher(gallery)
    except BundleMismatchError:
        return {"searches": None, "threshold": None}
    words = search_words(matcher.pipeline, matcher.embedder.bundle)
    return {"searches": words, "threshold": asdict(matcher.threshold())}


def _summary(name: str, data_dir: Any) -> dict[str, Any]:
    from vicinal.indexer.reader import GalleryReader

    gallery = open_gallery(load_settings(data_dir=data_dir), name)
    view, space = GalleryReader(gallery).view(), gallery.space
    present = {
        "revision": view.revision,
        "n_items": len(view),
        "n_labels": view.n_labels,
        "graph_staleness": view.graph_staleness,
        "aliases": gallery.aliases,
        "space": space and f"{space.space}@{space.version}",
    }
    built = view.snapshot.manifest.model_dump(exclude={"files", "next_number"})
    return {"name": gallery.name, **built, **present}
