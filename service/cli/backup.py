"""`vicinal backup`, `restore` and `upgrade`: a data folder saved, brought back, and brought up to date."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vicinal.service.cli.console import say
from vicinal.service.cli.options import DataHome

if TYPE_CHECKING:
    from vicinal.indexer.gallery import Gallery


def backup(
    folder: Annotated[Path, typer.Argument(help="New folder; it appears when it is whole.")], home: DataHome
) -> None:
    """Save all galleries, keys and aliases while a server runs and changes them."""
    from vicinal.service.backup import save

    save(home.settings(), folder, on_gallery=_tell)
    say(f"Saved in {folder}")


def restore(
    folder: Annotated[Path, typer.Argument(help="What `vicinal backup` saved.")], home: DataHome
) -> None:
    """Bring back what was saved, into a data folder without galleries and keys."""
    from vicinal.service.backup import restore as bring_back

    settings = home.settings()
    bring_back(settings, folder, on_gallery=_tell)
    say(f"Restored into {settings.data_dir}")


def upgrade(
    remove_old_files: Annotated[
        bool,
        typer.Option("--remove-old-files", help="Remove the older files whose content is kept as rows."),
    ] = False,
    *,
    home: DataHome,
) -> None:
    """Bring what is remembered of galleries and of the server to the form of this release."""
    from vicinal.service.backup import upgrade as bring_up

    for state, old in bring_up(home.settings(), remove_old_files=remove_old_files):
        done = "removed" if remove_old_files else "brought in, and left beside"
        files = f": {', '.join(one.name for one in old)} {done}" if old else ""
        say(f"{state.folder.name} is up to date{files}")


def _tell(gallery: Gallery) -> None:
    say(f"Gallery {gallery.name}")
