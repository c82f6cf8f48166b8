"""From JPEG files to embeddings: Vicinal's embedder, timm in torch with its loader, and ONNX Runtime float32.

Two networks: that of the bundled model (EfficientNet-Lite0 with a head of 256 numbers) and ResNet-50, with
random weights, which take as long. torch and the plain ONNX Runtime get their images as timm advises, from a
loader with one worker a core; the session of the latter has all cores. The contenders take turns, and the
fastest turn of each counts: a machine that is shared slows turns down and makes none faster.
"""

from __future__ import annotations

import argparse
import io
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import timm.data
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from benchmarks.common.record import save_result
from vicinal.models.bundle import BACKBONE_FILE, ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.models.runtime import open_session
from vicinal.training.backbones.backbone import BackboneConfig, build_network
from vicinal.training.export.forms import write_form
from vicinal.training.export.network import export_network
from vicinal.training.export.sample import drawn_sample

SIDE, BATCH = 224, 32
NETWORKS = {
    "bundled model": BackboneConfig(
        name="tf_efficientnet_lite0", dim=256, layer_norm=False, pooling="native"
    ),
    "ResNet-50": BackboneConfig(name="resnet50", dim=None, layer_norm=False, pooling="native"),
}


class JpegFiles(Dataset[torch.Tensor]):
    """Images as timm's own validation transform makes them.

    Args:
        files: JPEG files in memory.
    """

    def __init__(self, files: list[bytes]) -> None:
        self._files = files
        self._transform = timm.data.create_transform((3, SIDE, SIDE), mean=(0.5,) * 3, std=(0.5,) * 3)

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, place: int) -> torch.Tensor:
        """(3, SIDE, SIDE) float32."""
        return self._transform(Image.open(io.BytesIO(self._files[place])).convert("RGB"))


def jpeg_files(n: int, side: int) -> list[bytes]:
    """Smoothed noise: as much detail as a photo has, near enough for a decoder."""
    rng = np.random.default_rng(0)
    files = []
    for _ in range(n):
        small = Image.fromarray(rng.integers(0, 256, (side // 8, side // 8, 3), np.uint8))
        stream = io.BytesIO()
        small.resize((side, side), Image.Resampling.BICUBIC).save(stream, "JPEG", quality=88)
        files.append(stream.getvalue())
    return files


def contenders(config: BackboneConfig, folder: Path, files: list[bytes]) -> dict[str, Callable[[], object]]:
    """What embeds all files, by name."""
    fields = {"name": "network", "backbone": config.name, "preprocessing": {"input_size": SIDE}}
    network = build_network(config).eval()
    plain = export_network(network, folder / "plain", fields)
    runs: dict[str, Callable[[], object]] = {}
    for form in ("int8", "float32"):
        (folder / form).mkdir()
        images = drawn_sample().prepared(plain.preprocessing)
        write_form(plain.backbone_path, folder / form / BACKBONE_FILE, form, images)
        embedder = Embedder(ModelBundle.write(folder / form, {**fields, "dim": plain.dim}), device="cpu")
        runs[f"Vicinal, {form}"] = lambda embedder=embedder: [
            embedder.embed(files[start : start + BATCH]) for start in range(0, len(files), BATCH)
        ]
    loader = DataLoader(
        JpegFiles(files),
        BATCH,
        num_workers=os.cpu_count() or 1,
        persistent_workers=True,
        multiprocessing_context="forkserver",
    )
    session = open_session(plain.backbone_path, plain.manifest.files[BACKBONE_FILE], device="cpu")
    name = session.get_inputs()[0].name
    runs["ONNX Runtime, float32"] = lambda: [session.run(None, {name: batch.numpy()}) for batch in loader]
    for layout in (torch.contiguous_format, torch.channels_last):
        runs[f"torch, float32, {str(layout).removeprefix('torch.')}"] = partial(
            in_torch, network, layout, loader
        )
    return runs


def in_torch(
    network: torch.nn.Module, layout: torch.memory_format, loader: DataLoader[torch.Tensor]
) -> list[torch.Tensor]:
    """All images through the torch network."""
    network.to(memory_format=layout)
    with torch.inference_mode():
        return [network(batch.to(memory_format=layout)) for batch in loader]


def measured(config: BackboneConfig, files: list[bytes], rounds: int) -> dict[str, float]:
    """Images a second of each contender's fastest turn; the first turn of each warms it up."""
    with tempfile.TemporaryDirectory() as folder:
        runs = contenders(config, Path(folder), files)
        best = dict.fromkeys(runs, float("inf"))
        for turn in range(rounds + 1):
            for name, run in runs.items():
                started = time.perf_counter()
                run()
                if turn:
                    best[name] = min(best[name], time.perf_counter() - started)
    return {name: round(len(files) / seconds, 1) for name, seconds in best.items()}


def main() -> None:
    """Measure both networks and save the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--side", type=int, default=320, help="of the JPEG files, in pixels")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--no-result", action="store_true", help="print only")
    arguments = parser.parse_args()
    files = jpeg_files(arguments.images, arguments.side)
    rows, ratios = {}, {}
    for name in arguments.networks:
        rows[name] = row = measured(NETWORKS[name], files, arguments.rounds)
        torch_best = max(speed for one, speed in row.items() if one.startswith("torch"))
        ratios[f"{name}, to torch"] = round(row["Vicinal, int8"] / torch_best, 2)
        ratios[f"{name}, to ONNX Runtime float32"] = round(
            row["Vicinal, int8"] / row["ONNX Runtime, float32"], 2
        )
        print(name, row)
    print(ratios)
    result = {
        "images": arguments.images,
        "side": arguments.side,
        "rounds": arguments.rounds,
        "images_per_second": rows,
        "ratios": ratios,
    }
    if not arguments.no_result:
        print(save_result("peers_embedding", result))


if __name__ == "__main__":
    main()
