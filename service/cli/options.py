"""Options that several commands share."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vicinal.service.errors import RequestError
from vicinal.service.request_fields import CommandOption, RequestFields

if TYPE_CHECKING:
    from vicinal.indexer.gallery import Gallery
    from vicinal.indexer.jobs.changes import OnConflict
    from vicinal.service.galleries.bundles import ServedBundles
    from vicinal.service.measuring.matcher import Matcher
    from vicinal.service.operations.place import Place
    from vicinal.service.settings import Settings

BUNDLE_HELP = "Model bundle, by folder or name; VICINAL_BUNDLE, or the one that ships with Vicinal."
NameArgument = Annotated[str, typer.Argument(help="Name of the gallery.")]
GalleryOption = Annotated[str, typer.Option("--gallery", "-g", help="Name of the gallery.")]
BundleOption = Annotated[Path | None, typer.Option(help=BUNDLE_HELP)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for a script.")]
DetailsOption = Annotated[bool, typer.Option("--details", help="All figures, with intervals.")]


class DataHome(RequestFields):
    """Options by which a command finds galleries."""

    data_dir: Annotated[
        Path | None, CommandOption("Folder that holds the galleries; VICINAL_DATA_DIR, or ~/.vicinal.")
    ] = None

    def settings(self, **given: Any) -> Settings:
        """Settings with these options and others that were given on top."""
        settings = load_settings(**dict(self), **given)
        if settings.has_home:
            from vicinal.service.galleries.home import open_home

            open_home(settings)
        return settings

    def gallery(self, name: str) -> Gallery:
        """A gallery that was indexed."""
        from vicinal.indexer.gallery import Gallery

        settings = self.settings()
        return Gallery.open(settings.gallery_path(name), engine=settings.open_engine())


class Home(DataHome):
    """Options by which a command finds galleries and their bundle."""

    bundle: Annotated[Path | None, CommandOption(BUNDLE_HELP)] = None

    def bundles(self, **settings: Any) -> ServedBundles:
        """Bundles that galleries are opened with; one of another space that was named is refused."""
        from vicinal.service.galleries.bundles import ServedBundles

        return ServedBundles(self.settings(**settings), named=self.bundle)

    def place(self, name: str, *, is_new: bool = False, **settings: Any) -> Place:
        """Place of an operation on a gallery, which need not be there yet where it is new."""
        from vicinal.service.operations.place import Place

        bundles = self.bundles(**settings)
        return Place(bundles, bundles.gallery(name, is_new=is_new))

    def matcher(self, name: str) -> Matcher:
        """Matcher of a gallery, with the bundle and the pipeline that a server would search it with."""
        return self.place(name).matcher

    def command(self, *words: str) -> str:
        """A command to paste after this one, which finds the same galleries and bundle."""
        return shlex.join(["vicinal", *words, *self.words])

    @property
    def words(self) -> list[str]:
        """The options that were given, for commands that this one prints."""
        places = (("--data-dir", self.data_dir), ("--bundle", self.bundle))
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

    given = {name: value for name, value in given.items() if value is not None}
    bundle = given.pop("bundle", None)
    try:
        settings = Settings(**given)
        if settings.database is not None:
            from vicinal.service.database import open_database

            open_database(settings)
        if bundle is None:
            return settings
        named = [folder / bundle for folder in settings.bundle_folders]
        found = next((one for one in named if not bundle.exists() and one.is_dir()), bundle)
        # It may be opened late, or not at all where a gallery has its own.
        read_manifest(found)
        return settings.model_copy(update={"bundle": found})
    except SettingsError as error:
        raise RequestError(f"settings cannot be read: {error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"'vicinal.toml' is not TOML: {error}") from error


def end_by(found: object) -> None:
    """End with status 1 where something was found that a person has to look at; an error has 2."""
    if found:
        raise typer.Exit(1)
