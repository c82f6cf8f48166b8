"""`vicinal label`: a threshold for a gallery without labels, from answers on a page of its own."""

from __future__ import annotations

import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote, urlencode

import typer

from vicinal.service.cli.calibration import print_promise
from vicinal.service.cli.console import errors, say
from vicinal.service.cli.options import GalleryOption, Home
from vicinal.service.operations import label as operation

if TYPE_CHECKING:
    import socket

    from fastapi import FastAPI

    from vicinal.service.http.state import State
    from vicinal.service.keys import Grant
    from vicinal.service.settings import Scope

PortOption = Annotated[
    int, typer.Option(min=0, max=65_535, help="Port of the page; any free one by default.")
]
BrowserOption = Annotated[bool, typer.Option(help="Open the page in a browser.")]


@dataclass(frozen=True)
class LocalServer:
    """A server that is not begun yet."""

    app: FastAPI
    listener: socket.socket

    @property
    def state(self) -> State:
        """State of its application."""
        from vicinal.service.http.state import state_of

        return state_of(self.app)

    def serve_page(
        self, place: str, gallery: str, asked: Mapping[str, str], grant: Grant, *, browser: bool
    ) -> None:
        """Serve a place of the page about a gallery until that is stopped; `grant` is what its key may."""
        from vicinal.service.http.serving.server import serve_until_stopped

        # Programs see a browser's arguments: the token is of no use when its page is open.
        token = self.state.keyring.offer(grant)
        server = f"http://{self.state.settings.host}:{self.listener.getsockname()[1]}"
        opened = urlencode({**asked, "token": token})
        address = f"{server}/#/g/{quote(gallery, safe='')}/{place}?{opened}"
        say(f"Answer at {address} (it opens once)", "Stop with Ctrl-C; answers are kept.", to=errors)
        if browser:
            webbrowser.open(address)
        serve_until_stopped(self.app, self.listener)


def lent_key(name: str, gallery: str, scopes: tuple[Scope, ...]) -> Grant:
    """Rights of the key that a page gets, for one gallery; `name` is who answers there."""
    from vicinal.service.keys import Grant

    # Others may be logged in here: no other key is one.
    return Grant(name=name, scopes=scopes, galleries=(gallery,), folders=())


@contextmanager
def local_server(home: Home, port: int) -> Iterator[LocalServer]:
    """A server on this machine alone, whose only key is that of the page that is served."""
    from vicinal.service.http.app import create_app
    from vicinal.service.http.serving.server import listen

    settings = home.settings().model_copy(
        update={
            "api_keys": {},
            "stored_keys": False,
            "host": "127.0.0.1",
            "allowed_hosts": (),
            "cors_origins": (),
            "run_jobs": False,
        }
    )
    with listen(settings.host, port) as listener:
        yield LocalServer(create_app(settings), listener)


def label(
    gallery: GalleryOption,
    request: operation.LabelRequest,
    port: PortOption = 0,
    browser: BrowserOption = True,
    *,
    home: Home,
) -> None:
    """Find a threshold without labels: look at pairs of photos, and say of each whether it is the same thing.

    One to two hundred answers, one key each, take ten minutes. A stopped session goes on where it was.
    """
    with local_server(home, port) as server:
        session = operation.run(server.state.place(gallery), request)
        n_answers = len(session.answers())
        if n_answers:
            say(f"{n_answers} answers are there already: the session goes on.", to=errors)
        grant = lent_key("label", gallery, ("search", "admin"))
        server.serve_page("pairs", gallery, {"target": request.target}, grant, browser=browser)
    matcher = server.state.galleries.matcher(gallery)
    record = next((one for one in matcher.calibrations.history() if one.id == session.head.id), None)
    if record is None:
        again = home.command("label", "-g", gallery)
        say(f"{len(session.answers())} answers are kept: go on by `{again}`.")
    else:
        print_promise(record, gallery, matcher.embedder.bundle.manifest, home)
