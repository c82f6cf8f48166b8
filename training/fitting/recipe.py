"""Recipe of a fitting: the configurations that its try, its trial and its training of all labels run by."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vicinal.calibration.arrays import Mask
from vicinal.models.bundle import ModelBundle
from vicinal.models.configs.file import checked, read_toml
from vicinal.training.config import TrainingConfig
from vicinal.training.datasets.layouts.demo_catalog import DemoCatalogConfig
from vicinal.training.fitting.labelled_images import LabelledImages, Split
from vicinal.training.losses.config import LossConfig, named_loss

PHOTOS_FILE = "photos.csv"
RECIPE = Path(__file__).with_name("recipe.toml")
# Both learn from the same views, and the mean of their weights searches better than either.
BUILT_IN_LOSS, OTHER_LOSS = "multi_similarity", "recall_at_k"

_VALIDATIONS = 6
# What drawn products add is classes: with so many of their own, photos learn better without. 38 labels gain
# by them, 637 lose; where between the two it turns was not measured.
_MANY_LABELS = 150
# A catalog of drawn products for so many photos: with few of them, drawing would take most of the time.
_PHOTOS_A_CATALOG = 600


@dataclass(frozen=True)
class FitRecipe:
    """Recipe of a fitting: the `fields` of its file, filled in for photos, their split and the bundle before.

    A split with fewer photos of a label has the same configurations.
    """

    fields: dict[str, Any]
    photos: LabelledImages
    split: Split
    before: ModelBundle
    name: str
    seed: int

    @classmethod
    def of(
        cls,
        photos: LabelledImages,
        split: Split,
        before: ModelBundle,
        output: Path,
        *,
        seed: int,
        path: Path | None,
    ) -> FitRecipe:
        """Read the recipe of a file, None for the built-in one; `output` names the bundle."""
        name = "".join(c if c.isalnum() or c in "._-" else "-" for c in output.name.lower())
        name = name.lstrip("._-")[:64] or "fitted"
        return cls(read_toml(path or RECIPE), photos, split, before, name, seed)

    @property
    def digest(self) -> str:
        """SHA-256 of the file's fields."""
        return hashlib.sha256(json.dumps(self.fields, default=str).encode()).hexdigest()

    @property
    def loss(self) -> str:
        """Loss that the file names."""
        loss = named_loss(self.fields.get("loss", {}))
        return checked(LossConfig, loss, "the recipe of the fitting").name

    def losses(self) -> list[str]:
        """Losses to learn with: the file's, and beside the built-in one the other."""
        is_cut = bool(self.fields["backbone"].get("frozen_stages", 0))
        return [self.loss, OTHER_LOSS] if is_cut and self.loss == BUILT_IN_LOSS else [self.loss]

    @property
    def others(self) -> list[dict[str, Any]]:
        """Data sets of the file that share the batches with the photos, where these have few labels."""
        if len(np.unique(self.photos.codes[self._used])) >= _MANY_LABELS:
            return []
        n_catalogs = max(1, int((~self.photos.is_single).sum()) // _PHOTOS_A_CATALOG)
        return [
            {**one, "seeds": one["seeds"][:n_catalogs]} if "seeds" in one else one
            for one in self.fields.get("datasets", [])
        ]

    @property
    def n_drawn(self) -> int:
        """Number of drawn pictures to learn from."""
        return sum(1 for one in self.others for _ in DemoCatalogConfig.model_validate(one).rows())

    def config(
        self,
        folder: Path,
        part: Literal["try", "trial", "all"],
        *,
        views: int,
        steps: int,
        loss: str | None = None,
    ) -> TrainingConfig:
        """Fill in the photos that a manifest in a folder lists; a try takes nothing else."""
        photos: dict[str, Any] = {"kind": "manifest", "root": folder.absolute(), "file": PHOTOS_FILE}
        fields, section = self.fields, self.before.manifest.refiner
        others = [] if part == "try" else self.others
        backbone = dict(fields["backbone"])
        if section is not None and section.architecture.form == "gated" and "dim" in backbone:
            # Its refiner can only go along to embeddings of this length.
            backbone["dim"] = self.before.dim
        changes: dict[str, Any] = {
            **({} if loss in (None, self.loss) else {"loss": {"name": loss}}),
            "name": self.name,
            "backbone": backbone,
            "seed": self.seed,
            "datasets": [photos if part == "all" else {**photos, "split": "train"}, *others],
            "sampler": self._sampler(folder.absolute().name, part, is_shared=bool(others)),
            "optimizer": {**fields.get("optimizer", {}), "steps": steps},
            "augmentation": {**fields.get("augmentation", {}), "views": views},
            "validate_every": max(1, steps // _VALIDATIONS),
        }
        if part == "trial":
            changes |= {"validation_datasets": [{**photos, "split": "held-out"}]}
        else:
            changes |= {"validation_share": 0.0, "patience": None, "interpolate": False}
        return checked(TrainingConfig, {**fields, **changes}, "the recipe of the fitting")

    def _sampler(self, name: str, part: str, *, is_shared: bool) -> dict[str, Any]:
        """Batches of the photos' labels; half of a shared one is of the file's data sets."""
        sampler = {"per_class": 4, "batch_size": 64, **self.fields.get("sampler", {})}
        n_labels = len(np.unique(self.photos.codes[self._used if part == "all" else self.split.training]))
        n_classes = sampler["batch_size"] // sampler["per_class"]
        if not is_shared:
            return {**sampler, "batch_size": min(n_labels, n_classes) * sampler["per_class"]}
        own = min(n_labels, n_classes // 2)
        return {
            **sampler,
            "kind": "source_balanced",
            "batch_size": 2 * own * sampler["per_class"],
            "classes_per_source": {name: own, DemoCatalogConfig.name: own},
        }

    @property
    def _used(self) -> Mask:
        """(n,) photos that the bundle learns from: all but those alone with their label."""
        used: Mask = (self.split.training | self.split.held_out) & ~self.photos.is_single
        return used
