"""`vicinal search`: search without a server."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from vicinal.service.cli.console import print_json, print_table, say
from vicinal.service.cli.options import GalleryOption, Home, JsonOption
from vicinal.service.request_fields import SearchOptions
from vicinal.service.words import number_of

if TYPE_CHECKING:
    from vicinal.calibration.arrays import AnyArray
    from vicinal.service.search.answers import Answer, FoundGroup


def search(
    *,
    gallery: GalleryOption,
    query: Annotated[
        Path | None, typer.Argument(help="The image to search for, or an .npy file of embeddings.")
    ] = None,
    item: Annotated[
        str | None, typer.Option(help="Search for this item of the gallery, as if it were not in it.")
    ] = None,
    options: SearchOptions,
    home: Home,
    json_output: JsonOption = False,
) -> None:
    """Find the matches of an image, an embedding or an item, or learn that there is none."""
    from vicinal.service.measuring.matcher import measuring_command

    matcher = home.matcher(gallery)
    is_array = query is not None and query.suffix.lower() == ".npy"
    answers = matcher.search(
        images=[query] if query is not None and not is_array else None,
        embeddings=_read_embeddings(query) if query is not None and is_array else None,
        item_ids=None if item is None else [item],
        **dict(options),
    )
    if json_output:
        print_json(answers[0] if len(answers) == 1 else answers)
        return
    group = matcher.pipeline.group if options.group_by == "auto" else None
    by = group.by if group else None if options.group_by in ("auto", "off") else options.group_by
    advised = measuring_command(matcher.gallery, "" if by is None else f" --group-by {shlex.quote(by)}")
    for number, answer in enumerate(answers, start=1):
        if len(answers) > 1:
            say(f"Embedding {number} of {len(answers)}")
        _print_answer(answer, advised)


def _read_embeddings(path: Path) -> AnyArray:
    import numpy as np

    from vicinal.service.errors import RequestError

    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except (EOFError, ValueError) as error:
        raise RequestError(f"'{path}' is no .npy file of embeddings: {error}") from error


def _print_answer(answer: Answer, calibrated_by: str) -> None:
    threshold = answer.threshold
    if answer.no_match is None:
        say(f"No threshold to decide by: {threshold.reason}")
        say(f"Calibrate with `{calibrated_by}`. Most similar:")
    else:
        found = number_of(len(answer.matches), "match", "matches")
        if answer.groups is not None:
            found = number_of(len(answer.groups), "matching group")
        verdict = {"match": found, "unsure": "Unsure"}.get(answer.verdict or "", "No match")
        is_broken = threshold.state == "broken"
        reason = "which does not hold" if is_broken else threshold.reason
        detail = ", ".join(part for part in (threshold.target, reason) if part)
        say(f"{verdict} at threshold {threshold.value:.4f} ({detail})")
        if is_broken:
            say(f"note: {threshold.reason}")
        if answer.reason:
            say(answer.reason)
        if threshold.note:
            say(f"note: {threshold.note}")
    if answer.left_out:
        from vicinal.indexer.errors import named_ids

        say(f"note: a person called these different from this picture: {named_ids(answer.left_out)}")
    if answer.groups is not None:
        _print_groups(answer.groups, answer.candidate_groups or [])
        return
    rows = [("match", one) for one in answer.matches] + [("", one) for one in answer.candidates]
    if rows:
        table = Table("rank", "", "label", "id", "score", "similarity", box=None)
        for kind, one in rows:
            table.add_row(
                str(one.rank), kind, one.label or "", one.id, f"{one.score:.4f}", f"{one.similarity:.4f}"
            )
        print_table(table)


def _print_groups(matched: Sequence[FoundGroup], others: Sequence[FoundGroup]) -> None:
    """Print a line a group, and its best photos below it."""
    table = Table("rank", "", "group", "photos", "score", box=None)
    for kind, found in (("match", matched), ("", others)):
        for one in found:
            name = one.items[0].id if one.group is None else one.group
            table.add_row(str(one.rank), kind, name, f"{one.n_items:,}", f"{one.score:.4f}")
            for item in one.items:
                table.add_row("", "", f"  {item.id}", "", f"  {item.score:.4f}")
    if matched or others:
        print_table(table)
