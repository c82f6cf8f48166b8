"""What learns on top of a frozen part of a pretrained network, and how it is trained and judged."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from benchmarks.losses.features import FeatureParts, Features, load_features
from benchmarks.losses.maps import CutNetwork, load_maps
from benchmarks.losses.measures import among_themselves, measure_test, search_metrics
from benchmarks.losses.training import Run, batches, loss_of, optimizer_of, training_images
from vicinal.calibration import cosine_margin
from vicinal.models.similarity import normalize
from vicinal.training.evaluation.metrics import Distance
from vicinal.training.multistage import multistage_backward

__all__ = ["DIM", "HEAD", "STAGES", "Learner", "measure", "measure_held_out", "measure_search", "train"]

DIM = 256
# Images that the mean feature is taken of.
_CENTERED_ON = 512
# Images embedded at a time.
_EMBEDDED = 64


@dataclass(frozen=True)
class Learner:
    """The part of a network that learns, and what it sees.

    Attributes:
        name: What a run's record calls it.
        load: Reads what the frozen part gives for the images of a folder, and keeps it in another.
        start: Makes the part with its first weights, for given training images: (b, ...) to (b, 256).
        untrained: What there is without any training.
    """

    name: str
    load: Callable[[Path, Path], FeatureParts]
    start: Callable[[Features], nn.Module]
    untrained: Callable[[Features], nn.Module]


def train(
    run: Run, learner: Learner, training: Features, super_labels: npt.NDArray[np.str_] | None = None
) -> tuple[nn.Module, dict[str, Any]]:
    """Train what learns.

    Args:
        run: What decides it; its backbone is not used.
        learner: What learns.
        training: Training part; each draw of an image takes one of its views.
        super_labels: (n,) of its images, for batches that want them.

    Returns:
        The trained part, and the run's record.
    """
    torch.manual_seed(run.seed)
    rng = np.random.default_rng(run.seed)
    chosen, class_ids = training_images(run, training.class_ids)
    own = training.subset(chosen)
    network = learner.start(own).train()
    loss_function = loss_of(run, class_ids, DIM)
    optimizer, schedule = optimizer_of(run, network, loss_function)
    started = time.process_time()
    losses: list[float] = []
    for positions in batches(run, class_ids, () if super_labels is None else super_labels[chosen]):
        drawn = own.views[positions, rng.integers(own.views.shape[1], size=len(positions))]
        optimizer.zero_grad(set_to_none=True)
        loss = multistage_backward(
            network,
            _tensor(drawn),
            torch.from_numpy(class_ids[positions]),
            loss_function,
            chunk_size=run.sampler.get("chunk_size", len(positions)),
        )
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    tail = losses[-max(1, len(losses) // 10) :]
    record = {**asdict(run), "key": run.key, "backbone": learner.name, "precision": "float32"}
    record["seconds"] = round(time.process_time() - started, 1)
    record["last_loss"] = math.fsum(tail) / len(tail)
    return network, record


def measure(network: nn.Module, parts: FeatureParts) -> dict[str, float]:
    """Metrics on test classes; see `measures.measure_test`."""
    embedded = {"calibration": _embed(network, parts.calibration), "test": _embed(network, parts.test)}
    return measure_test(embedded, parts.calibration, parts.test)


def measure_search(network: nn.Module, part: Features, distance: Distance = "cosine") -> dict[str, float]:
    """What searches find; see `measures.search_metrics`."""
    return search_metrics(_embed(network, part), part, distance)


def measure_held_out(network: nn.Module, run: Run, training: Features) -> dict[str, Any]:
    """Metrics on the training classes that the run's fold leaves out, and where their cosines lie.

    Returns:
        Those of `measures.among_themselves`; `far_1` and `far_10`, cosines that 1 % and 10 % of the negative
        pairs reach; `positive_90`, the cosine that 10 % of the positive pairs reach.

    Raises:
        ValueError: The run leaves no class out.
    """
    if run.fold is None:
        raise ValueError(f"the run {run.key} holds no classes out: give it a fold")
    held = training.subset(training.class_ids % run.fold[1] == run.fold[0])
    rows = normalize(_embed(network, held))
    found = among_themselves(rows, held.labels)
    near, far = found["threshold_range"]
    same = np.triu(held.labels[:, None] == held.labels, k=1)
    return {
        **found,
        "far_1": cosine_margin(near),
        "far_10": cosine_margin(far),
        "positive_90": float(np.quantile((rows @ rows.T)[same], 0.9)),
    }


@torch.inference_mode()
def _embed(network: nn.Module, part: Features) -> npt.NDArray[np.float32]:
    network.eval()
    plain = part.plain
    found = [network(_tensor(plain[i : i + _EMBEDDED])).numpy() for i in range(0, len(plain), _EMBEDDED)]
    return np.concatenate(found)


def _tensor(rows: npt.NDArray[np.floating]) -> Tensor:
    """Float32; maps get their channels last, which convolutions are fastest with."""
    tensor = torch.from_numpy(rows.astype(np.float32))
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor


def _new_head(training: Features) -> nn.Module:
    """A linear head without a bias."""
    head = nn.Linear(training.views.shape[2], DIM, bias=False)
    # Distances and cosines of the features are nearly kept: training starts from what they are worth.
    nn.init.orthogonal_(head.weight)
    return head


def _new_stages(training: Features) -> nn.Module:
    """The last two stages and the head, centered at the mean feature of some training images."""
    cut = CutNetwork().to(memory_format=torch.channels_last)
    some = np.unique(np.linspace(0, len(training.labels) - 1, _CENTERED_ON).astype(np.intp))
    head, cut.network.head = cut.network.head, nn.Identity()
    features = _embed(cut, training.subset(some))
    cut.network.head = head
    cut.network.center_head(torch.from_numpy(features.mean(axis=0)))
    return cut


HEAD = Learner("frozen", load_features, _new_head, untrained=lambda _: nn.Identity())
STAGES = Learner("last two stages learn", load_maps, _new_stages, untrained=_new_stages)


def asked_of_heads(description: str | None, name: str) -> argparse.Namespace:
    """What a study of heads is asked for: its stage, and where data, frozen features and its work lie."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("stage", choices=["run", "report"])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--frozen", type=Path, default=Path("build/frozen"))
    parser.add_argument("--work", type=Path, default=Path("build") / name)
    return parser.parse_args()
