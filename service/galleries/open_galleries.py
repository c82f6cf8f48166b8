"""Open galleries: one reader and one matcher a gallery, the matcher swapped with every change."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from vicinal.indexer.errors import GalleryNotFoundError, GalleryNotRefinedError
from vicinal.indexer.gallery import Gallery, list_galleries
from vicinal.indexer.graph.gpu import IndexDevices
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.storage.gallery_names import GALLERY_NAME
from vicinal.service.galleries.bundles import ServedBundle, ServedBundles
from vicinal.service.galleries.integrity import CheckedGallery, Integrity
from vicinal.service.galleries.maintenance import Maintenance
from vicinal.service.galleries.search_counts import DriftMonitor
from vicinal.service.measuring.drift import DriftLevel
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.problem_types import ERRORS
from vicinal.service.search.answers import CalibrationState

_UNCHECKED = CheckedGallery()
# Whatever keeps a gallery from being opened, it keeps no other from being told of.
UNREADABLE = (*ERRORS, OSError)


@dataclass(frozen=True)
class GalleryState:
    """Whether a gallery can be searched, and how searches without further options are made."""

    __pydantic_config__ = ConfigDict(json_schema_serialization_defaults_required=True)

    name: str
    problem: Annotated[str | None, Field(description="Why not; null when it can.")] = None
    bundle: Annotated[
        str | None,
        Field(description="Fingerprint of the bundle that it is searched with; null when it cannot be."),
    ] = None
    pipeline: Annotated[str | None, Field(description="Pipeline of searches without further options.")] = None
    pipeline_source: Annotated[
        Literal["settings", "comparison"],
        Field(description="What chose it: the settings, or a comparison of pipelines."),
    ] = "settings"
    pipeline_reason: Annotated[
        str | None, Field(description="Why a pipeline that was chosen is not used.")
    ] = None
    calibration: Annotated[
        CalibrationState,
        Field(description="Whether the threshold of searches without further options is calibrated."),
    ] = "none"
    calibration_reason: Annotated[str | None, Field(description="Why it is not `current`.")] = None
    drift: DriftLevel = "unknown"
    files: Annotated[CheckedGallery, Field(description="How far its files are known to be whole.")] = (
        _UNCHECKED
    )


class OpenGalleries:
    """Galleries of a data folder, opened when first asked for."""

    def __init__(self, bundles: ServedBundles) -> None:
        self.bundles = bundles
        self.path = bundles.settings.galleries_path
        self.index_devices = IndexDevices(bundles.settings.index_device)
        self.drift = DriftMonitor(bundles.settings.data_dir / "replicas")
        self.maintenance = Maintenance(bundles.settings.compaction, bundles.settings.retention)
        self.integrity = Integrity(
            mb_per_second=bundles.settings.check_mb_per_second, hours=bundles.settings.check_hours
        )
        self._lock = threading.Lock()
        self._readers: dict[str, GalleryReader] = {}
        self._matchers: dict[str, Matcher] = {}

    @property
    def own(self) -> ServedBundle:
        """The bundle of the settings, opened when it is needed first; see `ServedBundles.own`."""
        return self.bundles.own

    def names(self) -> list[str]:
        """Galleries that were indexed, by name."""
        return [gallery.name for gallery in list_galleries(self.path)]

    def gallery(self, name: str) -> Gallery:
        """A gallery by name."""
        if not GALLERY_NAME.fullmatch(name):
            raise GalleryNotFoundError(f"there is no gallery '{name}'")
        gallery = Gallery.open(self.path / name)
        if gallery.space is None and self.bundles.own_space is None:
            self.bundles.resolve(gallery, None)
        return gallery

    def reader(self, name: str) -> GalleryReader:
        """Reader of a gallery, which live changes are made with; it stays open."""
        reader = self._readers.get(name)
        if reader is None:
            gallery = self.gallery(name)
            with self._lock:
                reader = self._readers.setdefault(name, GalleryReader(gallery, self.index_devices))
        return reader

    def matcher(self, name: str) -> Matcher:
        """Matcher of the present state of a gallery, which a request keeps to the end."""
        reader = self.reader(name)
        try:
            view = reader.view()
        except GalleryNotFoundError:
            self.close(name)
            raise
        if not self.integrity.watch(reader, view.snapshot):
            view = reader.view()
            self.integrity.watch(reader, view.snapshot)
        matcher = self._matchers.get(name)
        if matcher is not None and matcher.view is view:
            return matcher
        # Before the lock is taken: opening takes seconds, and other galleries are searched meanwhile.
        served = self.bundles.resolve(reader.gallery, view.snapshot.manifest)
        with self._lock:
            matcher = self._matchers.get(name)
            if matcher is None or matcher.embedder is not served.embedder:
                matcher = self.bundles.matcher(reader.gallery, view)
            elif matcher.view is not view:
                matcher = matcher.at(view)
            self._matchers[name] = matcher
        return matcher

    def opened(self, name: str) -> Matcher | None:
        """Matcher of a gallery as this process last looked at it; None where it has not. Opens nothing."""
        return self._matchers.get(name)

    def changed(self, name: str) -> None:
        """To be called after a live change: starts a compaction when enough has changed."""
        # Searches tell those who ask; the change itself was made.
        with suppress(GalleryNotRefinedError):
            self.matcher(name).prepare()
        self.maintenance.consider(self.reader(name))

    def close(self, name: str) -> None:
        """Let go of a gallery: the files of a deleted one stay on the disk for as long as they are open."""
        self._readers.pop(name, None)
        self._matchers.pop(name, None)
        self.integrity.forget(name)

    def wait(self) -> None:
        """Wait until everything that was started in the background is done."""
        self.integrity.wait()
        self.maintenance.wait()

    def states(self) -> list[GalleryState]:
        """Every gallery with what keeps it from being searched."""
        return [self._state(name) for name in self.names()]

    def _state(self, name: str) -> GalleryState:
        try:
            matcher = self.matcher(name)
            # A gallery that lacks what `auto` stands for answers no search that asks for nothing else.
            matcher.prepare()
            chosen = matcher.active_pipeline
            threshold = matcher.thresholds.in_force(chosen.pipeline)
        except UNREADABLE as error:
            return GalleryState(name, problem=str(error), files=self.integrity.state(name))
        return GalleryState(
            name,
            bundle=matcher.snapshot.manifest.bundle,
            pipeline=chosen.pipeline.key,
            pipeline_source=chosen.source,
            pipeline_reason=chosen.reason,
            calibration=threshold.state,
            calibration_reason=threshold.reason,
            drift=self.drift.level(name, chosen.pipeline.key, threshold),
            files=self.integrity.state(name),
        )
