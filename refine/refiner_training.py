"""Training of a context refiner on stored embeddings (torch).

"Attend to Context for Refining Embeddings in Deep Metric Learning" (ACR), algorithm 1: the backbone is
frozen, the training set is embedded once, neighbors are stored once, and a metric-learning loss on e^T is
minimized over class-balanced batches.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.lr_scheduler import LambdaLR

from models.losses import build_loss
from models.refiner_manifest import Sides
from models.similarity import FloatArray
from refine.config import RefinerOptimizerConfig, RefinerRecipe
from refine.embedding_set import EmbeddingSet
from refine.errors import RefinerTrainingError
from refine.refiner_batches import RefinerBatch, RefinerBatches
from refine.refiner_network import ContextRefinerNetwork
from refine.refiner_step import Bools
from refine.refiner_validation import RefinerValidation, SideFigures, Verdict

__all__ = ["RefinerRecord", "RefinerTrainer", "RefinerTrainingResult", "absent_loss"]

_VALIDATION_BATCH = 1024


@dataclass(frozen=True)
class RefinerRecord:
    """One validation during training.

    Attributes:
        step: Steps done; 0 is the network as it started.
        loss: Mean training loss since the record before; NaN at step 0.
        figures: Figures by what is refined.
    """

    step: int
    loss: float
    figures: dict[Sides, SideFigures]

    @property
    def order(self) -> tuple[float, float]:
        """What a lower value of is better: the best figures of those that refine anything."""
        return min(one.order for sides, one in self.figures.items() if sides != "off")


@dataclass(frozen=True)
class RefinerTrainingResult:
    """A trained network at its best validation.

    Attributes:
        records: All validations, in order.
        best: The record whose weights were kept.
        verdict: What to do by default.
        n_items: Embeddings trained on, those that only stand in contexts included.
        n_classes: Classes trained on.
    """

    network: ContextRefinerNetwork
    records: list[RefinerRecord]
    best: RefinerRecord
    verdict: Verdict
    n_items: int
    n_classes: int


class RefinerTrainer:
    """Trains one refiner as a recipe says; on a CPU the same recipe and embeddings give the same weights.

    Args:
        recipe: The checked recipe.
        on_step: Called after each step with the steps done and all steps.
        on_record: Called after each validation.
    """

    def __init__(
        self,
        recipe: RefinerRecipe,
        *,
        on_step: Callable[[int, int], None] | None = None,
        on_record: Callable[[RefinerRecord], None] | None = None,
    ) -> None:
        self.recipe = recipe
        self.on_step = on_step
        self.on_record = on_record
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def run(self, items: EmbeddingSet, held_out: EmbeddingSet | None = None) -> RefinerTrainingResult:
        """Train, and return the network with the best validation.

        Args:
            items: Embeddings to train on.
            held_out: Embeddings of other classes to validate on; None holds out a share of the classes.

        Raises:
            RefinerTrainingError: There are too few classes, or the loss is no number.
            RefinerConfigError: The network does not fit the embeddings.
            ConfigError: The loss cannot be built, or a batch cannot be filled.
        """
        recipe = self.recipe
        if held_out is None:
            items, held_out = items.split_classes(recipe.validation.share, recipe.seed)
        validation = RefinerValidation(
            held_out, recipe.refiner.n_neighbors, recipe.validation, seed=recipe.seed
        )
        torch.manual_seed(recipe.seed)
        network = ContextRefinerNetwork(items.dim, recipe.refiner).to(self.device)
        batches = RefinerBatches(items, recipe, self.device)
        records, best = self._optimize(network, batches, validation)
        verdict = validation.decide(_as_numpy(network), best.figures)
        return RefinerTrainingResult(
            network.eval(), records, best, verdict, n_items=len(items), n_classes=len(batches.class_sizes)
        )

    def _optimize(
        self, network: ContextRefinerNetwork, batches: RefinerBatches, validation: RefinerValidation
    ) -> tuple[list[RefinerRecord], RefinerRecord]:
        config, every = self.recipe.optimizer, self.recipe.validation.every
        loss_function = self._build_loss(network, batches)
        parameters = [p for part in (network, loss_function) for p in part.parameters() if p.requires_grad]
        optimizer, schedule = _build_optimizer(parameters, config)
        records = [self._record(network, validation, 0, math.nan)]
        best, weights = records[0], copy.deepcopy(network.state_dict())
        losses: list[Tensor] = []
        for step, batch in enumerate(batches, start=1):
            optimizer.zero_grad(set_to_none=True)
            losses.append(self._backward(network, loss_function, batch))
            if config.clip_norm:
                nn.utils.clip_grad_norm_(parameters, config.clip_norm)
            optimizer.step()
            schedule.step()
            if self.on_step:
                self.on_step(step, config.steps)
            if step % every and step != config.steps:
                continue
            records.append(self._record(network, validation, step, _mean_loss(losses, step)))
            losses.clear()
            if records[-1].order < best.order:
                best, weights = records[-1], copy.deepcopy(network.state_dict())
        network.load_state_dict(weights)
        return records, best

    def _build_loss(self, network: ContextRefinerNetwork, batches: RefinerBatches) -> nn.Module:
        recipe = self.recipe
        loss_function: nn.Module = build_loss(
            recipe.loss,
            dim=network.architecture.dim,
            class_sizes=batches.class_sizes,
            max_per_class=recipe.batches.per_class,
        )
        return loss_function.to(self.device)

    def _backward(
        self, network: ContextRefinerNetwork, loss_function: nn.Module, batch: RefinerBatch
    ) -> Tensor:
        steps, _ = network.train()(batch.query, batch.context, batch.mask)
        refined = steps[:, -1]
        loss: Tensor = loss_function(refined, batch.labels)
        absent = self.recipe.absent
        if absent.share:
            loss = loss + absent.weight * absent_loss(refined, batch, absent.margin)
        loss.backward()
        return loss.detach()

    def _record(
        self, network: ContextRefinerNetwork, validation: RefinerValidation, step: int, loss: float
    ) -> RefinerRecord:
        record = RefinerRecord(step, loss, validation.measure(_as_numpy(network)))
        if self.on_record:
            self.on_record(record)
        return record


def absent_loss(refined: Tensor, batch: RefinerBatch, margin: float) -> Tensor:
    """How much further queries without a mate were drawn to a wrong item.

    Mean over the absent queries of `max(0, max_j <e^T, c_j> - max_j <e^0, c_j> - margin)`, the c_j being
    their neighbors, all of which are wrong.

    Args:
        refined: (B, d) embeddings e^T.
        batch: The batch.
        margin: Rise of the similarity that costs nothing.

    Returns:
        A scalar, 0 with a graph where no query is absent.
    """

    def best(embeddings: Tensor) -> Tensor:
        similarities = torch.matmul(batch.context, embeddings[..., None])[..., 0]
        return similarities.masked_fill(~batch.mask, -1.0).amax(dim=1)

    rise = functional.relu(best(refined) - best(batch.query) - margin)
    return (rise * batch.absent).sum() / batch.absent.sum().clamp(min=1)


def _as_numpy(network: ContextRefinerNetwork) -> Callable[[FloatArray, FloatArray, Bools], FloatArray]:
    device = next(network.parameters()).device

    def refine(rows: FloatArray, contexts: FloatArray, mask: Bools) -> FloatArray:
        network.eval()
        parts = []
        with torch.inference_mode():
            for start in range(0, len(rows), _VALIDATION_BATCH):
                part = slice(start, start + _VALIDATION_BATCH)
                inputs = (torch.from_numpy(one[part]).to(device) for one in (rows, contexts, mask))
                parts.append(network(*inputs)[0][:, -1].cpu())
        refined: FloatArray = torch.cat(parts).numpy()
        return refined

    return refine


def _build_optimizer(
    parameters: list[nn.Parameter], config: RefinerOptimizerConfig
) -> tuple[torch.optim.Optimizer, LambdaLR]:
    # Biases, temperatures and weights of the expansion are not decayed: they set scales, not directions.
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=config.learning_rate)

    def rate_at(step: int) -> float:
        if step < config.warmup_steps:
            return (step + 1) / (config.warmup_steps + 1)
        after = (step - config.warmup_steps) / max(1, config.steps - config.warmup_steps)
        return 0.5 * (1.0 + math.cos(math.pi * min(1.0, after)))

    return optimizer, LambdaLR(optimizer, rate_at)


def _mean_loss(losses: list[Tensor], step: int) -> float:
    mean = float(torch.stack(losses).mean())
    if not math.isfinite(mean):
        raise RefinerTrainingError(
            f"the loss is {mean} at step {step}: lower optimizer.learning_rate, or use another loss"
        )
    return mean
