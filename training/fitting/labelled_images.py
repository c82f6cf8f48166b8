"""Photos to fit to, and the part of them that is held out to measure on."""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from vicinal.calibration.arrays import Ints, Mask, Objects
from vicinal.calibration.label_codes import label_codes
from vicinal.training.files import replacing
from vicinal.training.fitting.report import PhotosUsed


@dataclass(frozen=True)
class UnusableImage:
    """A file that was left out."""

    path: str
    reason: str


@dataclass(frozen=True)
class Split:
    """Positions of photos to learn from and to measure on, those alone with their label among the latter."""

    training: Mask
    held_out: Mask


@dataclass(frozen=True)
class LabelledImages:
    """Photos that have a label and can be used, sorted by name: mostly the order they were taken in.

    `n_repeated` files hold the same bytes under the same label as one before; `digest` changes with what is
    in the files, where they lie, and their labels.
    """

    paths: tuple[Path, ...]
    labels: Objects
    n_unlabelled: int = 0
    n_repeated: int = 0
    unusable: tuple[UnusableImage, ...] = ()
    digest: str = ""

    @cached_property
    def codes(self) -> Ints:
        """(n,) number of each label."""
        return label_codes(self.labels)[1]

    @cached_property
    def is_single(self) -> Mask:
        """(n,) photos alone with their label."""
        return np.asarray(np.bincount(self.codes)[self.codes] == 1)

    def at_most(self, per_label: int, split: Split, seed: int) -> Split:
        """A split that learns from no more than so many photos of a label, drawn at random."""
        rng = np.random.default_rng(seed)
        order = rng.permutation(np.flatnonzero(split.training))
        order = order[np.argsort(self.codes[order], kind="stable")]
        _, starts, sizes = np.unique(self.codes[order], return_index=True, return_counts=True)
        ranks = np.arange(len(order)) - np.repeat(starts, sizes)
        training = np.zeros(len(self.labels), bool)
        training[order[ranks < per_label]] = True
        return replace(split, training=training)

    def used(self, split: Split) -> PhotosUsed:
        """Count what a split learns from: all but photos alone with their label."""
        learned = (split.training | split.held_out) & ~self.is_single
        n_spare = len(self.labels) - int((split.training | split.held_out).sum())
        n_left = self.n_unlabelled + self.n_repeated + len(self.unusable)
        return PhotosUsed(
            n_found=len(self.labels) + n_left,
            n_photos=int(learned.sum()),
            n_labels=len(np.unique(self.codes[learned])),
            n_single=int(self.is_single.sum()),
            n_unlabelled=self.n_unlabelled,
            n_repeated=self.n_repeated,
            n_unusable=len(self.unusable),
            n_spare=n_spare,
            per_label=int(np.bincount(self.codes[split.training]).max()) if n_spare else None,
        )

    def write_manifest(self, path: Path, split: Split) -> None:
        """Write path, label and split of what is used, as a manifest that training reads."""
        with replacing(path) as partial, partial.open("w", newline="", encoding="utf-8") as stream:
            rows = csv.writer(stream)
            rows.writerow(("path", "label", "split"))
            for name, mask in (("train", split.training), ("held-out", split.held_out)):
                rows.writerows((self.paths[i], self.labels[i], name) for i in np.flatnonzero(mask))
