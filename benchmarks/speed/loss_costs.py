"""What the losses cost, as ratios to plain matrix products and to a training step, with the memory they take.

    recall_at_k      loss with gradient against one n x n similarity product with its gradients, n = 4,096;
                     against a loop over queries, n = 1,024; with SiMix
    contextual       loss with gradient against three n x n matrix products, n = 512 and 4,096
    tcm              the threshold-consistent margin added to multi-similarity in a step of ResNet-18,
                     128 px, batch 64
    multistage       memory of a step of 4,096 images, 64 at a time, against a step of 64 (ResNet-18, 64 px)

Parts are timed in turns in one process; ratios are medians over the turns. Memory is measured in a fresh
process for each number. About five minutes of one core; a CUDA device is measured after the processor.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.common.cost_meters import Peak, in_fresh_process, interleaved, peak_of
from benchmarks.common.record import save_result
from vicinal.training.backbones.backbone import BackboneConfig, EmbeddingNetwork, build_network
from vicinal.training.losses.config import LossConfig
from vicinal.training.losses.contextual import ContextualLoss
from vicinal.training.losses.recall_at_k import RecallAtKLoss
from vicinal.training.losses.registry import Loss, build_loss
from vicinal.training.multistage import multistage_backward

__all__: list[str] = []

PER_CLASS = 4
DIM = 512
LARGE, MIDDLE = 4096, 1024
CHUNK = 64
MEBIBYTE = 1 << 20
KS = (1, 2, 4, 8, 16)
SIMIX_KS = (1, 2, 4, *range(8, 33, 4))
# Noise in units of the centers' own: cosines inside a class are about as high as the highest of the others.
SPREAD = 2.2


def embeddings_of(n: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(n, DIM) raw embeddings that want a gradient, and (n,) labels, PER_CLASS of each."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n // PER_CLASS).repeat_interleave(PER_CLASS)
    centers = torch.randn(n // PER_CLASS, DIM, generator=generator)
    embeddings = centers[labels] + SPREAD * torch.randn(n, DIM, generator=generator)
    return embeddings.to(device).requires_grad_(), labels.to(device)


def with_gradient(loss: Loss, embeddings: Tensor, labels: Tensor) -> None:
    """A loss of (n, DIM) embeddings and (n,) labels, and its gradient."""
    torch.autograd.grad(loss(embeddings, labels), embeddings)


def product_with_gradient(embeddings: Tensor, upstream: Tensor) -> None:
    """One n x n similarity product and both gradients of it."""
    torch.autograd.grad(embeddings @ embeddings.T, embeddings, upstream)


def three_products(matrix: Tensor) -> None:
    """The (n, n) matrix times itself, three times."""
    for _ in range(3):
        matrix @ matrix


def three_products_with_gradient(matrix: Tensor, other: Tensor) -> None:
    """Three products of (n, n) matrices, and the gradients of both factors."""
    for _ in range(3):
        torch.autograd.grad(matrix @ other, (matrix, other), other)


def loop_over_queries(embeddings: Tensor, labels: Tensor) -> Tensor:
    """Recall@k surrogate with default settings as its formula reads, one query after the other."""
    rows = nn.functional.normalize(embeddings)
    places = torch.arange(len(labels), device=labels.device)
    losses = []
    for query in range(len(labels)):
        similarities = rows @ rows[query]
        positives = places[(labels == labels[query]) & (places != query)]
        before = torch.sigmoid((similarities - similarities[positives, None]) / 0.01)
        counted = (places != query) & (places != positives[:, None])
        ranks = torch.where(counted, before, 0.0).sum(dim=1)
        recalls = [torch.sigmoid(k - 1 - ranks).sum().clamp_max(k) / min(k, len(positives)) for k in KS]
        losses.append(1.0 - torch.stack(recalls).mean())
    return torch.stack(losses).mean()


def measure_recall_at_k(device: torch.device, repetitions: int) -> dict[str, Any]:
    """Times and memory of recall@k with and without SiMix, against a product and against a loop.

    Raises:
        RuntimeError: The loss and the loop differ by more than 1e-5.
    """
    loss = RecallAtKLoss(KS, max_per_class=PER_CLASS)
    mixed = RecallAtKLoss(SIMIX_KS, simix=True, max_per_class=PER_CLASS)
    small, large = embeddings_of(MIDDLE, device), embeddings_of(LARGE, device)
    parts = {
        "product": partial(product_with_gradient, large[0], torch.ones(LARGE, LARGE, device=device)),
        "loss": partial(with_gradient, loss, *large),
    }
    at_large = interleaved(parts, device, repetitions=repetitions)
    # Seconds each, and nothing to be compared closely.
    at_large |= interleaved(
        {"simix": partial(with_gradient, mixed, *large)}, device, repetitions=1, warm_up=False
    )
    parts = {
        "product": partial(product_with_gradient, small[0], torch.ones(MIDDLE, MIDDLE, device=device)),
        "loss": partial(with_gradient, loss, *small),
        "simix": partial(with_gradient, mixed, *small),
        "loop": partial(with_gradient, loop_over_queries, *small),
    }
    at_small = interleaved(parts, device, repetitions=repetitions)
    difference = abs(loop_over_queries(*small).item() - loss(*small).item())
    if difference > 1e-5:
        raise RuntimeError(
            f"the loop and the loss differ by {difference}: one of them computes something else"
        )
    simix_ratio = statistics.median(at_large["simix"].busy) / statistics.median(at_large["product"].busy)
    return {
        "n_4096": {name: times.row() for name, times in at_large.items()},
        "n_1024": {name: times.row() for name, times in at_small.items()},
        "loss_over_product_4096": at_large["loss"].over(at_large["product"]),
        "simix_over_product_4096": {"ratio": round(simix_ratio, 2)},
        "loss_over_product_1024": at_small["loss"].over(at_small["product"]),
        "simix_over_product_1024": at_small["simix"].over(at_small["product"]),
        "loss_over_loop_1024": at_small["loss"].over(at_small["loop"]),
        "loop_over_loss_1024": at_small["loop"].over(at_small["loss"]),
        "loop_minus_loss": difference,
        "peak_mebibytes_4096": {
            name: mebibytes(in_fresh_process(recall_peak, name, device.type, torch.get_num_threads()).extra)
            for name in ("product", "loss", "simix")
        },
    }


def recall_peak(name: str, device_name: str, threads: int) -> Peak:
    """Runs in a process of its own."""
    device = prepared(device_name, threads)
    embeddings, labels = embeddings_of(LARGE, device)
    ks, simix = (SIMIX_KS, True) if name == "simix" else (KS, False)
    loss = RecallAtKLoss(ks, simix=simix, max_per_class=PER_CLASS)
    few = embeddings_of(64, device)
    # Libraries load code at their first call.
    with_gradient(loss, *few)
    if name == "product":
        upstream = torch.ones(LARGE, LARGE, device=device)
        return peak_of(partial(product_with_gradient, embeddings, upstream), device)
    return peak_of(partial(with_gradient, loss, embeddings, labels), device)


def measure_contextual(device: torch.device, repetitions: int) -> dict[str, Any]:
    """Times and memory of the contextual loss against three products."""
    result: dict[str, Any] = {}
    for n, turns in ((512, 6 * repetitions), (LARGE, 3)):
        batch = embeddings_of(n, device)
        matrix = torch.rand(n, n, device=device)
        parts: dict[str, Callable[[], object]] = {
            "products": partial(three_products, matrix),
            "loss": partial(with_gradient, ContextualLoss(k=PER_CLASS), *batch),
        }
        if n == 512:
            first, second = matrix.clone().requires_grad_(), torch.rand_like(matrix).requires_grad_()
            parts["products_with_gradient"] = partial(three_products_with_gradient, first, second)
        times = interleaved(parts, device, repetitions=turns, warm_up=n == 512)
        result[f"n_{n}"] = {name: part.row() for name, part in times.items()}
        for name in parts.keys() - {"loss"}:
            result[f"loss_over_{name}_{n}"] = times["loss"].over(times[name])
    peak = in_fresh_process(contextual_peak, device.type, torch.get_num_threads())
    return result | {"peak_mebibytes_4096": mebibytes(peak.extra)}


def contextual_peak(device_name: str, threads: int) -> Peak:
    """Runs in a process of its own."""
    device = prepared(device_name, threads)
    loss = ContextualLoss(k=PER_CLASS)
    with_gradient(loss, *embeddings_of(64, device))
    return peak_of(partial(with_gradient, loss, *embeddings_of(LARGE, device)), device)


class TrainingStep:
    """Steps of ResNet-18 with a head of DIM on one batch of random pixels, as a training run makes them.

    Args:
        loss: Loss configuration.
        n: Images a batch.
        side: Their width and height.
        device: Where the network and the images are.
    """

    def __init__(self, loss: dict[str, Any], n: int, side: int, device: torch.device) -> None:
        torch.manual_seed(0)
        self.network: EmbeddingNetwork = build_network(BackboneConfig(name="resnet18", dim=DIM))
        self.network.to(device).to(memory_format=torch.channels_last).train()
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=1e-4)
        self.loss = build_loss(LossConfig.model_validate(loss), max_per_class=PER_CLASS).to(device)
        shape = (n, 3, side, side)
        self.images = torch.empty(shape, device=device, memory_format=torch.channels_last).normal_()
        self.labels = torch.arange(n // PER_CLASS, device=device).repeat_interleave(PER_CLASS)

    def __call__(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        multistage_backward(self.network, self.images, self.labels, self.loss, chunk_size=CHUNK)
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()


def measure_tcm(device: torch.device, repetitions: int) -> dict[str, Any]:
    """What TCM adds to a training step, as a share of it."""
    plain: dict[str, Any] = {"name": "multi_similarity"}
    added = {**plain, "add": ["tcm"]}
    configs = {"step": plain, "step_tcm": added}
    steps = {name: TrainingStep(config, CHUNK, 128, device) for name, config in configs.items()}
    times = interleaved(steps, device, repetitions=repetitions)
    embeddings = embeddings_of(CHUNK, device)
    losses = {
        name: partial(with_gradient, build_loss(LossConfig.model_validate(config)), *embeddings)
        for name, config in (("loss", plain), ("loss_tcm", added), ("tcm", {"name": "tcm"}))
    }
    times |= interleaved(losses, device, repetitions=20 * repetitions)
    median = {name: statistics.median(part.busy) for name, part in times.items()}
    return {
        "batch_64": {name: part.row() for name, part in times.items()},
        "step_tcm_over_step": times["step_tcm"].over(times["step"]),
        # The steps themselves vary by more than what is looked for; their losses can be told apart.
        "added_share_of_step": round((median["loss_tcm"] - median["loss"]) / median["step"], 6),
        "alone_share_of_step": round(median["tcm"] / median["step"], 6),
    }


def measure_multistage(device: torch.device) -> dict[str, Any]:
    """Memory of a step of LARGE images, CHUNK at a time, against that of a step of CHUNK."""
    threads = torch.get_num_threads()
    small, large = (in_fresh_process(step_peak, n, device.type, threads) for n in (CHUNK, LARGE))
    pixels = 3 * 64 * 64 * 4
    # Pixels are in `before`, not in `extra`: whoever makes a batch of thousands has to hold them anyway.
    return {
        "mebibytes": {
            f"step_{n}": {
                "pixels": mebibytes(n * pixels),
                "before_without_pixels": mebibytes(peak.before - n * pixels),
                "step": mebibytes(peak.extra),
                "whole_without_pixels": mebibytes(peak.highest - n * pixels),
            }
            for n, peak in ((CHUNK, small), (LARGE, large))
        },
        "step_ratio": round(large.extra / small.extra, 3),
        "two_matrices": round(2 * LARGE * LARGE * 4 / small.extra, 3),
        "whole_ratio": round((large.highest - LARGE * pixels) / (small.highest - CHUNK * pixels), 3),
    }


def step_peak(n: int, device_name: str, threads: int) -> Peak:
    """Runs in a process of its own."""
    device = prepared(device_name, threads)
    return peak_of(TrainingStep({"name": "recall_at_k"}, n, 64, device), device)


def prepared(device_name: str, threads: int) -> torch.device:
    """The device, in a process that computes with so many threads."""
    torch.set_num_threads(threads)
    return torch.device(device_name)


def mebibytes(size: int) -> float:
    """Bytes in MiB, to one place."""
    return round(size / MEBIBYTE, 1)


def goals_of(found: dict[str, Any]) -> list[dict[str, Any]]:
    """What was found beside the most that is asked for, one row a goal."""
    recall, memory = found["recall_at_k"], found["multistage"]
    contextual, tcm = found["contextual"], found["tcm"]
    rows = [
        ("recall@k, n 4,096: times one product", recall["loss_over_product_4096"]["ratio"], 3.0),
        ("recall@k, n 4,096: extra MiB", recall["peak_mebibytes_4096"]["loss"], round(1e9 / MEBIBYTE, 1)),
        ("recall@k, n 1,024: share of the loop's time", recall["loss_over_loop_1024"]["ratio"], 0.1),
        ("contextual, n 512: times three products", contextual["loss_over_products_512"]["ratio"], 10.0),
        ("TCM: share of a step", tcm["added_share_of_step"], 0.02),
        # The goal is 1.5 and the n x n matrices, of which similarities and gradient cannot be done without.
        ("multistage: times the memory of 64", memory["step_ratio"], round(1.5 + memory["two_matrices"], 3)),
    ]
    return [
        {"what": what, "found": value, "at_most": most, "met": value <= most} for what, value, most in rows
    ]


def ratios_of(found: dict[str, Any]) -> dict[str, float]:
    """What each loss is compared with over the loss; memory of a step of CHUNK over that of one of LARGE."""
    recall, contextual = found["recall_at_k"], found["contextual"]
    costs = {
        "product over recall@k, n 4,096": recall["loss_over_product_4096"]["ratio"],
        "loop over recall@k, n 1,024": recall["loss_over_loop_1024"]["ratio"],
        "three products over contextual, n 512": contextual["loss_over_products_512"]["ratio"],
        "step over TCM": found["tcm"]["alone_share_of_step"],
        "memory of a step of 64 over one of 4,096": found["multistage"]["step_ratio"],
    }
    return {name: round(1.0 / cost, 4) for name, cost in costs.items()}


def main() -> None:
    """Measure every loss on the processor and on a GPU where there is one, and save it with the goals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--no-result", action="store_true", help="print only")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    result: dict[str, Any] = {"threads": arguments.threads, "repetitions": arguments.repetitions}
    for name in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
        device = torch.device(name)
        found = {
            "device": torch.cuda.get_device_name() if name == "cuda" else "processor",
            "recall_at_k": measure_recall_at_k(device, arguments.repetitions),
            "contextual": measure_contextual(device, arguments.repetitions),
            "tcm": measure_tcm(device, arguments.repetitions),
            "multistage": measure_multistage(device),
        }
        result[name] = {**found, "goals": goals_of(found)}
        for goal in result[name]["goals"]:
            print(f"{name:5} {goal['found']:10.4f} of at most {goal['at_most']:8.2f}  {goal['what']}")
        result.setdefault("ratios", {}).update(
            {f"{name}: {what}": ratio for what, ratio in ratios_of(found).items()}
        )
    result["cpu_seconds"] = round(sum(os.times()[:4]), 1)
    if not arguments.no_result:
        print(save_result("loss_costs", result))


if __name__ == "__main__":
    main()
