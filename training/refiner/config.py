"""Refiner recipe: what is trained, on what, and how it is validated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PositiveInt, ValidationError, model_validator

from vicinal.calibration.frozen import Frozen
from vicinal.models.configs.file import checked, override, read_toml
from vicinal.models.errors import ConfigError
from vicinal.models.refiner_manifest import RefinerArchitecture, RefinerForm
from vicinal.training.datasets.layouts import DatasetConfig
from vicinal.training.losses.config import LossConfig, named_loss
from vicinal.training.samplers import ClassBalancedConfig

# A gallery keeps this many neighbors of each item.
MOST_NEIGHBORS = 32
# What is trained unless a recipe is given: gates and a level, by searches.
DEFAULT_RECIPE = Path(__file__).with_name("default_recipe.toml")


class RefinerConfig(Frozen):
    """The network, and how its weights start.

    Attributes:
        n_steps: Steps T.
        n_neighbors: Neighbors k that refine an embedding.
        n_heads: Attention heads; divides the embedding's length.
        form: `bare`, `attention`, `attention_mlp` or `gated`; see
            `models.refiner_manifest.RefinerArchitecture`.
        level: Whether queries get a length that says how sure a mate is; see `refine.step`. It is learned by
            `objective = "search"` alone, and only takes the pull of the refinement back otherwise.
        neighbors: `none` attends to the item itself: the paper's control without context.
        init: `random`, or `softmax_qe`: every step is softmax query expansion to begin with (Q, K and V the
            identity), and the difference to it is learned.
        temperature: Start of a learned temperature that attention is divided by; None learns none and leaves
            the scale to the weights, as the paper does. `softmax_qe` needs one.
        shared_temperature: One temperature for all steps instead of one a step.
        expansion_weight: Start of the learned weight of the neighbors in `softmax_qe`.
        zero_init_output: The last layer of attention and MLP starts at zero, so that nothing is refined to
            begin with; `softmax_qe` always starts so.
        dropout: Share of attention's output and of the MLP's hidden units that training drops.
        neighbor_dropout: Share of the neighbors that training hides, at random, never all of them.
    """

    n_steps: int = Field(8, ge=1, le=64)
    n_neighbors: int = Field(8, ge=1, le=MOST_NEIGHBORS)
    n_heads: int = Field(8, ge=1)
    form: RefinerForm = "attention_mlp"
    neighbors: Literal["context", "none"] = "context"
    init: Literal["random", "softmax_qe"] = "random"
    temperature: float | None = Field(None, gt=0.0, allow_inf_nan=False)
    shared_temperature: bool = False
    expansion_weight: float = Field(1.0, gt=0.0, allow_inf_nan=False)
    zero_init_output: bool = False
    level: bool = False
    dropout: float = Field(0.0, ge=0.0, lt=1.0)
    neighbor_dropout: float = Field(0.0, ge=0.0, lt=1.0)

    @model_validator(mode="after")
    def _options_fit(self) -> RefinerConfig:
        if self.form == "gated":
            if self.init != "softmax_qe" or self.neighbors != "context":
                raise ValueError(
                    "form 'gated' needs init 'softmax_qe', a temperature and neighbors 'context'"
                )
            if self.dropout or self.zero_init_output or "n_heads" in self.model_fields_set:
                raise ValueError("form 'gated' has no heads, dropout and output layer: leave them out")
        if self.level and self.neighbors != "context":
            raise ValueError("a level says how a query lies among its neighbors: set neighbors 'context'")
        if self.init == "softmax_qe" and self.temperature is None:
            raise ValueError("init 'softmax_qe' needs a temperature, such as 0.1")
        if self.shared_temperature and self.temperature is None:
            raise ValueError("shared_temperature needs a temperature to share, such as 0.1")
        if "expansion_weight" in self.model_fields_set and self.init != "softmax_qe":
            raise ValueError("expansion_weight belongs to init 'softmax_qe': leave it out, or set init")
        return self

    def architecture(self, dim: int) -> RefinerArchitecture:
        """Architecture of this configuration for embeddings of a length."""
        try:
            return RefinerArchitecture(
                dim=dim,
                n_heads=1 if self.form == "gated" else self.n_heads,
                expansion=self.init == "softmax_qe",
                **self.model_dump(include={"n_steps", "n_neighbors", "form", "neighbors", "level"}),
            )
        except ValidationError as error:
            raise ConfigError(
                f"refiner.n_heads {self.n_heads} does not divide embeddings of {dim} dimensions: "
                f"set it to a divisor of {dim}"
            ) from error


class BatchConfig(Frozen):
    """Class-balanced batches, and the noise on them.

    Attributes:
        batch_size: Items a batch, fewer where a class has fewer than `per_class`.
        per_class: Items a class and batch; divides `batch_size`.
        noise: Expected length of a Gaussian vector that is added to each unit embedding of the batch and of
            its contexts, before they are normalized again.
    """

    batch_size: int = Field(128, ge=4)
    per_class: int = Field(4, ge=2)
    noise: float = Field(0.0, ge=0.0, allow_inf_nan=False)

    @property
    def sampler(self) -> ClassBalancedConfig:
        """The sampler that draws them."""
        return ClassBalancedConfig(batch_size=self.batch_size, per_class=self.per_class)

    @model_validator(mode="after")
    def _divides(self) -> BatchConfig:
        if self.batch_size % self.per_class:
            raise ValueError(f"per_class {self.per_class} does not divide batch_size {self.batch_size}")
        return self


class AbsentConfig(Frozen):
    """Queries of a batch that are trained as if nothing of their class were in the gallery.

    Attributes:
        share: Share of a batch whose contexts leave out every item of their class.
        weight: Factor on the loss that punishes them for being drawn to one of those neighbors.
        margin: Rise of the best cosine similarity to a neighbor that costs nothing.
    """

    share: float = Field(0.0, ge=0.0, le=1.0)
    weight: float = Field(1.0, ge=0.0, allow_inf_nan=False)
    margin: float = Field(0.0, ge=0.0, le=2.0)


class SearchConfig(Frozen):
    """Searches of a gallery that is drawn anew for every step: the objective `search`.

    Each step draws a gallery from the training items, leaves classes out of it, and searches it with items
    that are not in it. Two losses are added up: mates must rank before others (SmoothAP, with the direction
    alone), and queries with a mate must have a higher score than queries without one (with the level).

    Attributes:
        n_queries: Queries a step, half of them without a mate.
        n_candidates: Most similar items of each query, with which losses are computed.
        gallery_share: Smallest and largest share of the items that a gallery holds.
        most_per_class: Range of the most items of a class that a gallery holds, drawn anew for every step,
            small ones as often as large ones: galleries with few photos a product are then learned from,
            too. None leaves them to `gallery_share`.
        absent_share: Share of the classes that are left out of it.
        rank_sharpness: Factor on differences of similarity between two candidates of a query, before a
            sigmoid counts them as ranked.
        level_sharpness: The same between logarithms of best scores of queries with and without a mate.
        hardest: Share of the queries without a mate, those with the highest scores, that count.
    """

    n_queries: int = Field(192, ge=8)
    n_candidates: int = Field(24, ge=2)
    gallery_share: tuple[float, float] = (0.4, 0.6)
    most_per_class: tuple[PositiveInt, PositiveInt] | None = None
    absent_share: float = Field(0.5, gt=0.0, lt=1.0)
    rank_sharpness: float = Field(100.0, gt=0.0, allow_inf_nan=False)
    level_sharpness: float = Field(10.0, gt=0.0, allow_inf_nan=False)
    hardest: float = Field(0.2, gt=0.0, le=1.0)

    @model_validator(mode="after")
    def _shares_fit(self) -> SearchConfig:
        low, high = self.gallery_share
        if not 0.0 < low <= high < 1.0:
            raise ValueError(f"gallery_share is {low} to {high}, expected two ascending shares in (0, 1)")
        fewest, most = self.most_per_class or (1, 1)
        if fewest > most:
            raise ValueError(f"most_per_class is {fewest} to {most}, expected two ascending numbers")
        return self


class OptimizerConfig(Frozen):
    """AdamW with a linear warm-up and half a cosine to zero.

    Attributes:
        learning_rate: Highest learning rate.
        weight_decay: Decay of the weight matrices.
        steps: Steps of training, one batch each.
        warmup_steps: First steps, in which the learning rate rises.
        clip_norm: Longest gradient over all parameters; 0 does not clip.
        network_rate_factor: Factor on the learning rate of the small networks of gates and level; the few
            scalars beside them need a larger one.
    """

    learning_rate: float = Field(3e-4, gt=0.0, allow_inf_nan=False)
    weight_decay: float = Field(0.01, ge=0.0, allow_inf_nan=False)
    steps: int = Field(2000, ge=1)
    warmup_steps: int = Field(100, ge=0)
    clip_norm: float = Field(1.0, ge=0.0, allow_inf_nan=False)
    network_rate_factor: float = Field(0.3, gt=0.0, allow_inf_nan=False)


class RerankConfig(Frozen):
    """Contextual re-ranking that the verdict is measured with; see `refine.reranking`.

    Attributes:
        k: Neighborhood size, the query itself counted.
        beta: Weight of the contextual similarity.
        eps: Slack of the neighborhood on the squared distance.
    """

    k: int = Field(8, ge=2, le=MOST_NEIGHBORS)
    beta: float = Field(0.1, ge=0.0, le=1.0)
    eps: float = Field(0.05, ge=0.0, le=4.0)


class ValidationConfig(Frozen):
    """Searches among held-out classes that choose the step and the verdict.

    Attributes:
        folds: Folds that the classes are dealt into, unless classes to validate on are given: each is
            searched with a refiner that was trained on the others, and the one that is kept is trained on
            all; see `training.refiner.cross_fitting`. 0 holds out a share of the classes instead.
        share: Share of the classes held out with 0 folds.
        every: Steps between two validations.
        draws: Times that the classes are dealt into known and absent ones; every second draw swaps them.
        fpir: False positive identification rate at which the false negative one is compared.
        rerank: Re-ranking that the verdict on re-ranking is about.
    """

    folds: int = Field(5, ge=0, le=20)
    share: float = Field(0.2, gt=0.0, lt=1.0)
    every: int = Field(200, ge=1)
    draws: int = Field(2, ge=1)
    fpir: float = Field(0.05, gt=0.0, le=0.5)
    rerank: RerankConfig = RerankConfig()

    @model_validator(mode="after")
    def _folds_leave_something(self) -> ValidationConfig:
        if self.folds == 1:
            raise ValueError("folds is 1, expected 0 or at least 2: one fold leaves nothing to train on")
        return self


class RefinerRecipe(Frozen):
    """All of one training of a refiner.

    Attributes:
        datasets: Where the labelled images come from; none when embeddings are given.
        validation_datasets: Images of classes to validate on, best ones that the backbone never saw; without
            any, some of the classes are held out.
        refiner: The network.
        objective: `batch` minimizes `loss` on the refined embeddings of class-balanced batches, as the paper
            does; `search` draws galleries and searches them.
        search: The searches of the objective `search`.
        loss: What is minimized on the refined embeddings, with the objective `batch`.
        batches: How batches are drawn.
        absent: Queries without a mate in their context.
        optimizer: How weights are learned.
        validation: What chooses the step and the verdict.
        seed: Seed of weights, held-out classes, batches and noise.
    """

    datasets: tuple[DatasetConfig, ...] = ()
    validation_datasets: tuple[DatasetConfig, ...] = ()
    refiner: RefinerConfig = RefinerConfig()
    objective: Literal["batch", "search"] = "batch"
    search: SearchConfig = SearchConfig()
    loss: Annotated[LossConfig, BeforeValidator(named_loss)] = LossConfig()
    batches: BatchConfig = BatchConfig()
    absent: AbsentConfig = AbsentConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    validation: ValidationConfig = ValidationConfig()
    seed: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _loss_fits(self) -> RefinerRecipe:
        if self.loss != LossConfig():
            # It loads torch, which takes seconds.
            from vicinal.training.losses.registry import check_loss_fits_sampler

            check_loss_fits_sampler(self.loss, self.batches.sampler)
        return self

    @classmethod
    def load(
        cls, path: Path | None, *, data_root: Path | None = None, settings: Sequence[str] = ()
    ) -> RefinerRecipe:
        """Read a TOML file, or `DEFAULT_RECIPE`, and set `key=value` anew; see `models.configs.file`."""
        fields = override(read_toml(path or DEFAULT_RECIPE), settings)
        where = "the refiner recipe" if path is None else f"'{path}'"
        return checked(cls, fields, where, data_root=data_root)
