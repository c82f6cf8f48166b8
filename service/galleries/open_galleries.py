"""Open galleries: one reader and one matcher a gallery, the matcher swapped with every change.

Each is searched with the bundle that its version was embedded with (`service.served_bundles`).
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass

from vicinal.indexer.errors import GalleryNotFoundError, GalleryNotRefinedError, IndexerError
from vicinal.indexer.gallery import GALLERY_NAME, Gallery, list_galleries
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.views.view import GalleryView
from vicinal.models.bundle import ModelBundle
from vicinal.service.galleries.bundles import ServedBundle, ServedBundles
from vicinal.service.galleries.maintenance import Upkeep
from vicinal.service.galleries.search_counts import DriftMonitor
from vicinal.service.matcher.matcher import Matcher
from vicinal.service.matcher.query_embedder import CachingEmbedder
from vicinal.service.redis_link import RedisLink
from vicinal.service.settings import Settings

__all__ = ["GalleryState", "OpenGalleries"]


@dataclass(frozen=True)
class GalleryState:
    """Whether a gallery can be searched.

    Attributes:
        problem: Why not; None when it can.
        bundle: Fingerprint of the bundle that it is searched with; None when it cannot be.
    """

    name: str
    problem: str | None = None
    bundle: str | None = None


class OpenGalleries:
    """Galleries of a data folder, opened when first asked for.

    Args:
        settings: Where the galleries and the bundle are.
        link: Link to Redis, for the cache of query embeddings.

    Raises:
        BundleError: The bundle cannot be used.
        RefineError: Its refiner cannot, or is asked for and not there.
    """

    def __init__(self, settings: Settings, link: RedisLink | None = None) -> None:
        self.settings = settings
        self.embedder = CachingEmbedder(settings, link)
        self._link = link
        self.bundles = ServedBundles(settings, lambda: self.embedder, self._open_embedder)
        self.pipeline = self.bundles.own.pipeline
        self.refinement = self.bundles.own.refinement
        self._lock = threading.Lock()
        self.drift = DriftMonitor(settings.data_dir / "replicas")
        self.upkeep = Upkeep(settings.compaction, settings.retention)
        self._readers: dict[str, GalleryReader] = {}
        self._matchers: dict[str, Matcher] = {}

    @property
    def refiner(self) -> str | None:
        """Fingerprint of the bundle's refiner; None without one."""
        return None if self.refinement is None else self.refinement.refiner.fingerprint

    def names(self) -> list[str]:
        """Galleries that were indexed, by name."""
        return [gallery.name for gallery in list_galleries(self.settings.galleries_path)]

    def gallery(self, name: str) -> Gallery:
        """A gallery by name.

        Raises:
            GalleryNotFoundError: There is none of this name.
        """
        if not GALLERY_NAME.fullmatch(name):
            raise GalleryNotFoundError(f"there is no gallery '{name}'")
        return Gallery.open(self.settings.galleries_path / name, refinement=self.refinement)

    def reader(self, name: str) -> GalleryReader:
        """Reader of a gallery, which live changes are made with.

        Raises:
            GalleryNotFoundError: There is none of this name.
        """
        try:
            gallery = self.gallery(name)
        except GalleryNotFoundError:
            self.close(name)
            raise
        with self._lock:
            return self._readers.setdefault(name, GalleryReader(gallery))

    def matcher(self, name: str) -> Matcher:
        """Matcher of the present state of a gallery.

        A request keeps the matcher that it got, so that its answer comes from one state.

        Raises:
            GalleryNotFoundError: There is none of this name.
            BundleMismatchError: The gallery was embedded with a bundle that is not here.
            GalleryError: The gallery is damaged.
        """
        reader = self.reader(name)
        view = reader.view()
        matcher = self._matchers.get(name)
        if matcher is not None and matcher.view is view:
            return matcher
        # Before the lock is taken: opening takes seconds, and other galleries are searched meanwhile.
        served = self.bundles.of(name, view.snapshot.manifest.bundle)
        with self._lock:
            matcher = self._matchers.get(name)
            if matcher is not None and matcher.view is view:
                return matcher
            if matcher is None or matcher.embedder is not served.embedder:
                matcher = _opened(reader, view, served)
            else:
                matcher = matcher.at(view)
            self._matchers[name] = matcher
        self.upkeep.check(reader, view.snapshot)
        return matcher

    def changed(self, name: str) -> None:
        """To be called after a live change: starts a compaction when enough has changed."""
        # Searches tell those who ask; the change itself was made.
        with suppress(GalleryNotRefinedError):
            self.matcher(name).prepare()
        self.upkeep.consider(self.reader(name))

    def close(self, name: str) -> None:
        """Let go of a gallery: the files of a deleted one stay on the disk for as long as they are open."""
        self._readers.pop(name, None)
        self._matchers.pop(name, None)

    def states(self) -> list[GalleryState]:
        """Every gallery with what keeps it from being searched."""
        states = []
        for name in self.names():
            try:
                # A gallery that lacks what `auto` stands for answers no search that asks for nothing else.
                matcher = self.matcher(name)
                matcher.prepare()
                states.append(GalleryState(name, bundle=matcher.snapshot.manifest.bundle))
            except IndexerError as error:
                states.append(GalleryState(name, str(error)))
        return states

    def _open_embedder(self, bundle: ModelBundle) -> CachingEmbedder:
        embedder = CachingEmbedder(self.settings, self._link, bundle)
        embedder.cache.count_with(self.embedder.cache)
        return embedder


def _opened(reader: GalleryReader, view: GalleryView, served: ServedBundle) -> Matcher:
    """A matcher with the bundle of the version, whose refiner also refines the versions made of it."""
    gallery = reader.gallery
    gallery.refinement = served.refinement
    return Matcher(gallery, served.embedder, served.pipeline, view=view, refiner=served.refiner)
