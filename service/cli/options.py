"""Options that several commands share."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.service.errors import RequestError

if TYPE_CHECKING:
    from vicinal.indexer.gallery import Gallery
    from vicinal.indexer.jobs.changes import OnConflict
    from vicinal.service.measuring.matcher import Matcher
    from vicinal.service.operations.place import Place
    from vicinal.service.settings import Settings

NameArgument = Annotated[str, typer.Argument(help="Name of the gallery.")]
GalleryOption = Annotated[str, typer.Option("--gallery", "-g", help="Name of the gallery.")]
DataDirOption = Annotated[
    Path | None, typer.Option(help="Folder that holds the galleries; VICINAL_DATA_DIR, or ~/.vicinal.")
]
BundleOption = Annotated[
    Path | None, typer.Option(help="Model bundle; VICINAL_BUNDLE, or the one that ships with Vicinal.")
]
EmbeddingColumnOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Column of ready embeddings; embedding by default.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for a script.")]
QueryLabelOption = Annotated[
    str | None,
    typer.Option(
        "--label-from",
        metavar="RULE",
        help="Where labels come from: folder (the topmost), column or regex:PATTERN; by default the column "
        "of a manifest, the folder of a folder.",
    ),
]
PathColumnOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Column of the paths, or of the images inside; path by default."),
]
LabelColumnOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Column of the labels; label by default.")
]
IdColumnOption = Annotated[str | None, typer.Option(metavar="NAME", help="Column of the ids; id by default.")]


def command_line(*words: str, data_dir: Path | None, bundle: Path | None) -> str:
    """A command to paste after this one, with the options by which this one found the gallery."""
    return shlex.join(["vicinal", *words, *place_words(data_dir=data_dir, bundle=bundle)])


def place_words(*, data_dir: Path | None, bundle: Path | None) -> list[str]:
    """The options by which a command found its gallery, for others that it prints."""
    places = (("--data-dir", data_dir), ("--bundle", bundle))
    return [word for option, path in places if path is not None for word in (option, str(path))]


def conflict_rule(*, replaces: bool, skips: bool) -> OnConflict:
    """Rule for an item whose id belongs to another one."""
    if replaces and skips:
        raise RequestError("--replace and --skip exclude each other")
    return "replace" if replaces else "skip" if skips else "error"


def load_settings(**given: Any) -> Settings:
    """Settings with the options that were given on the command line on top."""
    from pydantic_settings import SettingsError

    from vicinal.models.bundle import read_manifest
    from vicinal.service.settings import Settings

    if given.get("bundle") is not None:
        # It may be opened late, or not at all where a gallery has its own.
        read_manifest(given["bundle"])
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except SettingsError as error:
        raise RequestError(f"settings cannot be read: {error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"'vicinal.toml' is not TOML: {error}") from error


def open_gallery(settings: Settings, name: str) -> Gallery:
    """A gallery that was indexed."""
    from vicinal.indexer.gallery import Gallery

    return Gallery.open(settings.gallery_path(name))


def open_matcher(name: str, *, data_dir: Path | None, bundle: Path | None) -> Matcher:
    """Matcher of a gallery, with the bundle and the pipeline that a server would search it with."""
    return open_place(name, data_dir=data_dir, bundle=bundle).matcher


def open_place(
    name: str, *, data_dir: Path | None, bundle: Path | None, is_new: bool = False, **settings: Any
) -> Place:
    """Place of an operation on a gallery, which need not be there yet where it is new; see `open_matcher`."""
    from vicinal.indexer.gallery import Gallery
    from vicinal.service.galleries.bundles import ServedBundles
    from vicinal.service.operations.place import Place

    loaded = load_settings(data_dir=data_dir, bundle=bundle, **settings)
    gallery = Gallery(loaded.gallery_path(name)) if is_new else open_gallery(loaded, name)
    return Place(ServedBundles(loaded, named=bundle), gallery)
