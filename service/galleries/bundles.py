"""Served bundles: that of the settings, and those at hand that galleries were embedded with."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from vicinal.calibration.advice import advise
from vicinal.indexer.errors import BundleMismatchError, GalleryError
from vicinal.indexer.gallery import Gallery, list_galleries
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources import EmbeddingSource, Source
from vicinal.indexer.views.refined_snapshot import RefinementPlan
from vicinal.indexer.views.snapshot import SnapshotManifest
from vicinal.indexer.views.view import GalleryView
from vicinal.models.bundle import (
    BundleManifest,
    ModelBundle,
    read_fingerprint,
    read_manifest,
    space_manifest,
)
from vicinal.models.embedder import Embedder, SpaceEmbedder
from vicinal.models.errors import BundleError
from vicinal.refine.context_refiner import ContextRefiner
from vicinal.refine.errors import RefineError
from vicinal.service.answering.different import CalledDifferent
from vicinal.service.errors import RequestError
from vicinal.service.measuring.matcher import Matcher
from vicinal.service.search.item_spaces import refinement_plan
from vicinal.service.search.pipeline import Pipeline
from vicinal.service.search.query_embedder import CachingEmbedder, QueryCache, lookup_counter
from vicinal.service.search.redis_link import RedisLink
from vicinal.service.settings import Settings

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ServedBundle:
    """A bundle that is open for searches."""

    embedder: Embedder
    pipeline: Pipeline  # What `auto` stands for with it
    refinement: RefinementPlan | None  # Of the items of new versions; None without a refiner
    index_device: str = "cpu"  # Where their neighbor lists are made and pairs compared; see `Settings`

    @classmethod
    def of(cls, embedder: Embedder, settings: Settings) -> ServedBundle:
        """An embedder with what the settings make of its bundle."""
        pipeline = settings.pipeline_for(embedder.bundle)
        plan = refinement_plan(pipeline, embedder.bundle, settings.device)
        return cls(embedder, pipeline, plan, settings.index_device)

    def make_versions_of(self, gallery: Gallery) -> None:
        """Have a gallery's new versions refined with it, and made where the settings say."""
        gallery.refinement, gallery.index_device = self.refinement, self.index_device

    @property
    def bundle(self) -> ModelBundle:
        """The bundle."""
        return self.embedder.bundle

    @property
    def refiner(self) -> ContextRefiner | None:
        """Its refiner; None without one."""
        return None if self.refinement is None else self.refinement.refiner


class ServedBundles:
    """Bundles by fingerprint and by name, each open once; `named` is the settings' one, named by a caller."""

    def __init__(
        self,
        settings: Settings,
        link: RedisLink | None = None,
        *,
        embedder: Embedder | None = None,
        named: Path | None = None,
    ) -> None:
        self.settings = settings
        self.named = named
        self.engine = settings.open_engine()
        self.lookups = lookup_counter()
        self._link = link
        self._opening = threading.Lock()
        # The bundle of the settings; None while nothing has needed it.
        self.own_if_open = None if embedder is None else ServedBundle.of(embedder, settings)
        # By the name of the gallery and the refiner that its version names.
        self._spaces: dict[tuple[str, str], ServedBundle] = {}
        own = self.own_if_open
        self._opened = {} if own is None else {own.bundle.fingerprint: own}

    def gallery(self, name: str, *, is_new: bool = False) -> Gallery:
        """A gallery by name, or by its alias, which need not have been indexed where it is new."""
        kind = Gallery if is_new else Gallery.open
        gallery = kind(self.settings.gallery_path(name), engine=self.engine)
        gallery.lay()
        return gallery

    @property
    def own(self) -> ServedBundle:
        """The bundle of the settings, opened when it is needed first."""
        own = self.own_if_open = self.own_if_open or self._open(ModelBundle.open(self.settings.bundle))
        return own

    @cached_property
    def own_space(self) -> BundleManifest | None:
        """The space that the settings name in place of a bundle that embeds; None where they do not."""
        try:
            manifest = read_manifest(self.settings.bundle)
        except BundleError:
            return None
        return manifest if manifest.space else None

    def prepare(self) -> None:
        """Open the bundle of the settings, unless all galleries hold ready embeddings or it is a space."""
        if self.own_space is not None:
            # What is wrong with it is told now, and not with every search.
            self._served_space("", ModelBundle.open(self.settings.bundle))
            return
        galleries = list_galleries(self.settings.galleries_path)
        if not galleries or not all(map(_is_ready, galleries)):
            _ = self.own

    @property
    def others(self) -> list[ServedBundle]:
        """Bundles that are open besides that of the settings."""
        return [one for one in list(self._opened.values()) if one is not self.own_if_open]

    def resolve(
        self,
        gallery: Gallery,
        made_of: SnapshotManifest | EmbeddingSource | Source | Literal["images"] | None,
        *,
        bundle: str | None = None,
        space: str | None = None,
        keeps_refiner: bool = True,
    ) -> ServedBundle:
        """Bundle that serves a gallery's version, or one made of `made_of`, None for its own items; `bundle`
        is a folder below `bundles_dir`, `space` (`NAME` or `NAME@VERSION`) made ready embeddings. A new
        version keeps the refiner that the searched one names, unless it is to have that of the bundle.
        """
        if isinstance(made_of, SnapshotManifest):
            served = self._embedded_with(gallery, made_of.bundle, made_of.refiner)
            self._require_named(gallery, served)
            return served
        if made_of is None:
            served = self._to_index(gallery, bundle)
        elif isinstance(made_of, EmbeddingSource):
            served = self._space(gallery, space, made_of.dim)
        else:
            served = self.own if bundle is None else self._open(self._named(bundle))
        self._require_named(gallery, served)
        if not keeps_refiner:
            served = self._without_own(gallery, served)
        elif not served.bundle.manifest.space:
            served = self._with_own(gallery, served)
        served.make_versions_of(gallery)
        return served

    def _require_named(self, gallery: Gallery, served: ServedBundle) -> None:
        """Refuse a bundle of other ready embeddings that was named for this gallery."""
        used, space = served.bundle.manifest, None if self.named is None else self.own_space
        if space is not None and space.fingerprint != used.fingerprint:
            raise RequestError(
                f"gallery '{gallery.name}' holds {used.in_words}, and bundle '{self.named}' is for "
                f"{space.in_words}: leave the bundle out, or name one of the gallery's own"
            )

    def _without_own(self, gallery: Gallery, served: ServedBundle) -> ServedBundle:
        """The same bundle without a refiner that the gallery keeps."""
        bundle = served.bundle
        if not bundle.manifest.space:
            return self._opened.get(bundle.fingerprint, served)
        if bundle.path != gallery.bundle_path(bundle.refiner_fingerprint):
            return served
        plain = bundle.manifest.model_copy(update={"refiner": None})
        return self._served_space(gallery.name, ModelBundle(gallery.space_path, plain))

    def _with_own(self, gallery: Gallery, served: ServedBundle, refiner: str | None = None) -> ServedBundle:
        """A bundle of images with the refiner that a version names, by default the searched one; as it is
        where that names none, or was embedded with another bundle.
        """
        if refiner is None:
            active = gallery.activation
            identity = {} if active is None else gallery.table.identity(active.revision)
            is_same = identity.get("bundle") == served.bundle.fingerprint
            refiner = identity.get("refiner", "") if is_same else ""
        if not refiner:
            return served
        known = self._spaces.get((gallery.name, refiner))
        if known is None or known.bundle.fingerprint != served.bundle.fingerprint:
            refined = served.bundle.refined_by(gallery.bundle_path(refiner))
            known = ServedBundle.of(served.embedder.refined_by(refined), self.settings)
            self._spaces[gallery.name, refiner] = known
        return known

    def _named(self, name: str) -> ModelBundle:
        if self.settings.bundles_dir is None:
            raise RequestError("there is only one bundle here: set VICINAL_BUNDLES_DIR to use others by name")
        path = self.settings.bundles_dir / name
        if not path.is_dir():
            raise RequestError(f"there is no bundle '{name}' in bundles_dir")
        return ModelBundle.open(path)

    def _embedded_with(self, gallery: Gallery, fingerprint: str, refiner: str) -> ServedBundle:
        """The bundle that a version was embedded with."""
        space = self._space_of(gallery, fingerprint, refiner)
        if space is not None:
            return space
        served = self._of_images(gallery, fingerprint)
        try:
            return self._with_own(gallery, served, refiner)
        except (BundleError, RefineError) as error:
            reason = f"the refiner of this version cannot be used: {error}"
            raise BundleMismatchError(gallery.name, self._own_fingerprint(), fingerprint, reason) from error

    def _of_images(self, gallery: Gallery, fingerprint: str) -> ServedBundle:
        """The bundle of a fingerprint, of those that are at hand."""
        if fingerprint in self._opened:
            return self._opened[fingerprint]
        if self.own_if_open is None and read_fingerprint(self.settings.bundle) == fingerprint:
            return self.own
        found = self._find(fingerprint)
        if found is None:
            raise BundleMismatchError(gallery.name, self._own_fingerprint(), fingerprint)
        try:
            return self._open(ModelBundle.open(found))
        except (BundleError, RefineError) as error:
            reason = f"bundle '{found.name}' in bundles_dir has it but cannot be used: {error}"
            raise BundleMismatchError(gallery.name, self._own_fingerprint(), fingerprint, reason) from error

    def matcher(
        self, gallery: Gallery, view: GalleryView | None = None, known: Matcher | None = None
    ) -> Matcher:
        """Matcher of a state of a gallery, the present one when None, with its version's bundle; one of
        another state keeps what it has found out.
        """
        view = GalleryReader(gallery).view() if view is None else view
        if known is not None and known.view is view:
            return known
        served = self.resolve(gallery, view.snapshot.manifest)
        if known is not None and known.embedder is served.embedder:
            return known.at(view)
        served.make_versions_of(gallery)
        matcher = Matcher(gallery, served.embedder, served.pipeline, view=view, refiner=served.refiner)
        matcher.different = CalledDifferent(gallery)
        return matcher

    def _space(self, gallery: Gallery, name: str | None, dim: int) -> ServedBundle:
        """The space of ready embeddings of a length, by its name; the gallery's own when None."""
        held = gallery.space
        if name is None and held is None:
            raise RequestError(
                "say what made these embeddings ",
                advise("by {space}, such as {space} clip-vit-b32: only those of one space are compared"),
            )
        own = "" if held is None else f"{held.space}@{held.version}"
        given = space_manifest(own if name is None else name, dim)
        if held is not None and held.fingerprint == given.fingerprint:
            return self._embedded_with(gallery, held.fingerprint, gallery.refiner)
        if self.own_space is not None and self.own_space.fingerprint == given.fingerprint:
            return self._served_space(gallery.name, ModelBundle.open(self.settings.bundle))
        return self._served_space(gallery.name, ModelBundle(gallery.space_path, given))

    def _to_index(self, gallery: Gallery, name: str | None) -> ServedBundle:
        """The bundle that a gallery's own items are indexed anew with; a name may be that of a space."""
        space = gallery.space
        if space is None:
            return self.resolve(gallery, "images", bundle=name)
        if name is None:
            return self._embedded_with(gallery, space.fingerprint, gallery.refiner)
        chosen, own = self._named(name), self.own_space
        if (
            own is not None
            and own.fingerprint == chosen.fingerprint
            and own.refiner != chosen.manifest.refiner
        ):
            raise RequestError(
                f"bundle '{name}' would not be searched with: this service searches all galleries of "
                f"'{own.space}@{own.version}' with the bundle of its settings; start it without that one"
            )
        return self._served_space(gallery.name, chosen) if chosen.manifest.space else self._open(chosen)

    def _own_fingerprint(self) -> str:
        # Opening one that cannot be read says what is wrong with it.
        return read_fingerprint(self.settings.bundle) or self.own.bundle.fingerprint

    def _space_of(self, gallery: Gallery, fingerprint: str, refiner: str) -> ServedBundle | None:
        """The space of a gallery of ready embeddings; None when its fingerprint is another."""
        known = self._spaces.get((gallery.name, refiner))
        if known is not None and known.bundle.fingerprint == fingerprint:
            return known
        path = gallery.bundle_path(refiner)
        if self.own_space is not None and self.own_space.fingerprint == fingerprint:
            path = self.settings.bundle
        if not any(_is_space(one, fingerprint) for one in (path, gallery.space_path)):
            return None
        try:
            served = self._served_space(gallery.name, ModelBundle.open(path))
        except (BundleError, RefineError) as error:
            reason = f"its space cannot be used: {error}"
            raise BundleMismatchError(gallery.name, "none of it", fingerprint, reason) from error
        self._spaces[gallery.name, refiner] = served
        return served

    def _served_space(self, gallery: str, bundle: ModelBundle) -> ServedBundle:
        return ServedBundle.of(SpaceEmbedder(bundle, gallery), self.settings)

    def _find(self, fingerprint: str) -> Path | None:
        """Folder of a bundle among those at hand; what is no bundle is passed over."""
        paths = (one for folder in self.settings.bundle_folders for one in sorted(folder.iterdir()))
        return next((one for one in paths if one.is_dir() and read_fingerprint(one) == fingerprint), None)

    def _open(self, bundle: ModelBundle) -> ServedBundle:
        # Opening takes seconds, in which bundles that are open already are still given out.
        with self._opening:
            known = self._opened.get(bundle.fingerprint)
            if known is None:
                embedder = self._embedder(bundle)
                known = self._opened[bundle.fingerprint] = ServedBundle.of(embedder, self.settings)
                logger.info("bundle '%s' (%s) is open", bundle.name, bundle.path)
            return known

    def _embedder(self, bundle: ModelBundle) -> CachingEmbedder:
        settings = self.settings
        cache = QueryCache(
            bundle.fingerprint,
            bundle.dim,
            n_entries=settings.query_cache_entries,
            seconds=settings.query_cache_seconds,
            link=self._link,
            lookups=self.lookups,
        )
        return CachingEmbedder(
            bundle, cache, device=settings.device, threads=settings.threads, limits=settings.decode_limits
        )


def _is_space(path: Path, fingerprint: str) -> bool:
    """Tell whether a folder names the space of a fingerprint, with a refiner or without."""
    try:
        manifest = read_manifest(path)
    except BundleError:
        return False
    return bool(manifest.space) and manifest.fingerprint == fingerprint


def _is_ready(gallery: Gallery) -> bool:
    """Tell whether a gallery holds ready embeddings, as far as can be told."""
    try:
        return gallery.space is not None
    except GalleryError:
        return False
