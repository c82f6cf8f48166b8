"""Training of an embedding network (torch)."""

from __future__ import annotations

import copy
import csv
import math
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from models.backbone import EmbeddingNetwork, build_network
from models.config import AugmentationConfig, TrainingConfig
from models.datasets import LabelledImages, load_datasets
from models.errors import ConfigError
from models.evaluation import retrieval_metrics
from models.losses import build_loss
from models.multistage import multistage_backward
from models.preprocessing import Preprocessing
from models.samplers import build_sampler, leave_out_small_classes

__all__ = ["StepRecord", "Trainer", "TrainingResult", "embed_images", "supports_bfloat16"]

# Stored images are larger than the input, so that a random crop still has pixels to choose from.
_STORED_PER_INPUT = 1.15


@dataclass(frozen=True)
class StepRecord:
    """One validation during training.

    Attributes:
        loss: Mean training loss since the last record.
        hit_rate_1: Hit rate at rank 1 on held-out classes; NaN without validation classes.
        map_at_r: MAP@R on held-out classes.
        seconds: Seconds since training began.
    """

    step: int
    loss: float
    hit_rate_1: float
    map_at_r: float
    seconds: float


@dataclass(frozen=True)
class TrainingResult:
    """A trained network at its best validation.

    Attributes:
        records: All validations, in order.
        best: The record whose weights were kept.
        training: The images trained on.
        left_out: Classes with too few images for the sampler.
    """

    network: EmbeddingNetwork
    records: list[StepRecord]
    best: StepRecord
    training: LabelledImages
    left_out: list[str]


class Trainer:
    """Trains one network as a configuration says.

    Args:
        config: The checked configuration.
        log: CSV file that gets one line a validation; None writes none.
        on_record: Called after each validation with the record and the number of steps.
    """

    def __init__(
        self,
        config: TrainingConfig,
        *,
        log: Path | None = None,
        on_record: Callable[[StepRecord, int], None] | None = None,
    ) -> None:
        self.config = config
        self.log = log
        self.on_record = on_record
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def run(self) -> TrainingResult:
        """Load the data, train, and return the network with the best validation.

        Raises:
            ConfigError: Backbone, loss or sampler cannot be built as configured.
            DatasetError: A data set is missing or empty.
        """
        config = self.config
        torch.manual_seed(config.seed)
        images = load_datasets(config.datasets, _stored_size(config.preprocessing))
        larger, validation = images.split_classes(config.validation_share, config.seed)
        training, left_out = leave_out_small_classes(larger, config.sampler.smallest_class)
        network = (
            _load_start(build_network(config.backbone), config.start_from)
            .to(self.device)
            .to(memory_format=torch.channels_last)
        )
        records, best, weights = self._optimize(network, training, validation)
        network.load_state_dict(weights)
        return TrainingResult(network.eval(), records, best, training, left_out)

    def _optimize(
        self, network: EmbeddingNetwork, training: LabelledImages, validation: LabelledImages
    ) -> tuple[list[StepRecord], StepRecord, dict[str, Tensor]]:
        config = self.config
        loss_function = build_loss(
            config.loss,
            dim=network.dim,
            class_sizes=np.bincount(training.class_ids).tolist(),
            max_per_class=config.sampler.max_per_class,
            batch_design=config.sampler.batch_design,
        ).to(self.device)
        parameters = [*network.parameters(), *loss_function.parameters()]
        optimizer = torch.optim.AdamW(
            _decay_groups(parameters, config.optimizer.weight_decay), lr=config.optimizer.learning_rate
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, self._rate_at)
        records: list[StepRecord] = []
        best, weights = StepRecord(0, math.nan, math.nan, math.nan, 0.0), network.state_dict()
        losses: list[Tensor] = []
        started = time.monotonic()
        for step, (pixels, labels) in enumerate(self._batches(training), start=1):
            losses.append(self._step(network, loss_function, optimizer, pixels, labels))
            schedule.step()
            if step % config.validate_every and step != config.optimizer.steps:
                continue
            loss = float(torch.stack(losses).mean())
            losses.clear()
            record = self._validate(network, validation, step, loss, time.monotonic() - started)
            records.append(record)
            self._publish(record)
            # Without validation classes MAP@R is NaN, and the last weights are kept.
            if not record.map_at_r <= best.map_at_r:
                best, weights = record, copy.deepcopy(network.state_dict())
        return records, best, weights

    def _step(
        self,
        network: EmbeddingNetwork,
        loss_function: nn.Module,
        optimizer: torch.optim.Optimizer,
        pixels: Tensor,
        labels: Tensor,
    ) -> Tensor:
        network.train()
        optimizer.zero_grad(set_to_none=True)
        loss = multistage_backward(
            network,
            pixels.contiguous(memory_format=torch.channels_last),
            labels.to(self.device),
            loss_function,
            chunk_size=self.config.sampler.chunk_size or len(pixels),
            autocast=self._autocast,
        )
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        nn.utils.clip_grad_norm_(parameters, self.config.optimizer.clip_norm)
        optimizer.step()
        return loss

    def _autocast(self) -> AbstractContextManager[None]:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self._bfloat16)

    @property
    def _bfloat16(self) -> bool:
        wanted = self.config.precision
        return wanted == "bfloat16" or (wanted == "auto" and supports_bfloat16(self.device))

    def _batches(self, training: LabelledImages) -> Iterator[tuple[Tensor, Tensor]]:
        config = self.config
        sampler = build_sampler(config.sampler, training, n_batches=config.optimizer.steps, seed=config.seed)
        dataset = _AugmentedImages(training, config.preprocessing, config.augmentation)
        yield from DataLoader(
            dataset, batch_sampler=sampler, num_workers=config.workers, pin_memory=self.device.type == "cuda"
        )

    def _rate_at(self, step: int) -> float:
        warmup, total = self.config.optimizer.warmup_steps, self.config.optimizer.steps
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1.0 + math.cos(math.pi * min(1.0, (step - warmup) / max(1, total - warmup))))

    def _validate(
        self, network: EmbeddingNetwork, validation: LabelledImages, step: int, loss: float, seconds: float
    ) -> StepRecord:
        if len(np.unique(validation.labels)) == len(validation.labels):
            # Without a pair there is nothing to retrieve.
            return StepRecord(step, loss, math.nan, math.nan, seconds)
        embeddings = embed_images(network, validation.pixels, self.config.preprocessing)
        metrics = retrieval_metrics(embeddings, validation.class_ids, ks=(1,))
        return StepRecord(step, loss, metrics.hit_rate[1], metrics.map_at_r, seconds)

    def _publish(self, record: StepRecord) -> None:
        if self.on_record:
            self.on_record(record, self.config.optimizer.steps)
        if self.log:
            new = not self.log.exists()
            with self.log.open("a", newline="", encoding="utf-8") as stream:
                writer = csv.DictWriter(stream, [field.name for field in fields(StepRecord)])
                if new:
                    writer.writeheader()
                writer.writerow(asdict(record))


def supports_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 products run in hardware; emulated ones were about ten times slower than float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported()
    probe = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    return bool(probe())


def embed_images(
    network: EmbeddingNetwork, pixels: np.ndarray, preprocessing: Preprocessing, *, batch_size: int = 256
) -> np.ndarray:
    """Embed stored images as serving would: fitted, standardized, without augmentation.

    Args:
        network: The network; it is set to evaluation mode.
        pixels: (n, H, W, 3) uint8 RGB.
        preprocessing: Fit and standardization.
        batch_size: Images a forward pass.

    Returns:
        (n, d) float32, not normalized.
    """
    network.eval()
    device = next(network.parameters()).device
    parts = []
    with torch.inference_mode():
        for start in range(0, len(pixels), batch_size):
            tensors = [
                preprocessing.to_tensor(Image.fromarray(image))
                for image in pixels[start : start + batch_size]
            ]
            batch = torch.from_numpy(np.stack(tensors)).to(device, memory_format=torch.channels_last)
            parts.append(network(batch).float().cpu().numpy())
    return np.concatenate(parts)


def _load_start(network: EmbeddingNetwork, path: Path | None) -> EmbeddingNetwork:
    if path is None:
        return network
    if not path.is_file():
        raise ConfigError(
            f"start_from names '{path}', which does not exist: run the recipe that makes it first"
        )
    try:
        network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except (RuntimeError, pickle.UnpicklingError, EOFError) as error:
        raise ConfigError(f"start_from names '{path}', which holds no weights of this network") from error
    return network


class _AugmentedImages(Dataset[tuple[Tensor, int]]):
    def __init__(
        self, images: LabelledImages, preprocessing: Preprocessing, augmentation: AugmentationConfig
    ) -> None:
        self.pixels = images.pixels
        self.class_ids = images.class_ids
        self.transform = _augmentation(preprocessing, augmentation)

    def __len__(self) -> int:
        return len(self.class_ids)

    def __getitem__(self, position: int) -> tuple[Tensor, int]:
        image = torch.from_numpy(self.pixels[position]).permute(2, 0, 1)
        return self.transform(image), int(self.class_ids[position])


def _augmentation(preprocessing: Preprocessing, config: AugmentationConfig) -> v2.Compose:
    side = preprocessing.input_size
    steps: list[nn.Module] = [
        v2.RandomAffine(config.degrees, fill=255),
        v2.RandomResizedCrop(side, scale=(config.smallest_crop, 1.0), ratio=(0.8, 1.25), antialias=True),
        v2.ColorJitter(config.jitter, config.jitter, config.jitter, config.hue),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(list(preprocessing.mean), list(preprocessing.std)),
        v2.RandomErasing(config.erase, scale=(0.02, 0.15)),
    ]
    if config.flip:
        steps.insert(0, v2.RandomHorizontalFlip())
    return v2.Compose(steps)


def _stored_size(preprocessing: Preprocessing) -> Callable[[Image.Image], Image.Image]:
    side = round(preprocessing.input_size * _STORED_PER_INPUT)
    return preprocessing.model_copy(update={"input_size": side}).resize


def _decay_groups(parameters: list[nn.Parameter], weight_decay: float) -> list[dict[str, object]]:
    # Biases, norms and the pooling exponent are not decayed: they set scales, not directions.
    return [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
