"""One network in every form, in ONNX Runtime and in torch, on the same cores in one run.

EfficientNet-Lite0 with a head of 256 numbers: float32, float16 weights and int8 in ONNX Runtime; float32, and
bfloat16 in the channels-last layout, in torch. In ONNX Runtime a batch is shared out to the threads by
`Embedder`; `one call` gives it to a session whose threads work on every layer together. The contenders take
turns, and the fastest turn of each counts: a machine that is shared slows turns down and makes none faster.
How many images a thread should take at a time is measured in int8, what ships.
`times_float32` is the speed in images a second as a multiple of float32 in ONNX Runtime, the faster way.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import numpy as np
import onnxruntime as ort
import torch

from benchmarks.common.record import save_result
from vicinal.calibration.arrays import FloatArray
from vicinal.models.bundle import BACKBONE_FILE, ModelBundle
from vicinal.models.embedder import Embedder
from vicinal.models.runtime import open_session
from vicinal.training.backbones.backbone import BackboneConfig, build_network, classifier_of
from vicinal.training.backbones.projection import from_classifier
from vicinal.training.export.forms import PRECISIONS, write_form
from vicinal.training.export.network import export_network
from vicinal.training.export.sample import drawn_sample

SIDE = 224
BATCHES = (16, 1)
SHIPPED, PER_THREAD = "int8", (1, 2, 4, 8)
FIELDS = {
    "name": "lite0",
    "backbone": "tf_efficientnet_lite0",
    "preprocessing": {"input_size": SIDE, "fit": "squash", "mean": (0.5,) * 3, "std": (0.5,) * 3},
}
Run = Callable[[FloatArray], object]


def contenders(folder: Path, threads: int) -> dict[str, Run]:
    """Ways to run the network, by name; each takes a (n, 3, SIDE, SIDE) float32 batch.

    Args:
        folder: Where the exported forms are written.
        threads: Threads of each session.
    """
    config = BackboneConfig(
        name="tf_efficientnet_lite0", weights="package", dim=None, layer_norm=False, pooling="native"
    )
    network = build_network(config)
    network.set_head(from_classifier(classifier_of(config), 256))
    plain = export_network(network, folder / "plain", FIELDS)
    images = drawn_sample().prepared(plain.preprocessing)
    runs: dict[str, Run] = {}
    for form in PRECISIONS:
        (folder / form).mkdir()
        write_form(plain.backbone_path, folder / form / BACKBONE_FILE, form, images)
        bundle = ModelBundle.write(folder / form, {**FIELDS, "dim": plain.dim})
        embedder = Embedder(bundle, device="cpu", threads=threads)
        runs[f"onnxruntime {form}"] = lambda batch, embedder=embedder: embedder.infer(list(batch))
        if form == SHIPPED:
            runs |= {f"onnxruntime {form}, {n} a thread": shared_out(embedder, n) for n in PER_THREAD}
        session = open_session(
            bundle.backbone_path, bundle.manifest.files[BACKBONE_FILE], device="cpu", threads=threads
        )
        runs[f"onnxruntime {form}, one call"] = in_one_call(session)
    for name, dtype, layout in (
        ("torch float32", torch.float32, torch.contiguous_format),
        ("torch bfloat16 channels_last", torch.bfloat16, torch.channels_last),
    ):
        runs[name] = in_torch(network, dtype, layout)
    return runs


def shared_out(embedder: Embedder, n: int) -> Run:
    """A batch shared out to the threads, n images at a time."""

    def run(batch: FloatArray) -> object:
        with patch("vicinal.models.embedder._PER_THREAD", n):
            return embedder.infer(list(batch))

    return run


def in_one_call(session: ort.InferenceSession) -> Run:
    """A batch as a whole through the session."""
    name = session.get_inputs()[0].name
    return lambda batch: session.run(None, {name: batch})


def in_torch(network: torch.nn.Module, dtype: torch.dtype, layout: torch.memory_format) -> Run:
    """A batch through the torch network, in bfloat16 by autocast where that is the dtype."""

    def run(batch: FloatArray) -> object:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, dtype is torch.bfloat16):
            # A layout is a view of the same weights: each turn asks for its own.
            return network.to(memory_format=layout)(torch.from_numpy(batch).to(memory_format=layout))

    return run


def measure(threads: int, rounds: int) -> list[dict[str, object]]:
    """The fastest turn of each contender with so many threads; the first turn of each warms it up."""
    torch.set_num_threads(threads)
    batches = {
        n: np.random.default_rng(0).normal(size=(n, 3, SIDE, SIDE)).astype(np.float32) for n in BATCHES
    }
    with tempfile.TemporaryDirectory() as folder:
        runs = contenders(Path(folder), threads)
        best = {(name, n): float("inf") for name in runs for n in BATCHES}
        for turn in range(rounds + 1):
            for name, n in best:
                started = time.perf_counter()
                runs[name](batches[n])
                seconds = time.perf_counter() - started
                best[name, n] = min(best[name, n], seconds) if turn else float("inf")
    plain = min(best["onnxruntime float32", 16], best["onnxruntime float32, one call", 16])
    return [
        {
            "threads": threads,
            "form": name,
            "images_per_second": round(16 / best[name, 16], 1),
            "milliseconds_for_one": round(1e3 * best[name, 1], 2),
            "times_float32": round(plain / best[name, 16], 2),
        }
        for name in runs
    ]


def main() -> None:
    """Measure with each number of threads, and save the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--no-result", action="store_true", help="print only")
    arguments = parser.parse_args()
    rows = [row for threads in arguments.threads for row in measure(threads, arguments.rounds)]
    for row in rows:
        print(row)
    ratios = {f"{row['form']} over float32, threads {row['threads']}": row["times_float32"] for row in rows}
    if not arguments.no_result:
        print(save_result("model_forms", {"rounds": arguments.rounds, "rows": rows, "ratios": ratios}))


if __name__ == "__main__":
    main()
