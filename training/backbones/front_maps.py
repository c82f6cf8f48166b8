"""Maps of a frozen front: each view of each training image goes through it once, before training (torch).

A file beside the checkpoint holds them in float16, mapped into memory: rows of the training images, `views`
for each, then one row for each held-out image. A second file says how many images are done and for which run,
so that one that was killed goes on.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from vicinal.calibration.arrays import AnyFloats, FloatArray, HalfFloats, Ints
from vicinal.models.errors import ConfigError, TrainingStoppedError
from vicinal.models.runtime import open_session, usable_processors
from vicinal.training.augmentation import Draw, augmentation, changed, seed_of, stored_size
from vicinal.training.backbones.frozen_front import CutNetwork
from vicinal.training.config import TrainingConfig
from vicinal.training.datasets import LabelledImages, opened_images
from vicinal.training.export.network import write_onnx
from vicinal.training.files import write_text
from vicinal.training.observer import TrainingObserver

MAPS_FILE = "front-maps.npy"
PROGRESS_FILE = "front-maps.json"
RunFront = Callable[[FloatArray], AnyFloats]
Made = TypeVar("Made")
# From an image's place among all to the maps of its views, where they were made before.
EarlierMaps = Callable[[int], HalfFloats | None]

# Images between two notes of the progress.
_NOTED = 64
# The fewest pixels that index and query decode a photo to; see `models.embedder`.
_DECODED_SIDE = 512
# The file system needs some room for everything else.
_SPARE_BYTES = 2**28


@dataclass(frozen=True)
class FrontMaps:
    """Output of the front: float16 rows (n * views + m, ...) of n training images with all views, the first
    unchanged, then of m held-out ones.
    """

    rows: HalfFloats
    n_training: int
    views: int

    @property
    def training(self) -> HalfFloats:
        """(n, ...) of the unchanged training images."""
        return self.rows[: self.n_training * self.views : self.views]

    @property
    def held_out(self) -> HalfFloats:
        """(m, ...) of the held-out images."""
        return self.rows[self.n_training * self.views :]


def no_earlier_maps(_position: int) -> None:
    """No maps were made before."""


class DrawnMaps(Dataset[tuple[Tensor, int]]):
    """Drawn training images, each as one of its views."""

    def __init__(self, maps: FrontMaps, class_ids: Ints, seed: int) -> None:
        self.maps = maps
        self.class_ids = class_ids
        self.seed = seed

    def __getitem__(self, draw: Draw) -> tuple[Tensor, int]:
        step, place, position = draw
        view = seed_of(self.seed, step, place) % self.maps.views
        row = self.maps.rows[position * self.maps.views + view]
        return torch.from_numpy(row.astype(np.float32)), int(self.class_ids[position])


def make_maps(
    folder: Path,
    cut: CutNetwork,
    training: LabelledImages,
    held_out: LabelledImages,
    config: TrainingConfig,
    *,
    identity: Mapping[str, Any],
    observer: TrainingObserver,
    earlier: EarlierMaps = no_earlier_maps,
) -> FrontMaps:
    """Run every view of every image through the front, or go on where an earlier run of the same was.

    `earlier` has the maps of images with the same views of another run.

    On a CPU the front runs in ONNX Runtime, which is several times faster than torch there.
    """
    views = config.augmentation.views
    positions = np.concatenate([training.positions, held_out.positions]).tolist()
    n_rows = len(training.labels) * views + len(held_out.labels)
    run = _front_runner(cut, config.preprocessing.input_size)
    key = _key(cut, training, held_out, config, identity)
    done = _images_done(folder, key)
    rows = _open_rows(folder, cut, n_rows, config.preprocessing.input_size, is_new=not done)
    maps = FrontMaps(rows, len(training.labels), views)
    draw = _drawing(config)
    counts = [views] * len(training.labels) + [1] * len(held_out.labels)
    starts = np.concatenate([[0], np.cumsum(counts)]).tolist()
    observer.on_views(done, len(positions))
    _, target_side = stored_size(config.preprocessing, config.augmentation)
    side = max(config.preprocessing.decode_side, _DECODED_SIDE, target_side or 0)
    datasets = (*config.datasets, *config.validation_datasets)
    with opened_images(datasets, target_side=side) as read, ThreadPoolExecutor(usable_processors()) as pool:

        def maps_of(place: int) -> Callable[[], AnyFloats]:
            position = positions[place]
            made = earlier(position)
            if made is not None:
                return lambda: made
            images = draw(read(position), position, counts[place])
            return lambda: run(images)

        left = range(done, len(positions))
        for place, found in zip(left, _ahead(pool, maps_of, left), strict=True):
            rows[starts[place] : starts[place + 1]] = found()
            observer.on_views(place + 1, len(positions))
            stops = observer.should_stop()
            if (place + 1) % _NOTED == 0 or place + 1 == len(positions) or stops:
                rows.flush()
                write_text(folder / PROGRESS_FILE, json.dumps({"key": key, "done": place + 1}))
            if stops:
                raise TrainingStoppedError(0, config.optimizer.steps)
    return maps


def discard_maps(folder: Path) -> None:
    """Delete the maps of a finished run."""
    for name in (MAPS_FILE, PROGRESS_FILE):
        (folder / name).unlink(missing_ok=True)


def _drawing(config: TrainingConfig) -> Callable[[Image.Image, int, int], FloatArray]:
    """Function from an image, its place among all and v to (v, 3, S, S) views, the first as served."""
    stored, _ = stored_size(config.preprocessing, config.augmentation)
    transform = augmentation(config.preprocessing, config.augmentation)

    def draw(image: Image.Image, position: int, n_views: int) -> FloatArray:
        views = [config.preprocessing.to_tensor(image)]
        if n_views > 1:
            pixels = torch.from_numpy(np.array(stored(image))).permute(2, 0, 1)
            seeds = [seed_of(config.seed, position, view) for view in range(1, n_views)]
            views += [changed(pixels, transform, seed).numpy() for seed in seeds]
        return np.stack(views)

    return draw


def _key(
    cut: CutNetwork,
    training: LabelledImages,
    held_out: LabelledImages,
    config: TrainingConfig,
    identity: Mapping[str, Any],
) -> str:
    """Digest of all that maps depend on; losses and steps may change between two runs."""
    found = hashlib.sha256(identity["labels_sha256"].encode())
    datasets = (*config.datasets, *config.validation_datasets)
    for part in (config.preprocessing, config.augmentation, *datasets):
        found.update(part.model_dump_json().encode())
    found.update(np.concatenate([training.positions, [-1, config.seed], held_out.positions]).tobytes())
    for name, value in cut.front.state_dict().items():
        found.update(name.encode() + value.cpu().numpy().tobytes())
    return found.hexdigest()


def _images_done(folder: Path, key: str) -> int:
    """Number of images that a run of the same key has noted in the folder."""
    try:
        noted = json.loads((folder / PROGRESS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0
    return noted["done"] if noted.get("key") == key and (folder / MAPS_FILE).is_file() else 0


def _open_rows(
    folder: Path, cut: CutNetwork, n_rows: int, side: int, *, is_new: bool
) -> np.memmap[Any, np.dtype[np.float16]]:
    path = folder / MAPS_FILE
    if not is_new:
        return np.lib.format.open_memmap(path, mode="r+")
    discard_maps(folder)
    device = next(cut.network.parameters()).device
    with torch.inference_mode():
        shape = (n_rows, *cut.front.eval()(torch.zeros(1, 3, side, side, device=device)).shape[1:])
    needed, free = 2 * int(np.prod(shape)), shutil.disk_usage(folder).free
    if needed + _SPARE_BYTES > free:
        raise ConfigError(
            f"the maps of the frozen part need {needed / 1e9:.1f} GB in '{folder}', "
            f"{free / 1e9:.1f} GB are free: lower augmentation.views, or raise backbone.frozen_stages"
        )
    return np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=shape)


def _front_runner(cut: CutNetwork, side: int) -> RunFront:
    device = next(cut.network.parameters()).device
    front = cut.front.eval()
    if device.type != "cpu":

        @torch.inference_mode()
        def on_device(images: FloatArray) -> AnyFloats:
            return np.asarray(front(torch.from_numpy(images).to(device)).cpu())

        return on_device
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "front.onnx"
        write_onnx(
            front.to(memory_format=torch.contiguous_format),
            {"images": torch.zeros(2, 3, side, side)},
            path,
            outputs=["maps"],
            free_axes={"images": {0: "batch"}},
        )
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        session = open_session(path, digest, device="cpu")
    return lambda images: np.asarray(session.run(None, {"images": images})[0])


def _ahead(pool: ThreadPoolExecutor, task: Callable[[int], Made], places: Iterable[int]) -> Iterator[Made]:
    """Results in order, a few of them made before they are asked for."""
    waiting: deque[Future[Made]] = deque()
    try:
        for place in places:
            waiting.append(pool.submit(task, place))
            if len(waiting) > 2 * usable_processors():
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for one in waiting:
            one.cancel()
