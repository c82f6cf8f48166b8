"""Open galleries: one matcher a gallery, swapped when another version becomes active."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from indexer.activation import Activation
from indexer.errors import GalleryNotFoundError, IndexerError
from indexer.gallery import GALLERY_NAME, Gallery, list_galleries
from models.bundle import ModelBundle
from models.embedder import Embedder
from service.matcher import Matcher
from service.settings import Settings

__all__ = ["GalleryState", "OpenGalleries"]


@dataclass(frozen=True)
class GalleryState:
    """Whether a gallery can be searched.

    Attributes:
        problem: Why not; None when it can.
    """

    name: str
    problem: str | None = None


class OpenGalleries:
    """Galleries of a data folder, opened when first asked for.

    Args:
        settings: Where the galleries and the bundle are.

    Raises:
        BundleError: The bundle cannot be used.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.embedder = Embedder(
            ModelBundle.open(settings.bundle),
            device=settings.device,
            threads=settings.threads,
            limits=settings.decode_limits,
        )
        self._lock = threading.Lock()
        self._matchers: dict[str, tuple[Activation | None, Matcher]] = {}

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
        return Gallery.open(self.settings.galleries_path / name)

    def matcher(self, name: str) -> Matcher:
        """Matcher of a gallery's active version.

        A request keeps the matcher that it got, so that its answer comes from one version.

        Raises:
            GalleryNotFoundError: There is none of this name.
            BundleMismatchError: The gallery was embedded with another bundle.
            GalleryError: The gallery is damaged.
        """
        gallery = self.gallery(name)
        activation = gallery.activation
        opened = self._matchers.get(name)
        if opened and opened[0] == activation:
            return opened[1]
        with self._lock:
            opened = self._matchers.get(name)
            if opened and opened[0] == activation:
                return opened[1]
            matcher = Matcher(gallery, self.embedder, self.settings.pipeline)
            self._matchers[name] = (activation, matcher)
            return matcher

    def states(self) -> list[GalleryState]:
        """Every gallery with what keeps it from being searched."""
        states = []
        for name in self.names():
            try:
                self.matcher(name)
                states.append(GalleryState(name))
            except IndexerError as error:
                states.append(GalleryState(name, str(error)))
        return states
