"""Photos to fit to: those of a source that can be used, and the labels that are held out to measure on."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vicinal.indexer.item_rules import readable
from vicinal.indexer.sources import Refuse, SourceItem, refuse_none
from vicinal.models.decoding import DecodeLimits, decode_image, read_encoded, require_content
from vicinal.models.errors import ImageError
from vicinal.models.progress import OnProgress, no_progress
from vicinal.models.runtime import usable_processors
from vicinal.service.errors import RequestError

if TYPE_CHECKING:
    from vicinal.service.training import LabelledImages, Split

# Labels with two photos: some to learn from, and enough others that a rate among them says something.
FEWEST_LABELS = 12
# Each held-out photo is also asked for where its label is not: 5 % of fewer would be no photo at all.
_FEWEST_HELD_OUT = 20
# More are looked at again and again for as long as it takes to learn.
_MOST_HELD_OUT = 2000
# Of so many labels of like size, one is held out.
_ONE_OF = 5
_SEEN_SIDE = 64


def read_labelled_images(
    items: Sequence[SourceItem],
    *,
    refuse: Refuse = refuse_none,
    on_progress: OnProgress = no_progress,
) -> LabelledImages:
    """Look at every labelled item of a source once, in the sequence of the file names."""
    from vicinal.service.training import LabelledImages, UnusableImage

    labelled = sorted((item for item in items if item.label is not None), key=_sequence)

    seen: set[tuple[str, str]] = set()
    kept: list[SourceItem] = []
    unusable, told = [], hashlib.sha256()
    with ThreadPoolExecutor(usable_processors()) as pool:
        for done, (item, (digest, reason)) in enumerate(
            zip(labelled, pool.map(partial(_look, refuse=refuse), labelled), strict=True), start=1
        ):
            if reason:
                unusable.append(UnusableImage(readable(str(item.path)), reason))
            elif (digest, str(item.label)) not in seen:
                seen.add((digest, str(item.label)))
                kept.append(item)
                told.update(json.dumps([str(item.path), digest, str(item.label)]).encode())
            on_progress("look", done, len(labelled))
    return LabelledImages(
        tuple(item.path for item in kept if isinstance(item.path, Path)),
        np.array([str(item.label) for item in kept], dtype=object),
        len(items) - len(labelled),
        len(labelled) - len(kept) - len(unusable),
        tuple(unusable),
        told.hexdigest(),
    )


def hold_out(photos: LabelledImages, seed: int) -> Split:
    """Hold out labels with one photo, and one of five others of every size; of thousands of photos fewer."""
    from vicinal.service.training import Split

    sizes = np.bincount(photos.codes)
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
    while sizes[held].sum() > _MOST_HELD_OUT and len(held) > 2:
        held = held[::2]
    is_held = np.isin(photos.codes, held)
    if is_held.sum() < _FEWEST_HELD_OUT:
        raise RequestError(
            f"the labels held out to measure on have {is_held.sum()} photos together, at least "
            f"{_FEWEST_HELD_OUT} are needed: add photos, several of each thing"
        )
    return Split(~is_held & ~photos.is_single, is_held | photos.is_single)


def _sequence(item: SourceItem) -> list[tuple[int, int, str]]:
    """Key of the order in which photos were taken, as cameras name them: number 10 follows 9."""
    parts = re.split(r"(\d+)", str(item.path))
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts]


def _look(item: SourceItem, refuse: Refuse) -> tuple[str, str]:
    """Digest of a file, and why it cannot be used or nothing."""
    if item.problem is not None:
        return "", item.problem
    path = item.path
    if not isinstance(path, Path):
        return "", "it is no file of its own, which learning needs: lay it on the disk"
    refused = refuse(path)
    if refused:
        return "", refused
    try:
        encoded = read_encoded(path, DecodeLimits())
        require_content(decode_image(encoded, target_side=_SEEN_SIDE))
    except ImageError as error:
        return "", error.reason
    except OSError as error:
        return "", error.strerror or str(error)
    return hashlib.sha256(encoded).hexdigest(), ""
