"""Training of an embedding network (torch)."""

from __future__ import annotations

import math
import pickle
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vicinal.calibration.arrays import Indices
from vicinal.models.errors import ConfigError, TrainingStoppedError
from vicinal.training.augmentation import stored_size, training_batches
from vicinal.training.backbones.backbone import EmbeddingNetwork, build_network, build_projector
from vicinal.training.checkpoint import (
    CHECKPOINT_FILE,
    check_checkpoint,
    identity_of,
    load_checkpoint,
    save_checkpoint,
)
from vicinal.training.config import TrainingConfig
from vicinal.training.datasets import LabelledImages, list_images, load_datasets
from vicinal.training.datasets.stored_pixels import PixelStore, StoredPixels
from vicinal.training.execution.device import MixedPrecision, choose_device
from vicinal.training.log import TrainingLog
from vicinal.training.loop import TrainingState, copied, finite
from vicinal.training.losses.base import MetricLoss
from vicinal.training.losses.registry import build_loss
from vicinal.training.multistage import multistage_backward
from vicinal.training.observer import StepProgress, StepRecord, TrainingObserver
from vicinal.training.optimization import build_optimizer, build_schedule, parameter_groups
from vicinal.training.samplers import leave_out_small_classes
from vicinal.training.validation import between, embed_images, validate

State = TrainingState[StepRecord]

_NO_RECORD = StepRecord(0, math.nan, math.nan, math.nan, 0.0)
# Images that the mean feature is taken of.
_CENTERED_ON = 1024
# A list of thousands of classes would hide the line's end.
_NAMED_CLASSES = 5


@dataclass(frozen=True)
class TrainingResult:
    """A trained network at its best validation."""

    network: EmbeddingNetwork
    records: list[StepRecord]
    best: StepRecord
    training: LabelledImages


@dataclass(frozen=True)
class _Images:
    training: LabelledImages
    validation: LabelledImages
    identity: dict[str, Any]


class Trainer:
    """Trains one network as a configuration says, on `auto`, `cpu`, `cuda` or `cuda:<number>`.

    Log, curves and checkpoint go into the folder; None writes nothing.
    """

    def __init__(
        self,
        config: TrainingConfig,
        *,
        folder: Path | None = None,
        device: str = "auto",
        observer: TrainingObserver | None = None,
    ) -> None:
        self.config = config
        self.folder = folder
        self.device = choose_device(device)
        self.observer = observer or TrainingObserver()
        self.precision = MixedPrecision(config.precision, self.device)

    def run(self, *, resume: bool = False) -> TrainingResult:
        """Load the images, train, and return the network with the best validation.

        With `resume` it goes on from the folder's checkpoint. On a CPU the result is the same, bit for bit,
        as that of a run that was never stopped.
        """
        config = self.config
        torch.manual_seed(config.seed)
        network = _load_start(build_network(config.backbone), config.start_from)
        network = network.to(self.device).to(memory_format=torch.channels_last)
        _try_input(network, config)
        with ExitStack() as stack:
            images = self._load_images(stack)
            if resume:
                check_checkpoint(self._checkpoint, images.identity)
            state = self._new_state(network, images)
            if resume:
                load_checkpoint(self._checkpoint, state, images.identity)
            self._optimize(state, images)
            self._keep_best(state)
        return TrainingResult(network.eval(), state.records, state.best, images.training)

    @property
    def _checkpoint(self) -> Path:
        if self.folder is None:
            raise ConfigError("a run without a folder has no checkpoint to resume from")
        return self.folder / CHECKPOINT_FILE

    def _load_images(self, stack: ExitStack) -> _Images:
        config, smallest = self.config, self.config.sampler.smallest_class
        datasets = (*config.datasets, *config.validation_datasets)
        fit, target_side = stored_size(config.preprocessing, config.augmentation)
        images = load_datasets(datasets, fit, limit=config.cache_bytes, target_side=target_side)
        if config.validation_datasets:
            is_held = np.arange(len(images.labels)) >= sum(len(list_images(one)) for one in config.datasets)
            larger, validation = images.subset(~is_held), images.subset(is_held)
        else:
            larger, validation = images.split_classes(config.validation_share, config.seed)
        training, left_out = leave_out_small_classes(larger, smallest)
        if left_out:
            named = ", ".join(left_out[:_NAMED_CLASSES])
            more = f" and {len(left_out) - _NAMED_CLASSES} more" if len(left_out) > _NAMED_CLASSES else ""
            self.observer.on_notice(
                f"{len(left_out)} classes have fewer than {smallest} images and are left out: {named}{more}"
            )
        identity = identity_of(config, images)
        if isinstance(images.pixels, StoredPixels):
            stack.callback(images.pixels.store.close)
            self._keep(images.pixels.store, np.concatenate([training.positions, validation.positions]))
        return _Images(training, validation, identity)

    def _keep(self, store: PixelStore, positions: Indices) -> None:
        n_kept = store.keep(positions)
        if n_kept < len(positions):
            self.observer.on_notice(
                f"{n_kept:,} of {len(positions):,} images are kept decoded in "
                f"{self.config.cache_bytes / 1e9:.1f} GB (cache_bytes), the others are decoded when drawn"
            )

    def _new_state(self, network: EmbeddingNetwork, images: _Images) -> State:
        config, training = self.config, images.training
        if config.backbone.head == "classifier" and config.start_from is None:
            network.center_head(_mean_feature(network, training, config))
        network.to(memory_format=torch.channels_last)
        projector = build_projector(network.dim, config.backbone.projector).to(self.device)
        seen = config.backbone.projector.dim if config.backbone.projector else network.dim
        loss = build_loss(
            config.loss,
            dim=seen,
            class_sizes=np.bincount(training.class_ids).tolist(),
            max_per_class=config.sampler.max_per_class,
            batch_design=config.sampler.batch_design,
        ).to(self.device)
        groups = parameter_groups(network, projector, loss, config.optimizer)
        optimizer = build_optimizer(groups, config.optimizer)
        return TrainingState(
            network=network,
            beside={"projector": projector, "loss": loss},
            optimizer=optimizer,
            schedule=build_schedule(optimizer, config.optimizer),
            best=_NO_RECORD,
            scaler=self.precision.scaler,
            start_weights=copied(network.state_dict()) if config.interpolate else {},
        )

    def _optimize(self, state: State, images: _Images) -> None:
        config = self.config
        log = TrainingLog(self.folder) if self.folder else None
        batches = training_batches(
            images.training,
            config,
            first_step=state.step,
            pin_memory=self.device.type == "cuda",
        )
        self.observer.on_start()
        for loss in state.looks(
            batches,
            lambda batch: self._backward(state, *batch),
            last=config.optimizer.steps,
            every=config.validate_every,
            clip_norm=config.optimizer.clip_norm,
            ends=lambda step_loss: self._ends(state, images, step_loss),
        ):
            self._validate(state, images, loss)
            if log:
                log.write(state.records)
            self._save(state, images)
            self.observer.on_record(state.records[-1])
        self.observer.on_finish()
        if log:
            log.finish(state.records, state.best)

    def _ends(self, state: State, images: _Images, step_loss: Tensor) -> bool:
        """Tell of a step, and end early where the observer asks for it."""
        steps = self.config.optimizer.steps
        latest = state.records[-1] if state.records else None
        self.observer.on_step(StepProgress(state.step, steps, latest, step_loss))
        if state.step < steps and self.observer.should_stop():
            self._save(state, images)
            raise TrainingStoppedError(state.step, steps)
        return False

    def _backward(self, state: State, inputs: Tensor, labels: Tensor) -> Tensor:
        trained = nn.Sequential(state.network, state.beside["projector"]).train()
        losses: list[Tensor] = []

        def scaled_loss(embeddings: Tensor, labels: Tensor) -> Tensor:
            loss: Tensor = state.beside["loss"](embeddings, labels)
            losses.append(loss.detach())
            return state.scaler.scale(loss)

        multistage_backward(
            trained,
            inputs,
            labels.to(self.device),
            scaled_loss,
            chunk_size=self.config.sampler.chunk_size or len(inputs),
            autocast=self.precision.autocast,
        )
        return losses[0]

    def _validate(self, state: State, images: _Images, loss: float) -> None:
        finite(loss, state.step, "set precision to 'float32'", ConfigError)
        trained_by = state.beside["loss"]
        distance = trained_by.distance if isinstance(trained_by, MetricLoss) else "cosine"
        held_out, prepared = images.validation, self.config.preprocessing
        hit_rate, map_at_r = validate(
            held_out, lambda: embed_images(state.network, held_out.pixels, prepared), distance
        )
        state.add(StepRecord(state.step, loss, hit_rate, map_at_r, state.seconds))

    def _keep_best(self, state: State) -> None:
        """Give the network the best weights, or those at a share of the way to them."""
        weights, share = state.best_weights, self.config.interpolate
        if share:
            weights = between(state.start_weights, weights, share)
            self.observer.on_notice(
                f"kept the weights {share:.0%} of the way from the first to the best ones"
            )
        state.network.load_state_dict(weights)

    def _save(self, state: State, images: _Images) -> None:
        if self.folder is not None:
            save_checkpoint(self._checkpoint, state, images.identity)


def _mean_feature(network: EmbeddingNetwork, training: LabelledImages, config: TrainingConfig) -> Tensor:
    """(width,) what the head sees, averaged over some training images, all data sets counting alike."""
    some = np.unique(np.linspace(0, len(training.labels) - 1, _CENTERED_ON).astype(np.intp))
    mask = np.isin(np.arange(len(training.labels)), some)
    head, network.head = network.head, nn.Identity()
    try:
        features = embed_images(network, training.subset(mask).pixels, config.preprocessing)
    finally:
        network.head = head
    sources = training.sources[some]
    return torch.from_numpy(
        np.mean([features[sources == one].mean(axis=0) for one in np.unique(sources)], axis=0)
    )


def _try_input(network: EmbeddingNetwork, config: TrainingConfig) -> None:
    side = config.preprocessing.input_size
    device = next(network.parameters()).device
    try:
        with torch.inference_mode():
            network.eval()(torch.zeros(1, 3, side, side, device=device))
    except (AssertionError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"backbone '{config.backbone.name}' cannot take images of {side} px "
            f"({' '.join(str(error).split())[:200]}): change preprocessing.input_size or backbone.arguments"
        ) from error


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
