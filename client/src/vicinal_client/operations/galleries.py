"""Calls about the service, its galleries and their versions."""

from __future__ import annotations

from typing import Literal, Unpack

from vicinal_client.models import (
    Alias,
    AliasList,
    CompactionState,
    Gallery,
    GalleryList,
    Readiness,
    Rights,
    StorageUse,
    VersionList,
)
from vicinal_client.operations.calls import Calls, operation
from vicinal_client.options import GalleryOptions
from vicinal_client.requests import given, path_of
from vicinal_client.retries import Pause, Steps

__all__ = ["GalleryCalls"]


class GalleryCalls(Calls):
    """The service, galleries and versions."""

    @operation
    def livez(self) -> Steps[None]:
        """Learn whether the server's process answers; an error when it does not."""
        yield from self._send("GET", "/livez")

    @operation
    def readyz(self, galleries: Literal["all", "any"] | None = None) -> Steps[Readiness]:
        """Learn whether searches can be answered, in all galleries or in any, with the reasons where not, and
        the server's limits.
        """
        # 503 says that one gallery cannot be searched: an answer, not a reason to come again.
        params = given(galleries=galleries)
        return (yield from self._ask("GET", "/readyz", Readiness, params=params, accepted=(503,)))

    @operation
    def get_rights(self) -> Steps[Rights]:
        """Learn what the API key may do, and in which galleries."""
        return (yield from self._ask("GET", path_of("me"), Rights))

    @operation
    def list_galleries(self) -> Steps[GalleryList]:
        """All galleries that can be searched."""
        return (yield from self._ask("GET", path_of("galleries"), GalleryList))

    @operation
    def get_gallery(self, gallery: str) -> Steps[Gallery]:
        """Read a gallery: its size, index, bundle and calibration."""
        return (yield from self._ask("GET", path_of("galleries", gallery), Gallery))

    @operation
    def get_storage(self, gallery: str) -> Steps[StorageUse]:
        """Bytes that a gallery takes on the disk, and what is free there."""
        return (yield from self._ask("GET", path_of("galleries", gallery, "storage"), StorageUse))

    @operation
    def put_gallery(self, /, gallery: str, **options: Unpack[GalleryOptions]) -> Steps[Gallery]:
        """Make a gallery without items; one that is there stays as it is.

        Args:
            gallery: Name of the gallery.
            options: `space` and `dim` of the ready embeddings that it will hold.
        """
        path, params = path_of("galleries", gallery), given(**options)
        return (yield from self._ask("PUT", path, Gallery, params=params, repeatable=True))

    @operation
    def delete_gallery(self, gallery: str) -> Steps[None]:
        """Remove a gallery with all its versions and calibrations."""
        yield from self._send("DELETE", path_of("galleries", gallery), params={"confirm": gallery})

    @operation
    def list_aliases(self) -> Steps[AliasList]:
        """All aliases: further names that galleries are reached by."""
        return (yield from self._ask("GET", path_of("aliases"), AliasList))

    @operation
    def put_alias(self, alias: str, gallery: str) -> Steps[Alias]:
        """Let an alias, new or existing, stand for a gallery from now on."""
        body = {"gallery": gallery}
        return (yield from self._ask("PUT", path_of("aliases", alias), Alias, json=body, repeatable=True))

    @operation
    def delete_alias(self, alias: str) -> Steps[None]:
        """Let a name stand for no gallery any more; the gallery stays."""
        yield from self._send("DELETE", path_of("aliases", alias))

    @operation
    def list_versions(self, gallery: str) -> Steps[VersionList]:
        """Versions of a gallery, newest first."""
        return (yield from self._ask("GET", path_of("galleries", gallery, "versions"), VersionList))

    @operation
    def activate_version(self, gallery: str, version: int, *, as_built: bool = False) -> Steps[Gallery]:
        """Search another version from now on; `as_built` without its live changes."""
        path = path_of("galleries", gallery, "versions", version, "activate")
        return (yield from self._ask("POST", path, Gallery, params={"as_built": as_built}))

    @operation
    def get_compaction(self, gallery: str) -> Steps[CompactionState]:
        """Tell whether live changes are being made a new version, and what became of the last time."""
        return (yield from self._ask("GET", path_of("galleries", gallery, "compaction"), CompactionState))

    @operation
    def begin_compaction(self, gallery: str) -> Steps[CompactionState]:
        """Begin to make the live changes of a gallery a new version; `compact` waits for it."""
        return (yield from self._ask("POST", path_of("galleries", gallery, "compaction"), CompactionState))

    @operation
    def compact(self, gallery: str, *, every: float = 1.0) -> Steps[CompactionState]:
        """Make the live changes of a gallery a new version, which a calibration is measured on.

        Args:
            gallery: Name of the gallery.
            every: Seconds between two looks.
        """
        path = path_of("galleries", gallery, "compaction")
        now = yield from self._ask("POST", path, CompactionState)
        while now.state == "running":
            yield Pause(every)
            now = yield from self._ask("GET", path, CompactionState)
        return now
