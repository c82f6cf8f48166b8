"""`vicinal gallery export`, `import`, `copy`, `rename`, `alias`; `vicinal backup`, `restore`, `upgrade`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from vicinal.service.cli.console import console, errors, say
from vicinal.service.cli.options import DataHome, NameArgument
from vicinal.service.errors import RequestError

if TYPE_CHECKING:
    from vicinal.indexer.gallery import Gallery

_PIPE = Path("-")


def export(
    name: NameArgument,
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write, or - for a pipe.")],
    searches: Annotated[
        bool,
        typer.Option("--searches", help="With the searches that were kept, and what persons said of them."),
    ] = False,
    *,
    home: DataHome,
) -> None:
    """Write a gallery with its versions and calibrations into one file; it is searched meanwhile."""
    from vicinal.indexer.transfer.archive import export_gallery
    from vicinal.service.answering.store import SearchStore
    from vicinal.service.words import number_of

    gallery = home.gallery(name)
    to = errors if output == _PIPE else console
    if not searches and (n_kept := SearchStore(gallery.path).readable[0]):
        kept = number_of(n_kept, "kept search", "kept searches")
        say(f"Without {kept} and what persons said of them: --searches takes them along", to=to)
    with _written(output) as stream:
        head = export_gallery(gallery, stream, with_searches=searches)
    say(f"Exported gallery {gallery.name}: {head.n_items:,} items, version {head.version}", to=to)


def import_archive(
    name: NameArgument,
    archive: Annotated[Path, typer.Argument(help="What `vicinal gallery export` wrote, or - for a pipe.")],
    home: DataHome,
) -> None:
    """Make a gallery of an exported one; a gallery that is there is never replaced."""
    from vicinal.indexer.transfer.archive import import_gallery

    if archive.is_dir() or archive.suffix == ".parquet":
        raise RequestError(f"'{archive}' is no archive: `vicinal index` takes folders and Parquet")
    with _opened(archive) as stream:
        settings = home.settings()
        gallery, _ = import_gallery(settings.galleries_path, stream, name, engine=settings.open_engine())
    _show(gallery, home)


def copy(
    name: NameArgument, new_name: Annotated[str, typer.Argument(help="Name of the copy.")], home: DataHome
) -> None:
    """Copy a gallery with all that was made and said of it, to try something on."""
    from vicinal.indexer.transfer.moving import copy_gallery

    _show(copy_gallery(home.gallery(name), new_name), home)


def rename(
    name: NameArgument, new_name: Annotated[str, typer.Argument(help="Its name from now on.")], home: DataHome
) -> None:
    """Give a gallery another name; calibrations and aliases stay with it."""
    from vicinal.indexer.transfer.moving import rename_gallery

    gallery = home.gallery(name)
    say(f"Gallery {gallery.name} is now {rename_gallery(gallery, new_name).name}")


def alias(
    name: Annotated[str, typer.Argument(help="Name for clients.")],
    stands_for: Annotated[
        str | None, typer.Argument(metavar="[GALLERY]", help="Gallery that it stands for from now on.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Let it stand for none.")] = False,
    *,
    home: DataHome,
) -> None:
    """Let a further name stand for a gallery; clients that use it search another one at once."""
    from vicinal.indexer.storage.gallery_names import remove_alias, set_alias

    root = home.settings().galleries_path
    if remove == (stands_for is not None):
        raise RequestError("name the gallery that the alias stands for, or give --remove")
    if stands_for is None:
        remove_alias(root, name)
        say(f"{name} is no alias any more")
    else:
        set_alias(root, name, stands_for)
        say(f"{name} stands for gallery {stands_for}")


def backup(
    folder: Annotated[Path, typer.Argument(help="New folder; it appears when it is whole.")], home: DataHome
) -> None:
    """Save all galleries, keys and aliases while a server runs and changes them."""
    from vicinal.service.galleries.backup import save

    save(home.settings(), folder, on_gallery=lambda one: say(f"Gallery {one.name}"))
    say(f"Saved in {folder}")


def restore(
    folder: Annotated[Path, typer.Argument(help="What `vicinal backup` saved.")], home: DataHome
) -> None:
    """Bring back what was saved, into a data folder without galleries and keys."""
    from vicinal.service.galleries.backup import restore as bring_back

    settings = home.settings()
    bring_back(settings, folder, on_gallery=lambda one: say(f"Gallery {one.name}"))
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
    from vicinal.service.galleries.backup import upgrade as bring_up

    for state, old in bring_up(home.settings(), remove_old_files=remove_old_files):
        done = "removed" if remove_old_files else "brought in, and left beside"
        files = f": {', '.join(one.name for one in old)} {done}" if old else ""
        say(f"{state.folder.name} is up to date{files}")


def _show(gallery: Gallery, home: DataHome) -> None:
    from vicinal.service.galleries.bundles import ServedBundles
    from vicinal.service.reports.gallery import gallery_lines

    say(*gallery_lines(gallery, ServedBundles(home.settings())))


@contextmanager
def _written(path: Path) -> Iterator[BinaryIO]:
    """A stream into a new file, which appears whole or not at all, or into a pipe."""
    from vicinal.indexer.storage.files import storing, sync_path

    if path == _PIPE:
        if sys.stdout.isatty():
            raise RequestError("this writes an archive: send it into a file or a pipe")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    if path.exists():
        raise RequestError(f"'{path}' exists: choose another file, or remove it")
    partial = path.with_name(path.name + ".partial")
    try:
        with storing(f"'{path}'"):
            with partial.open("wb") as stream:
                yield stream
            sync_path(partial)
            partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)


def _opened(path: Path) -> AbstractContextManager[BinaryIO]:
    try:
        return nullcontext(sys.stdin.buffer) if path == _PIPE else path.open("rb")
    except OSError as error:
        raise RequestError(f"'{path}' cannot be read: {error.strerror}") from error
