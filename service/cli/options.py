"""Options that several commands share."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic_settings import SettingsError

from vicinal.indexer.gallery import Gallery
from vicinal.indexer.views.refined_snapshot import RefinementPlan
from vicinal.models.bundle import ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.service.errors import RequestError
from vicinal.service.matcher.matcher import Matcher
from vicinal.service.scoring.opened_refiner import refinement_plan
from vicinal.service.settings import Settings

__all__ = [
    "BundleOption",
    "DataDirOption",
    "GalleryOption",
    "JsonOption",
    "load_embedder",
    "load_settings",
    "new_gallery",
    "open_gallery",
    "open_matcher",
]

GalleryOption = Annotated[str, typer.Option("--gallery", "-g", help="Name of the gallery.")]
DataDirOption = Annotated[
    Path | None, typer.Option(help="Folder that holds the galleries; VICINAL_DATA_DIR, or ~/.vicinal.")
]
BundleOption = Annotated[
    Path | None, typer.Option(help="Model bundle; VICINAL_BUNDLE, or the small one that ships with Vicinal.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for a script.")]


def load_settings(**given: Any) -> Settings:
    """Settings with the options that were given on the command line on top.

    Raises:
        RequestError: A variable or `vicinal.toml` cannot be read.
    """
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except SettingsError as error:
        raise RequestError(f"settings cannot be read: {error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"'vicinal.toml' is not TOML: {error}") from error


def load_embedder(settings: Settings) -> Embedder:
    """Embedder of the bundle in the settings."""
    return Embedder(
        ModelBundle.open(settings.bundle),
        device=settings.device,
        threads=settings.threads,
        limits=settings.decode_limits,
    )


def open_gallery(settings: Settings, name: str, bundle: ModelBundle | None = None) -> Gallery:
    """A gallery that was indexed.

    Args:
        settings: Where it is.
        name: Its name.
        bundle: Bundle whose refiner new versions are refined with, as the settings say.
    """
    return Gallery.open(settings.galleries_path / name, refinement=_plan(settings, bundle))


def open_matcher(name: str, *, data_dir: Path | None, bundle: Path | None) -> Matcher:
    """Matcher of a gallery, with what the options and settings say.

    Args:
        name: Its name.
        data_dir: Folder that holds the galleries; that of the settings when None.
        bundle: Model bundle; that of the settings when None.
    """
    settings = load_settings(data_dir=data_dir, bundle=bundle)
    embedder = load_embedder(settings)
    pipeline = settings.pipeline_for(embedder.bundle)
    return Matcher(open_gallery(settings, name, embedder.bundle), embedder, pipeline)


def new_gallery(settings: Settings, name: str, bundle: ModelBundle) -> Gallery:
    """A gallery that is there or not; see `open_gallery`."""
    return Gallery(settings.galleries_path / name, refinement=_plan(settings, bundle))


def _plan(settings: Settings, bundle: ModelBundle | None) -> RefinementPlan | None:
    return refinement_plan(settings.pipeline_for(bundle), bundle) if bundle else None
