"""A linear head on frozen features: trained in seconds, judged like a whole network."""

from __future__ import annotations

import math
import time
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from benchmarks.losses.features import FeatureParts, Features
from benchmarks.losses.measures import among_themselves, measure_test
from benchmarks.losses.training import Run, batches, optimizer_of, training_images
from vicinal.calibration import cosine_margin
from vicinal.models.configs.losses import LossConfig
from vicinal.models.losses import build_loss
from vicinal.models.similarity import normalize

__all__ = ["HEAD_DIM", "measure_head", "measure_held_out", "train_head"]

HEAD_DIM = 256
Floats = npt.NDArray[np.float32]


def train_head(run: Run, train: Features) -> tuple[Floats, dict[str, Any]]:
    """Train a head without a bias.

    Args:
        run: What decides it; its backbone is not used.
        train: Training part; each draw of an image takes one of its views.

    Returns:
        (d, 256) head, and the run's record.
    """
    torch.manual_seed(run.seed)
    rng = np.random.default_rng(run.seed)
    chosen, class_ids = training_images(run, train.class_ids)
    views = torch.from_numpy(train.views)
    head = nn.Linear(views.shape[2], HEAD_DIM, bias=False)
    # Distances and cosines of the features are nearly kept: training starts from what they are worth.
    nn.init.orthogonal_(head.weight)
    loss_function = build_loss(
        LossConfig.model_validate(run.loss),
        dim=HEAD_DIM,
        class_sizes=np.bincount(class_ids).tolist(),
        max_per_class=run.sampler.get("per_class"),
    )
    optimizer, schedule = optimizer_of(run, head, loss_function)
    started = time.monotonic()
    losses: list[float] = []
    for positions in batches(run, class_ids):
        images = torch.from_numpy(chosen[positions])
        batch = views[images, torch.from_numpy(rng.integers(views.shape[1], size=len(images)))]
        optimizer.zero_grad(set_to_none=True)
        loss = loss_function(head(batch), torch.from_numpy(class_ids[positions]))
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    tail = losses[-max(1, len(losses) // 10) :]
    record = {**asdict(run), "key": run.key, "backbone": "frozen", "precision": "float32"}
    record["seconds"] = round(time.monotonic() - started, 1)
    record["last_loss"] = math.fsum(tail) / len(tail)
    return head.weight.detach().numpy().T.copy(), record


def measure_head(head: Floats, parts: FeatureParts) -> dict[str, float]:
    """Metrics on test classes; see `measures.measure_test`."""
    embedded = {"calibration": parts.calibration.plain @ head, "test": parts.test.plain @ head}
    return measure_test(embedded, parts.calibration, parts.test)


def measure_held_out(head: Floats, run: Run, train: Features) -> dict[str, Any]:
    """Metrics on the training classes that the run's fold leaves out, and where their cosines lie.

    Returns:
        Those of `measures.among_themselves`; `far_1` and `far_10`, cosines that 1 % and 10 % of the negative
        pairs reach; `positive_90`, the cosine that 10 % of the positive pairs reach.

    Raises:
        ValueError: The run leaves no class out.
    """
    if run.fold is None:
        raise ValueError(f"the run {run.key} holds no classes out: give it a fold")
    held = train.subset(train.class_ids % run.fold[1] == run.fold[0])
    rows = normalize(held.plain @ head)
    found = among_themselves(rows, held.labels)
    near, far = found["threshold_range"]
    same = np.triu(held.labels[:, None] == held.labels, k=1)
    return {
        **found,
        "far_1": cosine_margin(near),
        "far_10": cosine_margin(far),
        "positive_90": float(np.quantile((rows @ rows.T)[same], 0.9)),
    }
