"""`vicinal review`: what kept searches show, said in a browser, in a terminal, or by a script."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from vicinal.service.cli.console import errors, print_json, print_table, say
from vicinal.service.cli.label import BrowserOption, PortOption, local_server
from vicinal.service.cli.options import GalleryOption, Home, JsonOption
from vicinal.service.errors import RequestError, ServiceError
from vicinal.service.operations import answer as operation

if TYPE_CHECKING:
    from vicinal.service.answering.review import GivenAnswerBody, SearchQuestionBody, SearchReview
    from vicinal.service.operations.place import Place

_SAYINGS = "item=ID, label=NAME, absent, unsure or wrong=ID"
_KEYS = f"1-9 this one, n not here, ? cannot tell, u take back, q stop; or {_SAYINGS}"
_SEARCH_ID = re.compile("[0-9a-f]{32}")


def review(
    gallery: GalleryOption,
    answer: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="SEARCH SAID", help=f"Say what a search shows: {_SAYINGS}."),
    ] = None,
    take_back: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="Take an answer back, anybody's.")
    ] = None,
    terminal: Annotated[
        bool, typer.Option("--terminal", help="Ask here, a line an answer, in place of a page.")
    ] = False,
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
    this gallery is searched. Without a browser: --terminal, --answer or --json.
    """
    from vicinal.service.answering.review import SearchReview

    by = operation.user_name()
    if not (answer or take_back is not None or terminal or json_output):
        with local_server(home, port) as server:
            SearchReview(server.state.place(gallery).matcher)
            server.serve_page("review", gallery, {}, name=by, browser=browser)
            say(SearchReview(server.state.place(gallery).matcher).known().sentence)
        return
    place = home.place(gallery)
    reviewed = SearchReview(place.matcher)
    if answer is not None:
        _print_given(operation.run(place, _request(*answer), by=by), as_json=json_output)
    elif take_back is not None:
        sentence = reviewed.take_back(take_back, by=None)
        print_json({"sentence": sentence}) if json_output else say(sentence)
    elif json_output:
        asked = reviewed.next(n, by=by).questions if n else []
        print_json({"known": reviewed.known().model_dump(mode="json"), "questions": _plain(asked)})
    elif not _ask(place, reviewed, by):
        raise typer.Exit(2)


def _ask(place: Place, reviewed: SearchReview, by: str) -> bool:
    """Ask about searches until standard input ends; whether all that was said could be kept."""
    last: GivenAnswerBody | None = None
    are_kept, is_new, asked = True, True, None
    while True:
        if is_new:
            asked = next(iter(reviewed.next(1, by=by).questions), None)
            if asked is None:
                say("There is nothing left to ask about. " + reviewed.known().sentence)
                return are_kept
            _print_question(asked)
        line = sys.stdin.readline()
        words, is_new = line.split(maxsplit=1), True
        if not line or line.strip() == "q":
            say(reviewed.known().sentence)
            return are_kept
        try:
            if line.strip() == "u":
                if last is None:
                    raise RequestError("there is no answer to take back")
                reviewed.take_back(last.number, by=by)
                last = None
            elif words and asked is not None:
                said = words[-1].strip() if _SEARCH_ID.fullmatch(words[0]) else line.strip()
                search = words[0] if _SEARCH_ID.fullmatch(words[0]) else asked.search_id
                last = operation.run(place, _request(search, _spelled(said, asked)), by=by)
                _print_given(last, as_json=False)
        except (ServiceError, LookupError) as error:
            # A typing error ends nothing.
            say(f"vicinal: {error}", to=errors)
            are_kept = is_new = False


def _request(search: str, said: str) -> operation.Request:
    from vicinal.service.checked_calls import checked_options

    name, is_given, value = said.partition("=")
    field = {"item": "item_id"}.get(name, name)
    if field not in ("item_id", "label", "absent", "unsure", "wrong") or bool(is_given) == (
        field in ("absent", "unsure")
    ):
        raise RequestError(f"'{said}' says nothing of a search: say {_SAYINGS}")
    return checked_options(operation.Request, {"search_id": search, field: value if is_given else True})


def _spelled(said: str, asked: SearchQuestionBody) -> str:
    """Words that a key stands for."""
    if said.isdigit() and 1 <= int(said) <= len(asked.candidates):
        return f"item={asked.candidates[int(said) - 1].id}"
    return {"n": "absent", "?": "unsure"}.get(said, said)


def _print_question(asked: SearchQuestionBody) -> None:
    verdict = {"match": "match", "unsure": "unsure", "no_match": "no match"}.get(asked.verdict or "", "")
    say(f"Search {asked.search_id} of {asked.at:%Y-%m-%d %H:%M}: {verdict}")
    if asked.note:
        say(f"note: {asked.note}")
    table = Table("", "label", "id", "score", box=None)
    for number, one in enumerate(asked.candidates, start=1):
        table.add_row(str(number), one.label or "", one.id, f"{one.score:.4f}")
    print_table(table)
    say(_KEYS, to=errors)


def _print_given(given: GivenAnswerBody, *, as_json: bool) -> None:
    if as_json:
        print_json(given)
        return
    say(f"Answer {given.number} is kept. {given.sentence}")
    for told in (given.disagrees, given.note):
        if told:
            say(f"note: {told}")


def _plain(asked: list[Any]) -> list[Any]:
    return [one.model_dump(mode="json") for one in asked]
