"""Own refiner of a gallery: when its labels are asked, and what becomes of a new version by that."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vicinal.calibration.arrays import FloatArray, Ints, Objects
from vicinal.indexer.errors import GalleryError
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.jobs.sync.plan import ChosenRefiner
from vicinal.models.progress import OnProgress
from vicinal.refine.errors import RefinerTrainingError
from vicinal.service.galleries.bundles import ServedBundle, ServedBundles
from vicinal.service.galleries.labelled_items import distinct_items, drawn_labels
from vicinal.service.measuring.visits import Visits

if TYPE_CHECKING:
    from vicinal.service.training import OwnRefiner

CHANGED = 0.2
"""Share of the labelled items from which on labels that came, went or changed are asked anew."""

# More would take longer than they say more.
_MOST_ITEMS = 3000


@dataclass(frozen=True)
class _Rows:
    """Items that are no version yet, as visits are found among them."""

    embeddings: FloatArray
    labels: Objects
    item_table: pa.Table

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class GalleryRefiner:
    """Choice of the refiner of a gallery's new versions, made of bundle `served`; see `ChosenRefiner`."""

    bundles: ServedBundles
    gallery: Gallery
    served: ServedBundle
    is_asked: bool  # Otherwise labels are asked where they were for the searched version

    @cached_property
    def plain(self) -> ServedBundle:
        """The bundle with the refiner that it has, if any."""
        return self.bundles.without_own(self.gallery, self.served)

    def is_due(self, items: pa.Table) -> bool:
        """Tell whether the labels are to be asked: they were not, or have changed, or the bundle has."""
        last = self._last
        if not last:
            return self.is_asked and self._problem(items) is None
        if self._problem(items) is not None:
            return False
        return bool(last["bundle"] != self.plain.bundle.fingerprint or self._changed(items, last) > CHANGED)

    def choose(
        self, items: pa.Table, embeddings: FloatArray, folder: Path, report: OnProgress
    ) -> ChosenRefiner:
        """The refiner that the version before has, or one by the labels of these items."""
        if not self.is_due(items):
            record = self._last
            if not record and self.is_asked:
                record = {"text": f"no own refiner: {self._problem(items)}"}
            return ChosenRefiner(self.served.embedder, self.served.refinement, record)
        report("refiner", 0, 1)
        try:
            found = self._judged(items, embeddings)
        except RefinerTrainingError as error:
            return ChosenRefiner(
                self.plain.embedder, self.plain.refinement, {"text": f"no own refiner: {error}"}
            )
        chosen = self.plain
        if found.helps:
            refined = self.plain.embedder.refined_by(found.write(folder))
            chosen = ServedBundle.of(refined, self.bundles.settings)
        report("refiner", 1, 1)
        record = {
            "bundle": self.plain.bundle.fingerprint,
            "refiner": chosen.bundle.refiner_fingerprint if found.helps else "",
            "sides": found.sides if found.helps else "off",
            "n_items": found.n_items,
            "n_labels": found.n_labels,
            "gain_over_none": found.over_none.flat(),
            "gain_over_present": found.over_present.flat(),
            "text": in_words(found, self.plain.bundle.manifest.noun),
        }
        return ChosenRefiner(chosen.embedder, chosen.refinement, record)

    @cached_property
    def _last(self) -> dict[str, Any]:
        """Last record, with the version whose labels were asked; empty where they were not."""
        active = self.gallery.active_version
        for version in reversed(self.gallery.versions() if active is not None else ()):
            report = self.gallery.reports.of(version)
            if version <= (active or 0) and report.get("kind") == "index":
                record = report.get("own_refiner") or {}
                return {"asked": version, **record} if "bundle" in record else {}
        return {}

    def _problem(self, items: pa.Table) -> str | None:
        """Reason for which the labels cannot be asked."""
        from vicinal.service.training import FEWEST_LABELS

        counted = pc.value_counts(items["label"].drop_null())
        n_labels = int(pc.sum(pc.greater(counted.field("counts"), 1)).as_py() or 0)
        if n_labels >= FEWEST_LABELS:
            return None
        return f"{n_labels} labels have two items or more, and at least {FEWEST_LABELS} are needed"

    def _changed(self, items: pa.Table, last: dict[str, Any]) -> float:
        """Share of the labelled items whose label came, went or changed since; 1 where nothing tells."""
        try:
            revision = self.gallery.pointer.revision_of(last["asked"])
            before = self.gallery.table.columns(revision, ["id", "label"])
        except GalleryError:
            return 1.0
        tables = [one.select(["id", "label"]).drop_null() for one in (before, items)]
        together = pa.concat_tables(tables)
        # An id stands once in each, so that a pair that comes twice is in both.
        n_common = len(together) - len(together.group_by(["id", "label"]).aggregate([]))
        return 1.0 - n_common / max(1, *map(len, tables))

    def _judged(self, items: pa.Table, embeddings: FloatArray) -> OwnRefiner:
        from vicinal.service.training import EmbeddingSet, choose_refiner

        is_labelled = items["label"].is_valid().to_numpy()
        places = np.flatnonzero(is_labelled)
        labels = np.array(items["label"].to_pylist(), dtype=object)[places]
        distinct = distinct_items(embeddings[places], labels)
        places, labels = places[distinct], labels[distinct]
        is_drawn = drawn_labels(labels, _MOST_ITEMS, seed=0)
        places, labels = places[is_drawn], labels[is_drawn]
        rows = np.ascontiguousarray(embeddings[places])
        visits = self._visits(items.take(pa.array(places)), rows, labels)
        return choose_refiner(self.plain.bundle, EmbeddingSet.of(rows, labels, visits=visits))

    def _visits(self, items: pa.Table, rows: FloatArray, labels: Objects) -> Ints:
        """(n,) numbers of the visits that are found, as a calibration would."""
        names = Visits.found(_Rows(rows, labels, items), items).names
        own = [f"item {i}" if name is None else name for i, name in enumerate(names)]
        return np.unique(own, return_inverse=True)[1].astype(np.int64)


def in_words(found: OwnRefiner, noun: str) -> str:
    """Verdict of the labels, for people."""
    fnir, ranks = found.over_none.fnir, found.over_none.map_at_r
    before, after = (round(100 * (1.0 - one)) for one in (fnir.before, fnir.after))
    judged = f"measured on {found.n_labels:,} labels that were held out"
    if not found.helps:
        return (
            f"no own refiner: of 100 {noun}s of things you have, {before} are found without it and {after} "
            f"with it, which is no gain to rely on ({judged})"
        )
    counts = f"of 100 {noun}s of things you have, {after} are found in place of {before}"
    if fnir.high >= 0.0:
        rise = f"MAP@R {ranks.before:.2f} to {ranks.after:.2f}"
        counts += f", which may be chance, and they are found higher up ({rise})"
    what = "gallery" if found.sides == "gallery" else "gallery and query"
    return f"own refiner of {what}: {counts}; {judged}"
