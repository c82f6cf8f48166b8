"""Photos to fit to: which have a label and can be used, and which labels are held out to measure on."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from vicinal.calibration.arrays import Ints, Mask, Objects
from vicinal.calibration.label_codes import label_codes
from vicinal.indexer.item_rules import readable
from vicinal.indexer.sources import ImageFile, Refuse, SourceItem, refuse_none
from vicinal.models.decoding import DecodeLimits, decode_image, read_encoded, require_content
from vicinal.models.errors import ImageError
from vicinal.models.progress import OnProgress, no_progress
from vicinal.models.runtime import usable_processors
from vicinal.service.errors import RequestError

# Labels with two photos: some to learn from, and enough others that a rate among them says something.
FEWEST_LABELS = 12
# Each held-out photo is also asked for where its label is not: 5 % of fewer would be no photo at all.
_FEWEST_HELD_OUT = 20
# Of so many labels of like size, one is held out.
_ONE_OF = 5
_SEEN_SIDE = 64


@dataclass(frozen=True)
class UnusablePhoto:
    """A file that was left out.

    Attributes:
        path: The file.
        reason: One sentence, for people.
    """

    path: str
    reason: str


@dataclass(frozen=True)
class Split:
    """What is learned from, and what is held out.

    Attributes:
        training: (n,) photos to learn from.
        held_out: (n,) photos to measure on, those alone with their label among them.
    """

    training: Mask
    held_out: Mask


@dataclass(frozen=True)
class LabelledPhotos:
    """Photos that have a label and can be used.

    Attributes:
        paths: n files, in the sequence of their names: more often than not the order they were taken in.
        labels: (n,) labels.
        n_unlabelled: Photos without a label.
        n_repeated: Files that hold the same bytes under the same label as one before.
        unusable: Files that are no picture.
        digest: Changes with what is in the files, where they lie, and their labels.
    """

    paths: tuple[Path, ...]
    labels: Objects
    n_unlabelled: int = 0
    n_repeated: int = 0
    unusable: tuple[UnusablePhoto, ...] = ()
    digest: str = ""

    @classmethod
    def read(
        cls,
        items: Sequence[SourceItem],
        *,
        refuse: Refuse = refuse_none,
        limits: DecodeLimits | None = None,
        on_progress: OnProgress = no_progress,
    ) -> LabelledPhotos:
        """Look at every labelled item of a source once, in the sequence of the file names.

        Args:
            refuse: Says why a file must not be read.
            limits: What a picture may cost.
        """
        labelled = sorted((item for item in items if item.label is not None), key=_sequence)

        def look(item: SourceItem) -> tuple[str, str]:
            if item.problem is not None:
                return "", item.problem
            return _look(item.path, refuse, limits or DecodeLimits())

        seen: set[tuple[str, str]] = set()
        kept: list[SourceItem] = []
        unusable, told = [], hashlib.sha256()
        with ThreadPoolExecutor(usable_processors()) as pool:
            for done, (item, (digest, reason)) in enumerate(
                zip(labelled, pool.map(look, labelled), strict=True), start=1
            ):
                if reason:
                    unusable.append(UnusablePhoto(readable(str(item.path)), reason))
                elif (digest, str(item.label)) not in seen:
                    seen.add((digest, str(item.label)))
                    kept.append(item)
                    told.update(json.dumps([str(item.path), digest, str(item.label)]).encode())
                on_progress("look", done, len(labelled))
        return cls(
            tuple(item.path for item in kept if isinstance(item.path, Path)),
            np.array([str(item.label) for item in kept], dtype=object),
            len(items) - len(labelled),
            len(labelled) - len(kept) - len(unusable),
            tuple(unusable),
            told.hexdigest(),
        )

    @cached_property
    def codes(self) -> Ints:
        """(n,) number of each label."""
        return label_codes(self.labels)[1]

    def split(self, seed: int) -> Split:
        """Hold out one of five labels, of every size alike, and all labels with one photo."""
        sizes = np.bincount(self.codes)
        paired = np.flatnonzero(sizes > 1)
        if len(paired) < FEWEST_LABELS:
            raise RequestError(
                f"{len(paired)} labels have two photos or more, {FEWEST_LABELS} are needed to learn from "
                "some and measure on the others: label more photos, one folder a label"
            )
        rng = np.random.default_rng(seed)
        order = np.argsort(-sizes[sizes > 1], kind="stable")
        starts = range(0, len(order) - _ONE_OF // 2, _ONE_OF)
        held = [paired[rng.choice(order[start : start + _ONE_OF])] for start in starts]
        is_held = np.isin(self.codes, held)
        if is_held.sum() < _FEWEST_HELD_OUT:
            raise RequestError(
                f"the labels held out to measure on have {is_held.sum()} photos together, at least "
                f"{_FEWEST_HELD_OUT} are needed: add photos, several of each thing"
            )
        is_single = sizes[self.codes] == 1
        return Split(~is_held & ~is_single, is_held | is_single)

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

    def write_manifest(self, path: Path, split: Split) -> None:
        """Write path, label and split of what is used, as a manifest that training reads."""
        partial = path.with_suffix(".csv.partial")
        with partial.open("w", newline="", encoding="utf-8") as stream:
            rows = csv.writer(stream)
            rows.writerow(("path", "label", "split"))
            for name, mask in (("train", split.training), ("held-out", split.held_out)):
                rows.writerows((self.paths[i], self.labels[i], name) for i in np.flatnonzero(mask))
        partial.replace(path)


def _sequence(item: SourceItem) -> list[tuple[int, int, str]]:
    """Key of the order in which photos were taken, as cameras name them: number 10 follows 9."""
    parts = re.split(r"(\d+)", str(item.path))
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts]


def _look(path: ImageFile, refuse: Refuse, limits: DecodeLimits) -> tuple[str, str]:
    """Digest of a file, and why it cannot be used or nothing."""
    if not isinstance(path, Path):
        return "", "it is no file of its own, which learning needs: lay it on the disk"
    refused = refuse(path)
    if refused:
        return "", refused
    try:
        encoded = read_encoded(path, limits)
        require_content(decode_image(encoded, limits=limits, target_side=_SEEN_SIDE))
    except ImageError as error:
        return "", error.reason
    except OSError as error:
        return "", error.strerror or str(error)
    return hashlib.sha256(encoded).hexdigest(), ""
