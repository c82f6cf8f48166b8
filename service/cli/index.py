"""`vicinal index`: embed a folder or manifest into a gallery, or index embeddings that are ready."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from vicinal.service.cli.console import errors, print_failures, print_json, print_look, progress_of, say
from vicinal.service.cli.options import GalleryOption, Home, JsonOption, conflict_rule, end_by
from vicinal.service.errors import RequestError
from vicinal.service.operations import index as index_operation
from vicinal.service.request_fields import CommandOption
from vicinal.service.words import hygiene_lines, number_of, search_words, unread_lines

if TYPE_CHECKING:
    from vicinal.indexer.jobs.sync.plan import IndexResult
    from vicinal.service.operations.place import Place


def index(
    gallery: GalleryOption,
    home: Home,
    request: index_operation.IndexRequest,
    device: Annotated[
        str | None,
        CommandOption(after="workers"),
        typer.Option(
            metavar="cpu|cuda|cuda:N|auto",
            help="Where the network runs and neighbor lists are made, in place of VICINAL_DEVICE and "
            "VICINAL_INDEX_DEVICE; auto takes a GPU that can be used.",
        ),
    ] = None,
    replaces: Annotated[
        bool,
        CommandOption(after="device"),
        typer.Option("--replace", help="Put items in the place of other sources' items with their ids."),
    ] = False,
    skips: Annotated[
        bool,
        CommandOption(after="replaces"),
        typer.Option("--skip", help="Leave out items whose ids belong to other sources' items."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what the source holds, and write nothing.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """Take what is new or changed in a source over into a gallery, while it is searched and changed.

    What the gallery holds stays, and is not embedded again; what was removed from it stays out. A run that
    was stopped goes on where it was when it is started again over the same files.

    Exit status: 1 where something of the source could not be read, 0 where all was, 2 after an error.
    """
    request = request.deciding(conflict_rule(replaces=replaces, skips=skips))
    _require_source(request, dry_run=dry_run)
    place = home.place(gallery, is_new=True, device=device, index_device=device)
    if dry_run:
        source = index_operation.open_items(place, request)
        if source is not None:
            if request.delete:
                source.require_whole()
            if json_output:
                print_json(source.look())
            else:
                print_look(source.look())
        return
    is_ready = bool(request.space or place.gallery.space)
    stages = index_operation.STAGES | ({"embed": "Reading"} if is_ready else {})
    looked = progress_of(stages, lambda source: print_look(source.look(), as_json=json_output))
    with _told_what_to_do(gallery), looked as progress:
        result = index_operation.run(place, request, progress)
    if json_output:
        print_json(result)
    else:
        _print_build(gallery, result)
        if result.is_new and request.activate:
            _print_searches(place)
        elif result.is_new:
            comparison = home.command("compare", str(result.version), "--gallery", gallery)
            say(f"Not searched yet: `{comparison}`, then `vicinal use`")
    end_by(result.failures or result.unread)


def _require_source(request: index_operation.IndexRequest, *, dry_run: bool) -> None:
    """Refuse what is about a source where there is none."""
    if request.source is not None:
        return
    for name in ("delete", "restore", "space"):
        if getattr(request, name):
            raise RequestError(f"--{name} is about a source: name it")
    if dry_run or not request.is_read_as_usual:
        raise RequestError("name a source: without one the items that the gallery holds are indexed")


@contextmanager
def _told_what_to_do(gallery: str) -> Iterator[None]:
    """Name the options where ids are taken, and say how a run that is stopped goes on."""
    from vicinal.indexer.errors import ItemExistsError

    try:
        yield
    except ItemExistsError as error:
        advice = "nothing was indexed: take --replace, --skip or --prefix"
        raise ItemExistsError(gallery, error.item_ids, advice, error.what) from error
    except KeyboardInterrupt:
        say("vicinal: stopped; what is finished is kept, and the same command goes on from there", to=errors)
        raise


def _print_searches(place: Place) -> None:
    from vicinal.service.search.pipeline import PipelineStore

    gallery = place.gallery
    served = place.bundles.resolve(gallery, gallery.snapshot().manifest)
    active = PipelineStore(gallery.path).resolve(served.pipeline, served.bundle)
    say(f"Searches: {search_words(active.pipeline, served.bundle)}")


def _print_build(gallery: str, result: IndexResult) -> None:
    """Say what an index job made and what it found."""
    from vicinal.indexer.errors import named_ids

    counts = _counts(result)
    if not result.is_new:
        all_of_it = "all of it but what was removed" if result.left_out else "all of it"
        say(f"Nothing to do: gallery {gallery} holds {all_of_it} ({counts}), version {result.version} stays")
    else:
        rate = result.n_embedded / max(1e-9, result.seconds["embed"])
        unit = "rows/s" if result.provider == "none" else f"images/s on {result.provider}"
        speed = f", {rate:,.0f} {unit}" if result.n_embedded else ""
        say(
            f"Gallery {gallery} version {result.version}: {number_of(result.n_items, 'item')} with "
            f"{number_of(result.n_labels, 'label')}, index {result.index}{speed}"
        )
        if result.counts != {"added": result.n_items}:
            say(f"  {counts}")
    if result.remark:
        say(f"  {result.remark}")
    if result.missing:
        n_missing = result.counts["missing"]
        gone = number_of(n_missing, "item of this source is", "items of this source are")
        advice = f"remove {'it' if n_missing == 1 else 'them'} with --delete"
        say(f"  {gone} gone: {named_ids(result.missing, n_missing)}; {advice}")
    if result.left_out:
        n_left_out = result.counts["left_out"]
        earlier = number_of(
            n_left_out, "item that was removed earlier was", "items that were removed earlier were"
        )
        advice = f"--restore brings {'it' if n_left_out == 1 else 'them'} back"
        say(f"  {earlier} left out: {named_ids(result.left_out, n_left_out)}; {advice}")
    print_failures(result.failures, "--json and the report")
    say(*unread_lines(result.unread))
    say(*(f"  {line}" for line in hygiene_lines(result.hygiene)))


def _counts(result: IndexResult) -> str:
    """Numbers of items by what became of them; of the unusual outcomes those that there are."""
    from vicinal.indexer.jobs.sync.plan import SyncOutcome

    always = ("added", "changed", "unchanged", "missing") if result.counts else ()
    words = [
        f"{outcome.replace('_', ' ')} {result.counts.get(outcome, 0):,}"
        for outcome in get_args(SyncOutcome)
        if outcome in always or outcome in result.counts
    ]
    again = result.n_embedded - sum(result.counts.get(one, 0) for one in ("added", "changed", "replaced"))
    words += [f"embedded anew {again:,}"] if again > 0 else []
    return ", ".join(words) or f"kept {result.n_items:,}"
