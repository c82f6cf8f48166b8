"""Readable sources: what a job may read, wherever a request, a manifest or a link points."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from vicinal.indexer.sources import (
    MANIFEST_SUFFIXES,
    DatasetImage,
    HubDataset,
    ImageFile,
    SourceOptions,
    is_on_hub,
)
from vicinal.service.errors import RequestError
from vicinal.service.operations.place import Readable
from vicinal.service.settings import Settings


@dataclass(frozen=True)
class JobSources(Readable):
    """Files below one folder, or some of its folders, and of the hub what is allowed."""

    root: Path | None
    allow_hub: bool
    hub: Path
    folders: tuple[str, ...] | None  # Of a job that may read these folders only; None for all

    @classmethod
    def of(cls, settings: Settings, folders: tuple[str, ...] | None) -> JobSources:
        """Sources that the settings allow, in some of the folders."""
        return cls(settings.sources_dir, settings.allow_hub, settings.data_dir / "hub", folders)

    def _holds(self, path: Path) -> bool:
        """Tell whether a path, with links followed, lies where something may be read."""
        if self.root is None:
            return False
        found, root = path.resolve(), self.root.resolve()
        given = None if self.folders is None else [(root / one).resolve() for one in self.folders]
        return found.is_relative_to(root) and (given is None or any(map(found.is_relative_to, given)))

    def place(self, name: str) -> Path | str:
        """A source by its name below the folder, or a data set of the hub by its address."""
        if not is_on_hub(name):
            return self.path(name)
        if not self.allow_hub:
            raise RequestError("jobs read nothing of the hub: VICINAL_ALLOW_HUB allows its public data sets")
        return str(HubDataset.at(name))

    def path(self, name: str) -> Path:
        """A source by its name below the folder."""
        if self.root is None:
            raise RequestError(
                "jobs take no sources here: set VICINAL_SOURCES_DIR to the folder below which they may read"
            )
        try:
            path = (self.root / name).resolve()
            path.exists()
        except (OSError, RuntimeError, ValueError) as error:
            # A name with NUL, of half a character, or longer than names are.
            raise RequestError(f"source {name[:100]!r} is no path: {error}") from error
        if not path.is_relative_to(self.root.resolve()):
            raise RequestError(f"source '{name}' lies outside of sources_dir")
        if not self._holds(path):
            raise RequestError(
                f"source '{name}' lies outside of the folders that this key may read: "
                + (", ".join(self.folders or ()) or "none was given to it when it was made")
            )
        return path

    def options(self, name: str, options: SourceOptions) -> SourceOptions:
        """Options of reading a source: what comes from the hub is kept where jobs keep it."""
        return replace(options, access=replace(options.access, hub=self.hub)) if is_on_hub(name) else options

    def check(self, name: str, *, also: tuple[str, ...] = (), takes_hub: bool = False) -> None:
        """Refuse what is no source."""
        path, kinds = self.place(name) if takes_hub else self.path(name), (*MANIFEST_SUFFIXES, *also)
        if isinstance(path, str):
            return
        if not path.is_dir() and not (path.is_file() and path.suffix.lower() in kinds):
            raise RequestError(
                f"source '{path.name}' is neither a folder nor a {', '.join(MANIFEST_SUFFIXES[:-1])} or "
                f"{MANIFEST_SUFFIXES[-1]} manifest" + "".join(f" nor a {suffix} file" for suffix in also)
            )

    def refusal(self, path: ImageFile) -> str | None:
        """Reason for which a file must not be read: rows, links and names of uploads can point anywhere."""
        place = path if isinstance(path, Path) else path.container
        if place is None:
            return "jobs read no buckets: run `vicinal index` where the gallery is"
        may_be_of_hub = self.allow_hub and isinstance(path, DatasetImage)
        is_of_hub = may_be_of_hub and place.resolve().is_relative_to(self.hub.resolve())
        if place.is_absolute() and (is_of_hub or self._holds(place)):
            return None
        where = "sources_dir" if self.folders is None else "a folder that was given to the key"
        return f"its file does not lie below {where}, so that a job must not read it"
