"""Matcher: the search of a gallery that its calibrations decide."""

from __future__ import annotations

from vicinal.indexer.gallery import Gallery
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.views.view import GalleryView
from vicinal.models.embedder import Embedder
from vicinal.refine.context_refiner import ContextRefiner
from vicinal.service.measuring.decision import GalleryThresholds
from vicinal.service.search.gallery_search import GallerySearch
from vicinal.service.search.pipeline import Pipeline


class Matcher(GallerySearch):
    """Searches one state of a gallery, and decides by its calibrations.

    Args:
        gallery: The gallery.
        embedder: Embedder of the service's bundle.
        pipeline: What `auto` stands for where no other was put in force for the gallery; by default what the
            bundle's validation decided.
        view: The state to search; the present one when None.
        refiner: Refiner of the bundle, where it is open already.

    Attributes:
        thresholds: What its searches are decided by.
        calibrations: Calibrations of the gallery.

    Raises:
        BundleMismatchError: The gallery was embedded with another bundle.
    """

    def __init__(
        self,
        gallery: Gallery,
        embedder: Embedder,
        pipeline: Pipeline | None = None,
        *,
        view: GalleryView | None = None,
        refiner: ContextRefiner | None = None,
        thresholds: GalleryThresholds | None = None,
    ) -> None:
        view = GalleryReader(gallery).view() if view is None else view
        self.thresholds = thresholds or GalleryThresholds(gallery, view, embedder.bundle)
        self.calibrations = self.thresholds.records
        super().__init__(gallery, embedder, view, self.thresholds, pipeline, refiner=refiner)

    def at(self, view: GalleryView) -> Matcher:
        """A matcher for another state of the gallery, which keeps what the built version is known for."""
        matcher = Matcher(
            self.gallery,
            self.embedder,
            self._default,
            view=view,
            refiner=self._refiner,
            thresholds=self.thresholds.at(view),
        )
        matcher.keep_of(self)
        return matcher
