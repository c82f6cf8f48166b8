"""How `vicinal calibration check` judges promises on real photos: kept ones, another camera, other classes.

Galleries of some labels of an image set are drawn at random and calibrated by leaving one out, as `vicinal
calibrate` does where nothing tells visits apart. The promise is then tried with the protocol's queries, which
were taken on other occasions than the gallery's photos, of 5, 15 or 40 labels of each kind: things that are
in the gallery, and things that are not.

- `same`: as they are.
- `mild` and `strong`: from another camera. Queries are scaled down, blurred, tinted, darkened and compressed
  before they are embedded; the gallery is not.
- `look_alikes`: what is not in the gallery looks like something that is. Of groceries the gallery holds at
  most one product of each kind, and the queries without a mate are others of these kinds; of dogs they are
  the third that the model finds most like one of the gallery.

Whether the promise is truly kept is told by all photos of a world: it is where no rate over all of them
lies above its promised range. Without `--parts test` no test class is used.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter

from benchmarks.common.record import save_result
from benchmarks.quality.another_day import snapshot_of
from benchmarks.quality.protocol_data import coarse_labels
from vicinal.calibration import LabelCounts, Target, check_promise
from vicinal.indexer.views.snapshot import Snapshot
from vicinal.models.bundle import ModelBundle, default_bundle_path
from vicinal.models.embedder import Embedder
from vicinal.service.measuring.calibrator import Calibrator
from vicinal.service.measuring.queries import LabelledQueries
from vicinal.service.measuring.records.promise import ERROR_RATE, check_calibration
from vicinal.service.measuring.records.record import CalibrationRecord, promised_range
from vicinal.service.measuring.visits import Visits
from vicinal.service.search.pipeline import Pipeline
from vicinal.service.search.scorer import Scorer
from vicinal.training.datasets.layouts.protocol import ProtocolConfig

RATES = ("fnir", "fpir")
LATER = (5, 15, 40)
WORLDS = ("same", "mild", "strong", "look_alikes")
TARGET = Target(rate="fpir", value=0.05)
_BATCH = 64


@dataclass(frozen=True)
class Camera:
    """What a camera does to a picture.

    Attributes:
        scale: Side that is left of a side.
        blur: Radius of a Gaussian blur in pixels.
        tint: Factors of red, green and blue.
        quality: Of the JPEG.
    """

    scale: float
    blur: float
    tint: tuple[float, float, float]
    quality: int

    def __call__(self, image: Image.Image) -> Image.Image:
        """The picture as this camera takes it."""
        small = image.resize([max(8, round(self.scale * side)) for side in image.size])
        taken = np.asarray(small.resize(image.size).filter(ImageFilter.GaussianBlur(self.blur)))
        tinted = Image.fromarray(np.clip(taken * np.array(self.tint), 0, 255).astype(np.uint8))
        stream = io.BytesIO()
        tinted.save(stream, "JPEG", quality=self.quality)
        return Image.open(stream).convert("RGB")


CAMERAS: dict[str, Callable[[Image.Image], Image.Image]] = {
    "same": lambda image: image,
    "mild": Camera(0.7, 0.5, (1.05, 0.97, 0.85), 50),
    "strong": Camera(0.5, 1.0, (1.0, 0.8, 0.6), 30),
}


@dataclass(frozen=True)
class Photos:
    """Photos of one part: labels, roles, and (n, d) embeddings by camera; those of the gallery have one."""

    labels: np.ndarray
    roles: np.ndarray
    coarse: np.ndarray
    embeddings: dict[str, np.ndarray]

    def of(self, labels: np.ndarray, *roles: str) -> np.ndarray:
        """Positions of the photos of some labels with some roles."""
        return np.flatnonzero(np.isin(self.labels, labels) & np.isin(self.roles, roles))


def read_photos(root: Path, split: str, embedder: Embedder, cache: Path) -> Photos:
    """The photos of a part in its protocol's roles; embedded once."""
    rows = [
        (role, row)
        for role in ("gallery", "query", "absent")
        for row in ProtocolConfig(kind="protocol", root=root, split=split, roles=(role,)).rows()
    ]
    labels = np.array([row.label for _, row in rows], dtype=object)
    roles = np.array([role for role, _ in rows])
    coarse = coarse_labels(root, set(labels))
    kept = cache / f"{root.name}-{split}-{embedder.bundle.fingerprint}.npz"
    if not kept.is_file():
        config = ProtocolConfig(kind="protocol", root=root, split=split, roles=("gallery", "query", "absent"))
        found: dict[str, list[np.ndarray]] = {name: [] for name in CAMERAS}
        with config.open() as read:
            for start in range(0, len(rows), _BATCH):
                images = [embedder.decode(read(row)) for _, row in rows[start : start + _BATCH]]
                for name, camera in CAMERAS.items():
                    taken = [embedder.prepare(camera(one)) for one in images]
                    found[name].append(embedder.finish(embedder.infer(taken)))
        np.savez(kept, **{name: np.concatenate(parts) for name, parts in found.items()})
    with np.load(kept) as arrays:
        embeddings = {name: arrays[name] for name in CAMERAS}
    return Photos(labels, roles, np.array([coarse.get(one, "") for one in labels]), embeddings)


@dataclass(frozen=True)
class Drawn:
    """One gallery and its queries by world: (camera, positions of photos with a mate, of those without)."""

    items: np.ndarray
    worlds: dict[str, tuple[str, np.ndarray, np.ndarray]]


def draw(photos: Photos, rng: np.random.Generator) -> Iterator[Drawn]:
    """Some labels for a gallery; the others, and those that are never in one, are what it lacks."""
    known = rng.permutation(np.unique(photos.labels[photos.roles == "gallery"]))
    known = known[: rng.integers(len(known) // 2, max(len(known) // 2 + 1, 9 * len(known) // 10))]
    items, others = photos.of(known, "gallery"), np.setdiff1d(photos.labels, known)
    usual = (photos.of(known, "query"), photos.of(others, "query", "absent"))
    worlds = {camera: (camera, *usual) for camera in CAMERAS}
    if not photos.coarse[0]:
        alike = nearest(photos, known, others)
        worlds["look_alikes"] = ("same", usual[0], photos.of(alike, "query", "absent"))
        yield Drawn(items, worlds)
        return
    yield Drawn(items, worlds)
    kinds = dict(zip(photos.labels, photos.coarse, strict=True))
    known = np.array(list({kinds[one]: one for one in known}.values()), dtype=object)
    held = {kinds[one] for one in known}
    alike = [one for one in np.setdiff1d(photos.labels, known) if kinds[one] in held]
    if not alike:
        return
    queries = photos.of(known, "query"), photos.of(np.array(alike, dtype=object), "query", "absent")
    yield Drawn(photos.of(known, "gallery"), {"look_alikes": ("same", *queries)})


def nearest(photos: Photos, known: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The third of the other labels that are most like a known one, by mean embeddings."""

    def means(labels: np.ndarray) -> np.ndarray:
        rows = np.stack([photos.embeddings["same"][photos.labels == one].mean(axis=0) for one in labels])
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    alike = (means(others) @ means(known).T).max(axis=1)
    return others[np.argsort(-alike)[: len(others) // 3]]


def calibrate(snapshot: Snapshot) -> CalibrationRecord:
    """As `vicinal calibrate` does by default, where nothing tells visits apart."""
    unknown = Visits("auto", np.full(len(snapshot), None, dtype=object), are_told=False)
    calibrator = Calibrator(snapshot, Pipeline(), visits=unknown)
    return calibrator.measure(calibrator.leave_one_out(), TARGET).record


def search(
    snapshot: Snapshot, record: CalibrationRecord, photos: Photos, queries: tuple[str, np.ndarray, np.ndarray]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """By rate: whether the event happened to each photo, and the photos' labels."""
    camera, known, absent = queries
    scorer, rows = Scorer(snapshot, record.pipeline), photos.embeddings[camera]
    scored = scorer.score(rows[known], len(snapshot))
    is_mate = snapshot.labels[scored.positions] == photos.labels[known][:, None]
    best = np.where(is_mate & (scored.positions >= 0), scored.scores, -np.inf).max(axis=1)
    strangers = scorer.score(rows[absent], 1).scores[:, 0]
    return {
        "fnir": (best < record.threshold, photos.labels[known]),
        "fpir": (strangers >= record.threshold, photos.labels[absent]),
    }


def counts(events: np.ndarray, labels: np.ndarray, chosen: np.ndarray) -> LabelCounts:
    """Counts of some labels."""
    is_in = np.isin(labels, chosen)
    _, codes = np.unique(labels[is_in].astype(str), return_inverse=True)
    found = LabelCounts.of(events[is_in], codes)
    if found is None:
        raise ValueError("no photo of these labels")
    return found


def judge(record: CalibrationRecord, found: dict, n_later: int, rng: np.random.Generator) -> dict:
    """The verdicts on some of the photos' labels, and whether all photos keep the promise."""
    row: dict = {"labels_later": n_later, "broken_by_all": False}
    verdicts = []
    for rate in RATES:
        events, labels = found[rate]
        promised = promised_range(record, rate)
        chosen = rng.permutation(np.unique(labels.astype(str)))[:n_later]
        tried = counts(events, labels, chosen)
        result = check_promise(tried, promised, error_rate=ERROR_RATE / len(RATES), counts_more=False)
        verdicts.append(result.verdict)
        row["broken_by_all"] |= bool(events.mean() > promised.high)
        row[rate] = {
            "promised": [promised.low, promised.rate, promised.high],
            "all": float(events.mean()),
            "n_labels": tried.n_labels,
            "n_photos": tried.n_trials,
            "rate": tried.rate,
            "verdict": result.verdict,
        }
    row["verdict"] = next((one for one in ("broken", "unclear") if one in verdicts), "held")
    return row


def require_same_as_service(
    snapshot: Snapshot,
    record: CalibrationRecord,
    photos: Photos,
    queries: tuple[str, np.ndarray, np.ndarray],
    found: dict,
) -> None:
    """Stop where the counts are not those of the service's own check.

    Raises:
        ValueError: They are not.
    """
    camera, known, absent = queries
    places = np.concatenate([known, absent])
    labelled = LabelledQueries(photos.embeddings[camera][places], photos.labels[places])
    checked = check_calibration(Calibrator(snapshot, record.pipeline), record, labelled)
    for rate in RATES:
        own, served = int(found[rate][0].sum()), checked.rates[rate].n_events
        if own != served:
            raise ValueError(f"{rate}: {own} events here, {served} in the service's check")


def run(photos: Photos, n: int, seed: int) -> Iterator[dict]:
    """Rows of all draws."""
    rng = np.random.default_rng(seed)
    for number in range(n):
        for drawn in draw(photos, rng):
            with tempfile.TemporaryDirectory() as folder:
                rows, labels = photos.embeddings["same"][drawn.items], photos.labels[drawn.items]
                snapshot = snapshot_of(Path(folder) / "1", rows, labels)
                record = calibrate(snapshot)
                for world, queries in drawn.worlds.items():
                    found = search(snapshot, record, photos, queries)
                    if number == 0:
                        require_same_as_service(snapshot, record, photos, queries, found)
                    for n_later in LATER:
                        n_gallery = len(np.unique(photos.labels[drawn.items]))
                        row = judge(record, found, n_later, rng)
                        yield {"draw": number, "world": world, "labels_gallery": n_gallery, **row}


def summary(rows: list[dict]) -> dict:
    """Shares of the draws by verdict, where all photos keep the promise and where they break it."""
    parts = {
        name: [row for row in rows if row["broken_by_all"] is is_broken]
        for name, is_broken in (("kept", False), ("broken", True))
    }
    return {
        name: {
            "draws": len(part),
            **{
                verdict: round(float(np.mean([row["verdict"] == verdict for row in part])), 4)
                for verdict in ("held", "unclear", "broken")
                if part
            },
        }
        for name, part in parts.items()
    } | {rate: round(float(np.mean([row[rate]["all"] for row in rows])), 4) for rate in RATES}


def main() -> None:
    """Run the sets, print a summary by world and number of later labels, and save every draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=["grocery", "dogfacenet"])
    parser.add_argument("--parts", choices=("calibration", "test"), default="calibration")
    parser.add_argument("--bundle", type=Path, default=default_bundle_path())
    parser.add_argument("--cache", type=Path, required=True, help="folder that keeps the embeddings")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.cache.mkdir(parents=True, exist_ok=True)
    embedder = Embedder(ModelBundle.open(arguments.bundle), device="cpu", threads=1)
    found, cells = [], []
    for name in arguments.sets:
        photos = read_photos(arguments.data / name, arguments.parts, embedder, arguments.cache)
        rows = [{"set": name, **row} for row in run(photos, arguments.draws, arguments.seed)]
        for world in WORLDS:
            for n_later in LATER:
                own = [row for row in rows if (row["world"], row["labels_later"]) == (world, n_later)]
                if not own:
                    continue
                cells.append({"set": name, "world": world, "labels_later": n_later, **summary(own)})
                print(cells[-1], flush=True)
        found += rows
    result = {"part": arguments.parts, "bundle": embedder.bundle.name, "target": str(TARGET)}
    chosen = {"draws": arguments.draws, "seed": arguments.seed, "error_rate": ERROR_RATE}
    suffix = "" if arguments.parts == "test" else f"_{arguments.parts}"
    print(save_result(f"promise_check_photos{suffix}", {**result, **chosen, "cells": cells, "rows": found}))


if __name__ == "__main__":
    main()
