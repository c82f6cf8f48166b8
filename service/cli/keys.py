"""`vicinal keys`: make, list, revoke and turn off API keys; a running server follows at once."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from vicinal.service.cli.console import errors, print_json, print_table, say
from vicinal.service.cli.options import DataHome, JsonOption
from vicinal.service.errors import RequestError
from vicinal.service.surfaces.command_line import Commands

if TYPE_CHECKING:
    from vicinal.service.keys import KeyRecord, KeyStore

app = Commands(help="Make, list, revoke and turn off API keys.", no_args_is_help=True)

_UNITS = {"h": "hours", "d": "days", "w": "weeks"}


@app.command()
def create(
    called: Annotated[str, typer.Argument(metavar="NAME", help="What the key is called in lists and logs.")],
    scope: Annotated[
        list[str], typer.Option("--scope", "-s", help="search, write or admin; give it several times.")
    ],
    gallery: Annotated[
        list[str] | None,
        typer.Option("--gallery", "-g", help="Only for this gallery or alias; give it several times."),
    ] = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FOLDER",
            help="Its jobs read this folder below sources_dir only; give it several times. A key with "
            "--gallery and without it reads none.",
        ),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="When it ends: 12h, 30d, 8w, or a date such as 2027-01-31.")
    ] = None,
    *,
    home: DataHome,
    json_output: JsonOption = False,
) -> None:
    """Make a key. It is shown once and kept nowhere."""
    from vicinal.service.settings import SCOPES

    unknown = [one for one in scope if one not in SCOPES]
    if unknown:
        raise RequestError(f"there is no scope '{unknown[0]}', only {', '.join(SCOPES)}")
    chosen = tuple(one for one in SCOPES if one in scope)
    ends = None if expires is None else _end(expires)
    record, key = _store(home).create(
        called, chosen, galleries=gallery or None, folders=source or (), expires_at=ends
    )
    if json_output:
        print_json({**_shown(record), "key": key})
        return
    say(f"Key '{record.name}' ({record.id}) may {_may(record)}. It is shown once:", to=errors)
    say(key)


@app.command("list")
def list_keys(home: DataHome, json_output: JsonOption = False) -> None:
    """List the keys, without what they are."""
    records = [*_store(home).all().values()]
    if json_output:
        print_json([_shown(one) for one in records])
        return
    table = Table("name", "id", "may", "made", "ends", box=None)
    for one in records:
        table.add_row(one.name, one.id, _may(one), f"{one.created_at:%Y-%m-%d}", _ending(one))
    print_table(table)


@app.command()
def revoke(key: Annotated[str, typer.Argument(help="Name or id of the key.")], home: DataHome) -> None:
    """Take a key away: from the next request on it is none."""
    record = _store(home).revoke(key)
    say(f"Key '{record.name}' ({record.id}) is revoked.")


@app.command()
def off(home: DataHome) -> None:
    """Turn keys off: all are taken away, and calls need none until another is made."""
    n = _store(home).turn_off()
    say(
        f"Keys are off, {n} taken away: whoever reaches a server of this folder may do everything. One that "
        "listens beyond this machine, or has api_keys in its settings, goes on asking."
    )


def _store(home: DataHome) -> KeyStore:
    from vicinal.service.keys import KeyStore

    return KeyStore(home.settings().data_dir)


def _end(text: str) -> datetime:
    now = datetime.now(UTC)
    try:
        if (span := re.fullmatch("([0-9]{1,5})([hdw])", text)) is not None:
            end = now + timedelta(**{_UNITS[span[2]]: int(span[1])})
        else:
            end = datetime.fromisoformat(text)
            end = end if end.tzinfo else end.replace(tzinfo=UTC)
    except (OverflowError, ValueError) as error:
        raise RequestError(f"'{text}' is no end: give 12h, 30d, 8w, or a date such as 2027-01-31") from error
    if end <= now:
        raise RequestError(f"'{text}' is over already")
    return end


def _may(record: KeyRecord) -> str:
    where = "" if record.galleries is None else f" in {', '.join(record.galleries)}"
    reads = f", reading {', '.join(record.folders)}" if record.folders else ""
    return f"{', '.join(record.scopes)}{where}{reads}"


def _ending(record: KeyRecord) -> str:
    if record.expires_at is None:
        return "never"
    return f"{record.expires_at:%Y-%m-%d %H:%M}{' (over)' if record.is_expired else ''}"


def _shown(record: KeyRecord) -> dict[str, Any]:
    return record.model_dump(mode="json", exclude={"salt", "digest"})
