"""`vicinal duplicates`: which items of a gallery are copies of others, and which of them could go."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from vicinal.service.cli.console import console, errors, print_json, print_table, progress_of, say
from vicinal.service.cli.options import DataHome, GalleryOption, Home, JsonOption
from vicinal.service.duplicates.record import DuplicateOptions
from vicinal.service.errors import RequestError
from vicinal.service.operations import duplicates as operation

if TYPE_CHECKING:
    from rich.console import Console

    from vicinal.service.duplicates.record import DuplicateItem, DuplicateRecord
    from vicinal.service.operations.place import Place

_SHOWN_GROUPS = 20
_SHOWN_COPIES = 10


def duplicates(
    gallery: GalleryOption,
    request: DuplicateOptions,
    delete_list: Annotated[
        Path | None, typer.Option(dir_okay=False, help="File to write, a line for each item that could go.")
    ] = None,
    paths: Annotated[
        bool, typer.Option("--paths", help="Write paths of files to it in place of ids.")
    ] = False,
    aside: Annotated[
        bool,
        typer.Option("--set-aside", help="Set aside what could go; what stays gets the labels it lacks."),
    ] = False,
    *,
    home: DataHome,
    json_output: JsonOption = False,
) -> None:
    """Find copies: the same files, and resized, recompressed, cropped, turned or mirrored ones."""
    if paths and delete_list is None:
        raise RequestError("--paths says what --delete-list FILE holds: give that too")
    place = Home(data_dir=home.data_dir).place(gallery)
    with progress_of(operation.STAGES) as progress:
        found = operation.run(place, request, progress)
    if delete_list is not None:
        lines = [one.uri if paths else one.id for one in found.removable]
        unwritable = [line for line in lines if "\n" in line or "\r" in line or not line]
        if unwritable:
            raise RequestError(f"{unwritable[0]!r} cannot stand on a line of its own: take --json")
        delete_list.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    if json_output:
        print_json(found)
    else:
        _print(found)
    if aside and found.removable:
        _set_aside(place, found, to=errors if json_output else console)
    if delete_list is not None:
        say(f"What could go: {delete_list}", to=errors if json_output else console)


def _set_aside(place: Place, found: DuplicateRecord, *, to: Console) -> None:
    from vicinal.indexer.jobs.set_aside import set_aside
    from vicinal.service.operations.answer import user_name

    instead = {one.id: group.kept.id for group in found.groups for one in group.copies}
    done = set_aside(place.reader, [], reason="a double", by=user_name(), instead=instead)
    back = f"vicinal gallery set-aside {found.gallery} ID --back"
    say(f"Set {done.n_removed:,} aside; to bring one back: {back}", *done.conflicts[:_SHOWN_COPIES], to=to)


def _print(found: DuplicateRecord) -> None:
    from vicinal.service.words import mebibytes, number_of

    n = len(found.removable)
    say(
        f"{n:,} of {number_of(found.n_items, 'item')} of gallery {found.gallery} could go: "
        f"{number_of(found.n_exact, 'exact copy', 'exact copies')} and {found.n_near:,} changed in "
        f"{number_of(len(found.groups), 'group')}, {mebibytes(found.n_bytes)}"
    )
    say(found.sentence)
    say(*(f"note: {note}" for note in found.notes))
    if not n:
        return
    table = Table("", "id", "what", "score", "pixels", "bytes", box=None)
    for group in found.groups[:_SHOWN_GROUPS]:
        table.add_row("keep", *_cells(group.kept))
        for copy in group.copies[:_SHOWN_COPIES]:
            table.add_row("", *_cells(copy))
        if len(group.copies) > _SHOWN_COPIES:
            table.add_row("", f"and {len(group.copies) - _SHOWN_COPIES:,} more")
    print_table(table)
    if len(found.groups) > _SHOWN_GROUPS:
        more = number_of(len(found.groups) - _SHOWN_GROUPS, "more group")
        say(f"and {more}: --json shows them")
    say(f"Nothing was deleted: see --delete-list FILE and --set-aside; {found.rule}")


def _cells(one: DuplicateItem) -> tuple[str, ...]:
    score = "" if one.score is None else f"{one.score:.2f}"
    pixels = "" if one.width is None else f"{one.width} x {one.height}"
    return one.id, ", ".join(one.kinds), score, pixels, "" if one.n_bytes is None else f"{one.n_bytes:,}"
