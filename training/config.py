"""Training configuration: a TOML file, checked before anything is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from vicinal.calibration.frozen import Frozen
from vicinal.models.bundle import Precision, Preprocessing
from vicinal.models.configs.file import checked, override, read_toml
from vicinal.training.backbones.backbone import BackboneConfig
from vicinal.training.datasets.layouts import DatasetConfig
from vicinal.training.evaluation.config import RetrievalTest
from vicinal.training.losses.config import LossConfig, named_loss
from vicinal.training.losses.registry import check_loss_fits_sampler
from vicinal.training.optimization import OptimizerConfig
from vicinal.training.samplers import ClassBalancedConfig, SamplerConfig


class AugmentationConfig(Frozen):
    """Random changes of a training image; 0 switches one off.

    Attributes:
        smallest_crop: Smallest share of the area that a random crop keeps.
        crop_from: `stored` cuts crops out of the image as it is fitted, 15 % larger than the input;
            `original` out of the whole image with its aspect ratio, of which the smallest crop has the pixels
            of the input; such images take more of `cache_bytes`.
        degrees: Largest rotation in degrees.
        jitter: Largest relative change of brightness, contrast and saturation.
        hue: Largest shift of the hue, in turns.
        erase: Probability that a random rectangle is blanked.
        fill: Ground that turning uncovers; `black` is the zero padding of many papers.
        flip: Mirror at random; wrong for text and characters.
    """

    smallest_crop: float = Field(0.6, gt=0.0, le=1.0)
    crop_from: Literal["stored", "original"] = "stored"
    degrees: float = Field(12.0, ge=0.0, le=180.0)
    jitter: float = Field(0.3, ge=0.0, lt=1.0)
    hue: float = Field(0.02, ge=0.0, le=0.5)
    erase: float = Field(0.2, ge=0.0, le=1.0)
    fill: Literal["white", "black"] = "white"
    flip: bool = False


class TrainingConfig(Frozen):
    """All of one training run.

    Attributes:
        name: Name of the bundle that comes out.
        licence: Licence of the weights, as the bundle states it.
        backbone: The network.
        preprocessing: How an image becomes the network's input, in training and in serving.
        datasets: Where the labelled images come from; a batch mixes all of them.
        loss: What is minimized.
        sampler: How batches are drawn.
        optimizer: How weights are learned.
        validation_datasets: Held-out classes to choose the weights by, given as data sets of their own; left
            out, a share of the classes is held out.
        validation_share: Share of the classes held out to choose the weights, per data set.
        validate_every: Steps between two validations, each of which leaves a checkpoint.
        interpolate: Keep the point at this share of the way from the first weights to the trained ones: what
            lies nearer to general weights stays more general. False keeps the trained ones.
        served_size: Side in pixels that the finished bundle fits images to; None as in training. Random crops
            show things larger than they are in whole images, which a larger side makes up for: Touvron et
            al., "Fixing the train-test resolution discrepancy", NeurIPS 2019.
        form: Form of the exported network, measured beside float32 on the images of the first data set,
            on which int8 is calibrated, too; `auto` takes the fastest that loses little.
        source: Where the first weights come from; the bundle's `NOTICE` names it.
        augmentation: Random changes of training images.
        precision: `auto` takes bfloat16 on a GPU that multiplies it in hardware, else float16, and float32
            on a processor. float16 scales the loss so that small gradients survive.
        cache_bytes: Most bytes of decoded images that each training process holds; what does not fit is
            decoded whenever it is drawn, ahead of its use. The result is the same.
        workers: Processes that augment; 0 does it in the training process. The result is the same.
        seed: Seed of weights, held-out classes, batches and augmentation.
        start_from: `weights.pt` of an earlier run of the same network; None starts as `backbone` says.
        tests: What the finished bundle is measured on; reported in it, never used to choose anything.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")
    licence: str = "unknown"
    backbone: BackboneConfig
    preprocessing: Preprocessing
    datasets: tuple[DatasetConfig, ...] = Field(min_length=1)
    validation_datasets: tuple[DatasetConfig, ...] = ()
    loss: Annotated[LossConfig, BeforeValidator(named_loss)] = LossConfig()
    sampler: SamplerConfig = ClassBalancedConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    validation_share: float = Field(0.1, ge=0.0, lt=1.0)
    validate_every: int = Field(250, ge=1)
    interpolate: Literal[False] | Annotated[float, Field(gt=0.0, lt=1.0)] = False
    served_size: int | None = Field(None, ge=16, le=2048)
    form: Precision | Literal["auto"] = "float32"
    source: str = ""
    augmentation: AugmentationConfig = AugmentationConfig()
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    cache_bytes: int = Field(4 * 2**30, ge=0)
    workers: int = Field(0, ge=0)
    seed: int = Field(0, ge=0)
    start_from: Path | None = None
    tests: tuple[RetrievalTest, ...] = ()

    @model_validator(mode="after")
    def _parts_fit(self) -> TrainingConfig:
        check_loss_fits_sampler(self.loss, self.sampler)
        return self

    @classmethod
    def load(
        cls, path: Path, *, data_root: Path | None = None, settings: Sequence[str] = ()
    ) -> TrainingConfig:
        """Read a TOML file, and set some `key=value` of it anew; see `models.configs.file`."""
        return checked(cls, override(read_toml(path), settings), f"'{path}'", data_root=data_root)
