"""`vicinal review`: what kept searches show, said in a browser or by a script."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from vicinal.service.cli.console import errors, print_json, print_table, say
from vicinal.service.cli.label import BrowserOption, PortOption, lent_key, local_server
from vicinal.service.cli.options import GalleryOption, Home, JsonOption
from vicinal.service.errors import RequestError
from vicinal.service.operations import answer as operation
from vicinal.service.words import number_of

if TYPE_CHECKING:
    from vicinal.service.answering.review import GivenAnswerBody
    from vicinal.service.operations.place import Place

# As many as `answering.additions` adds where nobody says how many.
A_LABEL = 2
_SAYINGS = "item=ID, label=NAME, absent, unsure or wrong=ID"


def review(
    gallery: GalleryOption,
    answer: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="SEARCH SAID", help=f"Say what a search shows: {_SAYINGS}."),
    ] = None,
    take_back: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="Take an answer back, anybody's.")
    ] = None,
    take_back_all: Annotated[
        str | None, typer.Option(metavar="NAME", help="Take back all that a person, or a key, said.")
    ] = None,
    add: Annotated[
        bool,
        typer.Option(
            "--add", help="Make searches items that persons agree on: first those that were missed."
        ),
    ] = False,
    a_label: Annotated[
        int, typer.Option(min=1, max=100, metavar="N", help="With --add: most such items of a label.")
    ] = A_LABEL,
    add_search: Annotated[
        list[str] | None, typer.Option(metavar="SEARCH", help="Make this search an item, and no others.")
    ] = None,
    remove_added: Annotated[
        str | None, typer.Option(metavar="SEARCH", help="Remove the item that this search became.")
    ] = None,
    n: Annotated[
        int, typer.Option("-n", min=0, max=20, help="Questions that --json prints; they count as asked.")
    ] = 1,
    port: PortOption = 0,
    browser: BrowserOption = True,
    *,
    home: Home,
    json_output: JsonOption = False,
) -> None:
    """Say what the searches show that a service kept: whether the gallery has it, and which label it is.

    Searches are kept where keep_searches is set. They are drawn by chance, so that the answers tell how well
    this gallery is searched. Without a browser: --answer or --json.
    """
    from vicinal.service.answering.review import SearchReview
    from vicinal.service.answering.why import explain_wrong

    by = operation.user_name()
    if add or add_search or remove_added is not None:
        place = home.place(gallery)
        if remove_added is not None:
            _print_removed(place, remove_added, as_json=json_output)
        else:
            _add(place, a_label, add_search, as_json=json_output)
        return
    takes_back = take_back is not None or take_back_all is not None
    if not (answer or takes_back or json_output):
        with local_server(home, port) as server:
            SearchReview(server.state.place(gallery).matcher)
            # What was wrongly matched can be set aside there.
            grant = lent_key(by, gallery, ("search", "write", "admin"))
            server.serve_page("review", gallery, {}, grant, browser=browser)
            say(SearchReview(server.state.place(gallery).matcher).known().sentence)
        return
    place = home.place(gallery)
    reviewed = SearchReview(place.matcher)
    if answer is not None:
        said = _request(*answer)
        _print_given(operation.run(place, said, by=by), as_json=json_output)
        if said.wrong is not None and not json_output:
            # It is kept, whether or not it can be searched for again.
            with suppress(RequestError):
                say(f"note: {explain_wrong(place.matcher, said.search_id, said.wrong).sentence}")
        _try_promise(place)
    elif takes_back:
        sentence = "" if take_back is None else reviewed.take_back(take_back, by=None)
        sentence = sentence if take_back_all is None else reviewed.take_back_all(take_back_all)
        print_json({"sentence": sentence}) if json_output else say(sentence)
        _try_promise(place)
    else:
        asked = reviewed.next(n, by=by).questions if n else []
        print_json({"known": reviewed.known(), "questions": asked})


def _try_promise(place: Place) -> None:
    """Say what was promised where the answers show that it does not hold."""
    from vicinal.service.answering.promise_watch import try_promise

    found = try_promise(place.matcher)
    if found is not None and found.verdict == "broken":
        say(found.sentence, to=errors)


def _add(place: Place, a_label: int, only: list[str] | None, *, as_json: bool) -> None:
    from vicinal.indexer.jobs.compaction import compact
    from vicinal.service.answering.additions import add_confirmed

    done = add_confirmed(place.reader, place.matcher.embedder, a_label=a_label, only=only)
    if done.added and not only:
        # Calibrations measure what is built.
        compact(place.reader)
    if as_json:
        print_json(done)
        return
    table = Table("search", "item", "label", box=None)
    for one in done.added:
        table.add_row(one.search_id, one.item_id, one.label)
    if done.added:
        print_table(table)
    for passed in done.passed:
        say(f"Search {passed.search_id} became no item: {passed.reason}")
    said = f"{number_of(len(done.added), 'search', 'searches')} became items"
    if done.n_waiting:
        said += (
            f"; {done.n_waiting:,} more are agreed on, of labels that have {a_label} or a visit that has one"
        )
    say(f"{said}.")


def _print_removed(place: Place, search: str, *, as_json: bool) -> None:
    from vicinal.service.answering.additions import remove_added

    item_id = remove_added(place.reader, search)
    if as_json:
        print_json({"item_id": item_id})
    else:
        say(f"Item {item_id} is gone.")


def _request(search: str, said: str) -> operation.AnswerRequest:
    from vicinal.service.checked_calls import checked_options

    name, is_given, value = said.partition("=")
    field = {"item": "item_id"}.get(name, name)
    if field not in ("item_id", "label", "absent", "unsure", "wrong") or bool(is_given) == (
        field in ("absent", "unsure")
    ):
        raise RequestError(f"'{said}' says nothing of a search: say {_SAYINGS}")
    return checked_options(operation.AnswerRequest, {"search_id": search, field: value if is_given else True})


def _print_given(given: GivenAnswerBody, *, as_json: bool) -> None:
    if as_json:
        print_json(given)
        return
    say(f"Answer {given.number} is kept. {given.sentence}")
    for told in (given.disagrees, given.note):
        if told:
            say(f"note: {told}")
