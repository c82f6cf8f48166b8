"""Training configuration: a TOML file, checked before anything is loaded."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from models.dataset_config import DatasetConfig, DemoCatalogConfig, FolderConfig, ProtocolConfig
from models.errors import ConfigError
from models.loss_config import AddedLossConfig, LossConfig, check_loss_fits_sampler, named_loss
from models.preprocessing import Preprocessing
from models.sampler_config import (
    ClassBalancedConfig,
    GroupConfig,
    HierarchicalConfig,
    RandomPairsConfig,
    SamplerConfig,
    SourceBalancedConfig,
)

__all__ = [
    "AddedLossConfig",
    "AugmentationConfig",
    "BackboneConfig",
    "ClassBalancedConfig",
    "DatasetConfig",
    "DemoCatalogConfig",
    "FolderConfig",
    "GroupConfig",
    "HierarchicalConfig",
    "LossConfig",
    "OptimizerConfig",
    "ProtocolConfig",
    "RandomPairsConfig",
    "RetrievalTest",
    "SamplerConfig",
    "SourceBalancedConfig",
    "TrainingConfig",
]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class BackboneConfig(_Frozen):
    """The network.

    Attributes:
        name: A timm architecture.
        arguments: Keyword arguments for `timm.create_model`.
        stem_pool: Keep the max pooling after the stem; without it small images keep more detail.
        pretrained: Start from timm's weights (needs a network or a filled cache).
        weights: Start from a local weights file instead.
        dim: Length of the embeddings; None keeps the backbone's own width and has no linear head.
        layer_norm: Normalize the pooled features before the head.
        pooling: `gem` for generalized-mean pooling of a feature map; `native` for what the architecture
            does itself, which any of timm's can.
        gem_power: Initial exponent of generalized-mean pooling; 1 is the average.
    """

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    stem_pool: bool = True
    pretrained: bool = False
    weights: Path | None = None
    dim: int | None = Field(256, ge=8)
    layer_norm: bool = True
    pooling: Literal["gem", "native"] = "gem"
    gem_power: float = Field(3.0, gt=0.0)


class AugmentationConfig(_Frozen):
    """Random changes of a training image; 0 switches one off.

    Attributes:
        smallest_crop: Smallest share of the area that a random crop keeps.
        degrees: Largest rotation in degrees.
        jitter: Largest relative change of brightness, contrast and saturation.
        hue: Largest shift of the hue, in turns.
        erase: Probability that a random rectangle is blanked.
        flip: Mirror at random; wrong for text and characters.
    """

    smallest_crop: float = Field(0.6, gt=0.0, le=1.0)
    degrees: float = Field(12.0, ge=0.0, le=180.0)
    jitter: float = Field(0.3, ge=0.0, lt=1.0)
    hue: float = Field(0.02, ge=0.0, le=0.5)
    erase: float = Field(0.2, ge=0.0, le=1.0)
    flip: bool = False


class OptimizerConfig(_Frozen):
    """AdamW with linear warm-up and cosine decay to zero."""

    learning_rate: float = Field(1e-3, gt=0.0)
    weight_decay: float = Field(0.05, ge=0.0)
    steps: int = Field(2000, ge=1)
    warmup_steps: int = Field(100, ge=0)
    clip_norm: float = Field(1.0, gt=0.0)


class RetrievalTest(_Frozen):
    """A test on classes that training never sees; reported in the bundle, never used to choose anything.

    Attributes:
        name: Name of the test, which the bundle's metrics are listed under.
        dataset: Images with the roles `gallery`, `query` and, if there are any, `absent`.
    """

    name: str
    dataset: ProtocolConfig


class TrainingConfig(_Frozen):
    """All of one training run.

    Attributes:
        name: Name of the bundle that comes out.
        datasets: Where the labelled images come from; a batch mixes all of them.
        validation_share: Share of the classes held out to choose the checkpoint, per data set.
        validate_every: Steps between two validations.
        precision: `auto` takes bfloat16 where the processor multiplies it in hardware, else float32.
        workers: Processes that decode and augment; 0 does it in the training process.
        start_from: `weights.pt` of an earlier run of the same network; None starts as `backbone` says.
        tests: What the finished bundle is measured on.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")
    licence: str = "unknown"
    backbone: BackboneConfig
    preprocessing: Preprocessing
    datasets: tuple[DatasetConfig, ...] = Field(min_length=1)
    loss: Annotated[LossConfig, BeforeValidator(named_loss)] = LossConfig()
    sampler: SamplerConfig = ClassBalancedConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    validation_share: float = Field(0.1, ge=0.0, lt=1.0)
    validate_every: int = Field(250, ge=1)
    augmentation: AugmentationConfig = AugmentationConfig()
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    workers: int = Field(0, ge=0)
    seed: int = 0
    start_from: Path | None = None
    tests: tuple[RetrievalTest, ...] = ()

    @model_validator(mode="after")
    def _loss_fits_sampler(self) -> TrainingConfig:
        check_loss_fits_sampler(self.loss, self.sampler)
        return self

    @classmethod
    def load(cls, path: Path, *, data_root: Path | None = None) -> TrainingConfig:
        """Read a TOML file.

        Args:
            path: The file.
            data_root: Folder that relative data set paths start from; the working directory when None.

        Raises:
            ConfigError: The file is missing or not TOML, a key is unknown, or a value cannot work.
        """
        try:
            fields = tomllib.loads(path.read_text(encoding="utf-8"))
            return cls.model_validate(_rooted(fields, data_root or Path.cwd()))
        except FileNotFoundError as error:
            raise ConfigError(f"there is no training configuration '{path}'") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"'{path}' is not TOML: {error}") from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise ConfigError(f"'{path}': {where}: {first['msg']}") from error


def _rooted(fields: dict[str, Any], data_root: Path) -> dict[str, Any]:
    # What has another form than a data set is left as it is: the validation says what is wrong with it.
    def root(entry: Any) -> Any:
        has_root = isinstance(entry, dict) and isinstance(entry.get("root"), str)
        return {**entry, "root": data_root / entry["root"]} if has_root else entry

    def root_test(test: Any) -> Any:
        return {**test, "dataset": root(test.get("dataset"))} if isinstance(test, dict) else test

    rooted = dict(fields)
    for key, change in (("datasets", root), ("tests", root_test)):
        if isinstance(fields.get(key), list):
            rooted[key] = [change(entry) for entry in fields[key]]
    return rooted
