"""Served bundles: the bundle of the settings, and those of `bundles_dir` that galleries were embedded with.

Each gallery is searched with the bundle of its own version. Other bundles are opened when a gallery first
needs them, and stay open: their memory is the price of a version that can be searched at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vicinal.indexer.errors import BundleMismatchError
from vicinal.indexer.views.refined_snapshot import RefinementPlan
from vicinal.models.bundle import ModelBundle, read_fingerprint
from vicinal.models.embedder import Embedder
from vicinal.models.errors import BundleError
from vicinal.refine.context_refiner import ContextRefiner
from vicinal.refine.errors import RefineError
from vicinal.service.errors import RequestError
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
    """Bundles by fingerprint and by name.

    Args:
        settings: Where they are, and how they run.
        own: Gives the embedder of the bundle in the settings; called when it is needed first.
        open_embedder: Opens the embedder of another bundle; a plain one by default.
    """

    def __init__(
        self,
        settings: Settings,
        own: Callable[[], Embedder],
        open_embedder: Callable[[ModelBundle], Embedder] | None = None,
    ) -> None:
        self.settings = settings
        self._own = own
        self._open_embedder = open_embedder or self._plain
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._opened: dict[str, ServedBundle] = {}

    @property
    def own(self) -> ServedBundle:
        """The bundle of the settings.

        Raises:
            RefineError: The settings ask for a refinement that it does not have.
        """
        embedder = self._own()
        with self._lock:
            fingerprint = embedder.bundle.fingerprint
            if fingerprint not in self._opened:
                self._opened[fingerprint] = ServedBundle.of(embedder, self.settings)
            return self._opened[fingerprint]

    @property
    def others(self) -> list[ServedBundle]:
        """Bundles that are open besides that of the settings."""
        own = self._own().bundle.fingerprint
        with self._lock:
            return [one for fingerprint, one in self._opened.items() if fingerprint != own]

    def path(self, name: str) -> Path:
        """Folder of a bundle below `bundles_dir`.

        Raises:
            RequestError: There is no such setting.
        """
        if self.settings.bundles_dir is None:
            raise RequestError("there is only one bundle here: set VICINAL_BUNDLES_DIR to use others by name")
        return self.settings.bundles_dir / name

    def named(self, name: str | None) -> ServedBundle:
        """A bundle by its folder's name; that of the settings when None.

        Raises:
            RequestError: There are no others here.
            BundleError: It is missing or damaged.
            RefineError: The settings ask for a refinement that it does not have.
        """
        own = self.own
        if name is None:
            return own
        bundle = ModelBundle.open(self.path(name))
        return self._open(bundle)

    def of(self, gallery: str, fingerprint: str) -> ServedBundle:
        """The bundle that a version was embedded with.

        Args:
            gallery: Name of the gallery, for people.
            fingerprint: Fingerprint of the version's bundle.

        Raises:
            BundleMismatchError: It is neither that of the settings nor in `bundles_dir`, or cannot be used.
        """
        own = self.own
        known = self._known(fingerprint)
        if known is not None:
            return known
        found = self._find(fingerprint)
        if found is None:
            raise BundleMismatchError(gallery, own.bundle.fingerprint, fingerprint)
        try:
            return self._open(ModelBundle.open(found))
        except (BundleError, RefineError) as error:
            reason = f"bundle '{found.name}' in bundles_dir has it but cannot be used: {error}"
            raise BundleMismatchError(gallery, own.bundle.fingerprint, fingerprint, reason) from error

    def has(self, fingerprint: str) -> bool:
        """Whether a version of this bundle could be searched, as far as can be told without opening it."""
        if self._known(fingerprint) is not None or fingerprint == self._own().bundle.fingerprint:
            return True
        return self._find(fingerprint) is not None

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
            known = self._known(bundle.fingerprint)
            if known is None:
                known = ServedBundle.of(self._open_embedder(bundle), self.settings)
                with self._lock:
                    self._opened[bundle.fingerprint] = known
                logger.info("bundle '%s' (%s) is open besides that of the settings", bundle.name, bundle.path)
            return known

    def _known(self, fingerprint: str) -> ServedBundle | None:
        with self._lock:
            return self._opened.get(fingerprint)

    def _plain(self, bundle: ModelBundle) -> Embedder:
        settings = self.settings
        return Embedder(
            bundle, device=settings.device, threads=settings.threads, limits=settings.decode_limits
        )
