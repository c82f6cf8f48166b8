"""Training of a context refiner on stored embeddings (torch).

"Attend to Context for Refining Embeddings in Deep Metric Learning" (ACR), algorithm 1: the backbone is
frozen, the training set is embedded once, neighbors are stored once, and a metric-learning loss on e^T is
minimized over class-balanced batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.lr_scheduler import LambdaLR

from vicinal.calibration.arrays import FloatArray
from vicinal.models.refiner_manifest import Sides
from vicinal.refine.context_refiner import Neighbors
from vicinal.refine.errors import RefinerTrainingError
from vicinal.training.loop import TrainingState, finite
from vicinal.training.losses.registry import build_loss
from vicinal.training.refiner.batches import ClassBatch, ClassBatches
from vicinal.training.refiner.config import OptimizerConfig, RefinerRecipe
from vicinal.training.refiner.embedding_set import EmbeddingSet
from vicinal.training.refiner.network import ContextRefinerNetwork
from vicinal.training.refiner.search import SearchBatches, search_loss
from vicinal.training.refiner.validation import Gain, Refine, SideFigures, Validation, Verdict

_VALIDATION_BATCH = 1024


@dataclass(frozen=True)
class TrainingRecord:
    """Validation during training, with the mean loss since the one before; NaN at step 0, before training."""

    step: int
    loss: float
    figures: dict[Sides, SideFigures]

    @property
    def order(self) -> tuple[float, float]:
        """Key of which a lower one is better: the best figures of the sides that refine anything."""
        orders = [one.order for sides, one in self.figures.items() if sides != "off"]
        return min(orders, default=(math.inf, math.inf))


@dataclass(frozen=True)
class TrainingResult:
    """A trained network at its best validation.

    `n_items` counts embeddings that only stand in contexts, too; `gains` are there where it was cross-fitted,
    by what it is compared with.
    """

    network: ContextRefinerNetwork
    records: list[TrainingRecord]
    best: TrainingRecord
    verdict: Verdict
    n_items: int
    n_classes: int
    gains: Mapping[str, Gain] = field(default_factory=dict)


@dataclass
class RefinerTrainer:
    """Trains one refiner as a recipe says; on a CPU the same recipe and embeddings give the same weights."""

    recipe: RefinerRecipe
    _: KW_ONLY
    on_step: Callable[[int, int], None] | None = None
    on_record: Callable[[TrainingRecord], None] | None = None

    def run(self, items: EmbeddingSet, held_out: EmbeddingSet | None = None) -> TrainingResult:
        """Train, and return the network that is best on `held_out` embeddings or a share of the classes."""
        recipe = self.recipe
        if held_out is None:
            items, held_out = items.split_classes(recipe.validation.share, recipe.seed)
        validation = Validation(held_out, recipe.refiner.n_neighbors, recipe.validation, seed=recipe.seed)
        validation.require_queries()
        training = self.begin(items)
        state = training.state
        for step, loss in training.checkpoints(self.on_step):
            state.add(TrainingRecord(step, loss, validation.measure(refine_with(training.network))))
            if self.on_record:
                self.on_record(state.records[-1])
        training.network.load_state_dict(state.best_weights)
        verdict = validation.decide(refine_with(training.network), state.best.figures)
        network = training.network.eval()
        return TrainingResult(network, state.records, state.best, verdict, len(items), training.n_classes)

    def begin(self, items: EmbeddingSet) -> Training:
        """A training that has not done a step yet."""
        recipe, device = self.recipe, torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.manual_seed(recipe.seed)
        network = ContextRefinerNetwork(items.dim, recipe.refiner).to(device)
        # What is learned beside the refiner.
        loss: nn.Module = nn.Identity()
        batches: SearchBatches | ClassBatches
        losses: Iterator[Tensor]
        if recipe.objective == "search":
            batches = SearchBatches(items, recipe, device)
            losses = (search_loss(network.train(), batch, recipe.search) for batch in batches)
        else:
            batches = ClassBatches(items, recipe, device)
            loss = build_loss(
                recipe.loss,
                dim=items.dim,
                class_sizes=batches.class_sizes,
                max_per_class=recipe.batches.per_class,
            ).to(device)
            losses = _batch_losses(network, batches, loss)
        optimizer, schedule = _build_optimizer(network, loss, recipe.optimizer)
        state = TrainingState(network, {}, optimizer, schedule, TrainingRecord(0, math.nan, {}))
        return Training(recipe, network, losses, len(batches.class_sizes), state)


@dataclass(frozen=True)
class Training:
    """Training under way."""

    recipe: RefinerRecipe
    network: ContextRefinerNetwork
    losses: Iterator[Tensor]
    n_classes: int
    state: TrainingState[TrainingRecord]

    def checkpoints(
        self, on_step: Callable[[int, int], None] | None = None, *, until: int | None = None
    ) -> Iterator[tuple[int, float]]:
        """Train, and stop for a look at the network as often as the recipe validates, and at the end.

        Gives the steps done, at first 0, and the mean loss since the look before; NaN at step 0. `until` is
        the last step, None for that of the recipe, whose learning rates it has either way.
        """
        config = self.recipe.optimizer
        last = config.steps if until is None else until

        def ends(_loss: Tensor) -> bool:
            if on_step:
                on_step(self.state.step, last)
            return False

        yield 0, math.nan
        for loss in self.state.looks(
            self.losses,
            _backward,
            last=last,
            every=self.recipe.validation.every,
            clip_norm=config.clip_norm,
            ends=ends,
        ):
            yield self.state.step, finite(loss, self.state.step, "use another loss", RefinerTrainingError)


def _backward(loss: Tensor) -> Tensor:
    loss.backward()
    return loss.detach()


def absent_loss(refined: Tensor, batch: ClassBatch, margin: float) -> Tensor:
    """Distance by which queries without a mate were drawn to a wrong item; 0 with a graph where none is.

    Mean over the absent queries of `max(0, max_j <e^T, c_j> - max_j <e^0, c_j> - margin)`, the c_j being
    their neighbors, all of which are wrong, and e^T the `refined` embeddings (B, d).
    """

    def best(embeddings: Tensor) -> Tensor:
        similarities = torch.matmul(batch.context, embeddings[..., None])[..., 0]
        return similarities.masked_fill(~batch.mask, -1.0).amax(dim=1)

    rise = functional.relu(best(refined) - best(batch.query) - margin)
    return (rise * batch.absent).sum() / batch.absent.sum().clamp(min=1)


def _batch_losses(
    network: ContextRefinerNetwork, batches: ClassBatches, loss_function: nn.Module
) -> Iterator[Tensor]:
    """A metric-learning loss on class-balanced batches."""
    absent = batches.recipe.absent
    for batch in batches:
        steps, *_ = network.train()(batch.query, batch.context, batch.mask)
        loss: Tensor = loss_function(steps[:, -1], batch.labels)
        if absent.share:
            loss = loss + absent.weight * absent_loss(steps[:, -1], batch, absent.margin)
        yield loss


def refine_with(network: ContextRefinerNetwork) -> Refine:
    """A network as a validation asks it; it is set to evaluation with every call."""
    device = next(network.parameters()).device

    def refine(rows: FloatArray, neighborhood: Neighbors, *, as_queries: bool) -> FloatArray:
        network.eval()
        parts = []
        given = (rows, neighborhood.contexts, neighborhood.mask, neighborhood.radii)
        arrays = [one for one in given if one is not None]
        with torch.inference_mode():
            for start in range(0, len(rows), _VALIDATION_BATCH):
                part = slice(start, start + _VALIDATION_BATCH)
                inputs = (torch.from_numpy(one[part]).to(device) for one in arrays)
                steps, _, *lengths = network(*inputs)
                long = lengths[0][:, -1:] if as_queries and lengths else 1.0
                parts.append((steps[:, -1] * long).cpu())
        refined: FloatArray = torch.cat(parts).numpy()
        return refined

    return refine


def _build_optimizer(
    network: ContextRefinerNetwork, loss: nn.Module, config: OptimizerConfig
) -> tuple[torch.optim.Optimizer, LambdaLR]:
    named = [*network.named_parameters(), *loss.named_parameters(prefix="loss")]
    learned = [(name, one) for name, one in named if one.requires_grad]
    rest = [one for name, one in learned if not _is_of_small_network(name)]
    # Biases, temperatures and weights of the expansion are not decayed: they set scales, not directions.
    groups = [
        {"params": [p for p in rest if p.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in rest if p.ndim <= 1], "weight_decay": 0.0},
        {
            "params": [one for name, one in learned if _is_of_small_network(name)],
            "weight_decay": config.weight_decay,
            "lr": config.learning_rate * config.network_rate_factor,
        },
    ]
    optimizer = torch.optim.AdamW(groups, lr=config.learning_rate)

    def rate_at(step: int) -> float:
        if step < config.warmup_steps:
            return (step + 1) / (config.warmup_steps + 1)
        after = (step - config.warmup_steps) / max(1, config.steps - config.warmup_steps)
        return 0.5 * (1.0 + math.cos(math.pi * min(1.0, after)))

    return optimizer, LambdaLR(optimizer, rate_at)


def _is_of_small_network(name: str) -> bool:
    """Tell if a parameter belongs to the gates or the level, and is none of their scalars."""
    array = name.rpartition(".")[2]
    return array.startswith(("gate_", "level_")) and array not in ("level_scale", "level_bias")
