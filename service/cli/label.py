"""`vicinal label`: a threshold for a gallery without labels, from answers in a browser."""

from __future__ import annotations

import webbrowser
from typing import Annotated
from urllib.parse import urlencode

import typer

from vicinal.service.cli.calibration import print_promise
from vicinal.service.cli.console import errors, say
from vicinal.service.cli.options import GalleryOption, Home
from vicinal.service.operations import label as operation


def label(
    gallery: GalleryOption,
    request: operation.Request,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="Port of the page; any free one by default.")
    ] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    *,
    home: Home,
) -> None:
    """Find a threshold without labels: look at pairs of photos, and say of each whether it is the same thing.

    One to two hundred answers, one key each, take ten minutes. A stopped session goes on where it was.
    """
    from vicinal.service.http.app import create_app
    from vicinal.service.http.serving.server import listen, serve_until_stopped
    from vicinal.service.http.state import state_of
    from vicinal.service.keys import Grant

    # Others may be logged in here: the page has a key of its own, for this gallery, which no other key is.
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
        app = create_app(settings)
        session = operation.run(state_of(app).place(gallery), request)
        grant = Grant(name="label", scopes=("search", "admin"), galleries=(gallery,), folders=())
        # Programs see the arguments of others, a browser's too: the token is of no use when its page is open.
        token = state_of(app).keyring.offer(grant)
        place = f"http://{settings.host}:{listener.getsockname()[1]}/label"
        address = f"{place}?{urlencode({'gallery': gallery, 'target': request.target})}#{token}"
        n_answers = len(session.answers())
        if n_answers:
            say(f"{n_answers} answers are there already: the session goes on.", to=errors)
        say(f"Answer at {address} (it opens once)", "Stop with Ctrl-C; answers are kept.", to=errors)
        if browser:
            webbrowser.open(address)
        serve_until_stopped(app, listener)
    matcher = state_of(app).galleries.matcher(gallery)
    record = next((one for one in matcher.calibrations.history() if one.id == session.head.id), None)
    if record is None:
        again = home.command("label", "-g", gallery)
        say(f"{len(session.answers())} answers are kept: go on by `{again}`.")
    else:
        print_promise(record, gallery, matcher.embedder.bundle.manifest, home)
