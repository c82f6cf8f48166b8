"""Served bundles: the bundle of the settings, and those of `bundles_dir` that galleries were embedded with.

Each gallery is searched with the bundle of its own version; one of ready embeddings with its space, which
lies in its own folder. Other bundles are opened when a gallery first
needs them, and stay open: their memory is the price of a version that can be searched at once.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from pathlib import Path

from vicinal.indexer.errors import BundleMismatchError, GalleryError
from vicinal.indexer.gallery import Gallery, list_galleries
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.views.refined_snapshot import RefinementPlan
from vicinal.indexer.views.view import GalleryView
from vicinal.models.bundle import ModelBundle, read_fingerprint, space_manifest
from vicinal.models.embedder import Embedder, SpaceEmbedder
from vicinal.models.errors import BundleError
from vicinal.refine.context_refiner import ContextRefiner
from vicinal.refine.errors import RefineError
from vicinal.service.errors import RequestError
from vicinal.service.matcher.matcher import Matcher
from vicinal.service.matcher.query_embedder import CachingEmbedder, lookup_counter
from vicinal.service.redis_link import RedisLink
from vicinal.service.scoring.opened_refiner import refinement_plan
from vicinal.service.scoring.pipeline import Pipeline
from vicinal.service.settings import Settings

__all__ = ["ServedBundle", "ServedBundles"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServedBundle:
    """A bundle that is open for searches.

    Attributes:
        embedder: Its embedder.
        pipeline: What `auto` stands for with it.
        refinement: How the items of new versions are refined with it; None without a refiner.
    """

    embedder: Embedder
    pipeline: Pipeline
    refinement: RefinementPlan | None

    @classmethod
    def of(cls, embedder: Embedder, settings: Settings) -> ServedBundle:
        """An embedder with what the settings make of its bundle.

        Raises:
            RefineError: The settings ask for a refinement that the bundle does not have.
        """
        pipeline = settings.pipeline_for(embedder.bundle)
        return cls(embedder, pipeline, refinement_plan(pipeline, embedder.bundle))

    @property
    def bundle(self) -> ModelBundle:
        """The bundle."""
        return self.embedder.bundle

    @property
    def refiner(self) -> ContextRefiner | None:
        """Its refiner; None without one."""
        return None if self.refinement is None else self.refinement.refiner


class ServedBundles:
    """Bundles by fingerprint and by name, each open once for all that a process does with it.

    Args:
        settings: Where they are, and how they run.
        link: Link to Redis, for the cache of query embeddings.
        embedder: Embedder of the bundle in the settings, where it is open already.

    Attributes:
        lookups: Counts what the caches of query embeddings are asked for.
    """

    def __init__(
        self, settings: Settings, link: RedisLink | None = None, *, embedder: Embedder | None = None
    ) -> None:
        self.settings = settings
        self.lookups = lookup_counter()
        self._link = link
        self._opening = threading.Lock()
        self._own = None if embedder is None else ServedBundle.of(embedder, settings)
        # By the name of the gallery: a refiner of one of them is none of another.
        self._spaces: dict[str, ServedBundle] = {}
        self._opened = {} if self._own is None else {self._own.bundle.fingerprint: self._own}

    @property
    def own(self) -> ServedBundle:
        """The bundle of the settings, opened when it is needed first.

        Raises:
            BundleError: It is missing or damaged.
            RefineError: The settings ask for a refinement that it does not have.
        """
        if self._own is None:
            self._own = self._open(ModelBundle.open(self.settings.bundle))
        return self._own

    @property
    def own_if_open(self) -> ServedBundle | None:
        """The bundle of the settings; None while nothing has needed it."""
        return self._own

    def prepare(self) -> None:
        """Open the bundle of the settings, unless all galleries hold ready embeddings.

        Raises:
            BundleError: It is missing or damaged.
            RefineError: The settings ask for a refinement that it does not have.
        """
        galleries = list_galleries(self.settings.galleries_path)
        if not galleries or not all(map(_is_ready, galleries)):
            _ = self.own

    @property
    def others(self) -> list[ServedBundle]:
        """Bundles that are open besides that of the settings."""
        return [one for one in list(self._opened.values()) if one is not self._own]

    def named(self, name: str | None) -> ServedBundle:
        """A bundle by its folder's name below `bundles_dir`; that of the settings when None.

        Raises:
            RequestError: There are no others here.
            BundleError: It is missing or damaged.
            RefineError: The settings ask for a refinement that it does not have.
        """
        if name is None:
            return self.own
        if self.settings.bundles_dir is None:
            raise RequestError("there is only one bundle here: set VICINAL_BUNDLES_DIR to use others by name")
        return self._open(ModelBundle.open(self.settings.bundles_dir / name))

    def of(self, gallery: str, fingerprint: str) -> ServedBundle:
        """The bundle that a version was embedded with.

        Args:
            gallery: Name of the gallery, for people.
            fingerprint: Fingerprint of the version's bundle.

        Raises:
            BundleMismatchError: It is neither the gallery's space, nor that of the settings, nor in
                `bundles_dir`, or cannot be used.
        """
        space = self._space_of(gallery, fingerprint)
        if space is not None:
            return space
        if fingerprint in self._opened:
            return self._opened[fingerprint]
        if self._own is None and read_fingerprint(self.settings.bundle) == fingerprint:
            return self.own
        found = self._find(fingerprint)
        if found is None:
            raise BundleMismatchError(gallery, self._own_fingerprint(), fingerprint)
        try:
            return self._open(ModelBundle.open(found))
        except (BundleError, RefineError) as error:
            reason = f"bundle '{found.name}' in bundles_dir has it but cannot be used: {error}"
            raise BundleMismatchError(gallery, self._own_fingerprint(), fingerprint, reason) from error

    def matcher(self, gallery: Gallery, view: GalleryView | None = None) -> Matcher:
        """Matcher of a state of a gallery, with the bundle that its version was embedded with.

        Args:
            gallery: The gallery; versions that are made of it are refined as the bundle says.
            view: The state; the present one when None.

        Raises:
            BundleMismatchError: The bundle is not here, or cannot be used.
            GalleryError: The gallery is damaged.
        """
        view = GalleryReader(gallery).view() if view is None else view
        served = self.of(gallery.name, view.snapshot.manifest.bundle)
        gallery.refinement = served.refinement
        return Matcher(gallery, served.embedder, served.pipeline, view=view, refiner=served.refiner)

    def space(self, gallery: Gallery, name: str | None, dim: int) -> ServedBundle:
        """The space that ready embeddings are of which are indexed into a gallery.

        Args:
            gallery: The gallery, new or existing.
            name: `NAME` or `NAME@VERSION`; the gallery's own when None.
            dim: Length of the embeddings.

        Raises:
            RequestError: There is no name, and the gallery is of none.
            BundleError: It is no such name.
        """
        held = gallery.space
        if name is None and held is None:
            raise RequestError(
                "say what made these embeddings by --space, such as --space clip-vit-b32: only those of one "
                "space are compared"
            )
        own = "" if held is None else f"{held.space}@{held.version}"
        given = space_manifest(own if name is None else name, dim)
        if held is not None and held.fingerprint == given.fingerprint:
            return self.of(gallery.name, held.fingerprint)
        return self._served_space(gallery.name, ModelBundle(gallery.space_path, given))

    def to_index(self, gallery: Gallery, name: str | None = None) -> ServedBundle:
        """The bundle that a gallery's own items are indexed anew with.

        Args:
            gallery: The gallery, new or existing.
            name: As for `named`; the gallery's space when None, if it has one.

        Raises:
            RequestError: There are no others here.
            BundleError: It is missing or damaged.
            RefineError: The settings ask for a refinement that it does not have.
        """
        space = gallery.space if name is None else None
        return self.named(name) if space is None else self.of(gallery.name, space.fingerprint)

    def _own_fingerprint(self) -> str:
        # Opening one that cannot be read says what is wrong with it.
        return read_fingerprint(self.settings.bundle) or self.own.bundle.fingerprint

    def _space_of(self, gallery: str, fingerprint: str) -> ServedBundle | None:
        """The space of a gallery of ready embeddings; None when its fingerprint is another."""
        known = self._spaces.get(gallery)
        if known is not None and known.bundle.fingerprint == fingerprint:
            return known
        path = Gallery(self.settings.gallery_path(gallery)).space_path
        if read_fingerprint(path) != fingerprint:
            return None
        try:
            served = self._served_space(gallery, ModelBundle.open(path))
        except (BundleError, RefineError) as error:
            reason = f"its space cannot be used: {error}"
            raise BundleMismatchError(gallery, "none of it", fingerprint, reason) from error
        self._spaces[gallery] = served
        return served

    def _served_space(self, gallery: str, bundle: ModelBundle) -> ServedBundle:
        return ServedBundle.of(SpaceEmbedder(bundle, gallery), self.settings)

    def _find(self, fingerprint: str) -> Path | None:
        """Folder of a bundle in `bundles_dir`; what is no bundle is passed over."""
        folder = self.settings.bundles_dir
        for path in sorted(folder.iterdir()) if folder is not None and folder.is_dir() else ():
            if path.is_dir() and read_fingerprint(path) == fingerprint:
                return path
        return None

    def _open(self, bundle: ModelBundle) -> ServedBundle:
        # Opening takes seconds, in which bundles that are open already are still given out.
        with self._opening:
            known = self._opened.get(bundle.fingerprint)
            if known is None:
                embedder = CachingEmbedder(bundle, self.settings, self._link, self.lookups)
                known = self._opened[bundle.fingerprint] = ServedBundle.of(embedder, self.settings)
                logger.info("bundle '%s' (%s) is open", bundle.name, bundle.path)
            return known


def _is_ready(gallery: Gallery) -> bool:
    """Whether a gallery holds ready embeddings, as far as can be told."""
    try:
        return gallery.space is not None
    except GalleryError:
        return False
