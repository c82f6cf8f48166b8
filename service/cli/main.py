"""The `vicinal` command: every error is one line and exit status 2; 1 says that a command found something."""

from __future__ import annotations

import sys
from importlib.metadata import version
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from vicinal.service.cli import (
    calibration,
    compare,
    demo,
    duplicates,
    gallery,
    index,
    keys,
    label,
    review,
    search,
    server,
    transfer,
)
from vicinal.service.cli.bundles import at_hand, evaluate, making, train, train_refiner
from vicinal.service.cli.console import errors, say
from vicinal.service.surfaces.command_line import Commands

_ERROR = 2


class _Group(TyperGroup):
    """Commands, of which one that went, or an option of theirs, says what to do instead."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands:
            from vicinal.service.known_names import GONE_COMMANDS

            if args[0] in GONE_COMMANDS:
                ctx.fail(f"No such command '{args[0]}': {GONE_COMMANDS[args[0]]}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            from vicinal.service.request_fields import GONE_FIELDS

            # Where the class of this error lies is typer's own.
            option = str(getattr(error, "option_name", ""))
            if instead := GONE_FIELDS.get(option.removeprefix("--").replace("-", "_")):
                ctx.fail(f"No such option: {option}: {instead}")
            raise


app = Commands(
    name="vicinal",
    cls=_Group,
    help="Self-hosted image search that knows when there is no match.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        say(f"vicinal {version('vicinal')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command("demo")(demo.demo)
app.command("index")(index.index)
app.command("search")(search.search)
app.command("calibrate")(calibration.calibrate)
app.command("fit")(calibration.fit)
app.command("label")(label.label)
app.command("review")(review.review)
app.command("duplicates")(duplicates.duplicates)
app.command("compare")(compare.compare)
app.command("use")(compare.use)
app.command("evaluate")(evaluate.evaluate)
app.command("serve")(server.serve)
app.command("doctor")(server.doctor)
app.command("backup")(transfer.backup)
app.command("restore")(transfer.restore)
app.command("upgrade")(transfer.upgrade)
app.command("worker")(server.worker)
app.command("train")(train.train)
app.command("train-refiner")(train_refiner.train_refiner)
app.command("export")(making.export)
app.command("import")(making.import_onnx)
app.command("openapi")(server.openapi)
app.add_typer(at_hand.app, name="bundle")
app.add_typer(calibration.app, name="calibration")
app.add_typer(gallery.app, name="gallery")
app.add_typer(keys.app, name="keys")


def main() -> None:
    """Run the command line."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A label may hold letters that a terminal's encoding lacks.
            stream.reconfigure(errors="backslashreplace")
    try:
        # Under this name also as `python -m vicinal`, of which completion could make no script.
        app(prog_name="vicinal")
    except (typer.Abort, KeyboardInterrupt):
        _fail("stopped")
    except Exception as error:
        _fail(_reason(error))


def _reason(error: Exception) -> str:
    """Message of an error that was raised on purpose; any other ends the process here."""
    from pydantic import ValidationError

    from vicinal.indexer.sources.items import is_utf8
    from vicinal.service.problem_types import ERRORS
    from vicinal.service.words import in_commands

    if isinstance(error, ValidationError):
        first = error.errors()[0]
        kind = "setting" if error.title == "Settings" else "option"
        # What stands below `api_keys` is a key.
        place = first["loc"][:1] if first["loc"][:1] == ("api_keys",) else first["loc"]
        return f"{kind} {'.'.join(str(part) for part in place)}: {first['msg']}"
    if isinstance(error, (*ERRORS, OSError)):
        return in_commands(error)
    if isinstance(error, UnicodeEncodeError) and not is_utf8(error.object):
        return f"'{error.object}' is not UTF-8"
    # By itself an interpreter ends with 1, which says that a command found something.
    sys.excepthook(type(error), error, error.__traceback__)
    sys.exit(_ERROR)


def _fail(reason: str) -> None:
    # ONNX Runtime and Faiss explain themselves in several lines.
    from vicinal.indexer.item_rules import readable

    line = readable(" ".join(reason.split()))
    say(f"vicinal: {line}", to=errors)
    sys.exit(_ERROR)
