"""The losses of `vicinal fit` and their mean, where some of the labels are wrong.

    python -m benchmarks.quality.fit_wrong_labels --data DATA --sets grocery dogfacenet

For each set the labels of the training part are taken as they are, and with a share of them replaced by
others at random. From the same views of all photos and the same first weights one network learns by each
loss, as in a fitting. The ends and their mean, each three quarters of the way from the first weights, are
judged by R@1 and MAP@R of the calibration classes, in float32 at the side that they learned at.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from benchmarks.common.record import save_result
from benchmarks.quality.fit_protocol import extract_training
from vicinal.models.bundle import ModelBundle, default_bundle_path
from vicinal.training.backbones.front_maps import EarlierMaps, no_earlier_maps
from vicinal.training.config import TrainingConfig
from vicinal.training.evaluation import retrieval_metrics
from vicinal.training.fitting.labelled_images import LabelledImages, Split
from vicinal.training.fitting.recipe import BUILT_IN_LOSS, OTHER_LOSS, PHOTOS_FILE, FitRecipe
from vicinal.training.trainer import State, Trainer, _Images
from vicinal.training.validation import between

_WAY = 0.75


class _Kept(Trainer):
    """Keeps the first and the last weights, and the images that they are judged on."""

    first: Mapping[str, Tensor]
    last: Mapping[str, Tensor]
    network: nn.Module
    images: _Images

    def _keep_best(self, state: State, images: _Images) -> tuple[float, float]:
        self.first, self.last = state.start_weights, state.best_weights
        self.network, self.images = state.network, images
        return super()._keep_best(state, images)

    @property
    def maps(self) -> EarlierMaps:
        """Maps of the images that this one has learned from and was judged on, for others to learn from."""
        maps, training = self.images.maps, self.images.training
        assert maps is not None
        places = {
            int(position): slice(place * maps.views, (place + 1) * maps.views)
            for place, position in enumerate(training.positions)
        }
        for place, position in enumerate(self.images.validation.positions, len(places) * maps.views):
            places[int(position)] = slice(place, place + 1)
        return lambda position: np.asarray(maps.rows[places[position]])

    def judge(self, weights: Mapping[str, Tensor]) -> dict[str, float]:
        """Figures of the calibration classes at a point on the way to the weights."""
        self.network.load_state_dict(between(self.first, weights, _WAY))
        found = retrieval_metrics(self.images.embed(self.config), self.images.validation.class_ids, ks=(1,))
        return {"hit_rate_1": round(found.hit_rate[1], 4), "map_at_r": round(found.map_at_r, 4)}


def configuration(
    data: Path, manifest: Path, folder: Path, loss: str, given: argparse.Namespace
) -> TrainingConfig:
    """What a fitting to all photos of a manifest trains with, looking at the calibration classes once."""
    with manifest.open(newline="", encoding="utf-8") as stream:
        rows = sorted((row["path"], row["label"]) for row in csv.DictReader(stream))
    labels = np.array([label for _, label in rows], dtype=object)
    photos = LabelledImages(tuple(manifest.parent / path for path, _ in rows), labels)
    split = Split(np.ones(len(rows), bool), np.zeros(len(rows), bool))
    recipe = FitRecipe.of(
        photos, split, ModelBundle.open(default_bundle_path()), folder, seed=given.seed, path=None
    )
    photos.write_manifest(folder / PHOTOS_FILE, split)
    config = recipe.config(folder, "all", views=given.views, steps=given.steps, loss=loss)
    roles = ("gallery", "query", "absent")
    judged = {"kind": "protocol", "root": data.absolute(), "split": "calibration", "roles": roles}
    return TrainingConfig.model_validate(
        {
            **config.model_dump(),
            "validation_datasets": [judged],
            "validate_every": given.steps,
            "interpolate": _WAY,
        }
    )


def runs(name: str, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Train by each loss with the labels as they are and with wrong ones, from views that are made once."""
    with tempfile.TemporaryDirectory() as temporary:
        earlier: EarlierMaps = no_earlier_maps
        for wrong in (0.0, given.wrong):
            manifest = extract_training(given.data / name, Path(temporary) / f"photos-{wrong:g}", wrong=wrong)
            ends: list[Mapping[str, Tensor]] = []
            for loss in (BUILT_IN_LOSS, OTHER_LOSS):
                folder = Path(temporary) / f"{loss}-{wrong:g}"
                folder.mkdir()
                config = configuration(given.data / name, manifest, folder, loss, given)
                trainer = _Kept(config, folder=folder, earlier=earlier)
                trainer.run()
                earlier = trainer.maps if earlier is no_earlier_maps else earlier
                ends.append(trainer.last)
                yield {"wrong": wrong, "learned_by": loss, **trainer.judge(trainer.last)}
            mean = {"wrong": wrong, "learned_by": "mean of both"}
            first, second = ends
            yield {**mean, **trainer.judge(between(first, second, 0.5))}


def main() -> None:
    """Run each set, and save one result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with one protocol folder a set")
    parser.add_argument("--sets", nargs="+", default=["grocery", "dogfacenet"])
    parser.add_argument("--wrong", type=float, default=0.2)
    parser.add_argument("--views", type=int, default=4)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found = []
    for name in given.sets:
        for run in runs(name, given):
            found.append({"set": name, **run})
            print(found[-1], flush=True)
    given_back = {one: getattr(given, one) for one in ("views", "steps", "seed")}
    print(save_result("fit_wrong_labels", {**given_back, "way": _WAY, "runs": found}))


if __name__ == "__main__":
    main()
