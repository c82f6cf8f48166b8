"""Checkpoint: all that a run needs to go on exactly where it was (torch)."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from vicinal.calibration.advice import advise
from vicinal.models.errors import ConfigError
from vicinal.training.config import TrainingConfig
from vicinal.training.datasets import LabelledImages
from vicinal.training.files import replacing
from vicinal.training.loop import TrainingState

CHECKPOINT_FILE = "checkpoint.pt"
_FORMAT = 1
# What has no say in the weights may change between a run and its continuation.
# Compiled passes round otherwise, and no more.
_WITHOUT_EFFECT = {"cache_bytes", "licence", "name", "tests", "workers"}


def identity_of(config: TrainingConfig, images: LabelledImages) -> dict[str, Any]:
    """Identity that a checkpoint shares with the run that resumes it."""
    labels = "\n".join(images.labels.tolist())
    return {
        "recipe": config.model_dump(mode="json", exclude=_WITHOUT_EFFECT),
        "n_images": len(images.labels),
        "labels_sha256": hashlib.sha256(labels.encode()).hexdigest(),
    }


def save_checkpoint(path: Path, state: TrainingState[Any], identity: Mapping[str, Any]) -> None:
    """Write the state of a run in one step: a kill leaves the old checkpoint or the new one."""
    with replacing(path) as partial:
        torch.save({"format": _FORMAT, "identity": dict(identity), "state": state.state_dict()}, partial)


def load_checkpoint(path: Path, state: TrainingState[Any], identity: Mapping[str, Any]) -> None:
    """Bring a run to the state of a checkpoint."""
    content = check_checkpoint(path, identity)
    try:
        state.load_state_dict(content["state"])
    except (RuntimeError, KeyError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"checkpoint '{path}' does not fit this version's network: {reason}") from error


def check_checkpoint(path: Path, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Read a checkpoint and see that it belongs to a run, before work is done for it."""
    content = _read(path)
    stored = content["identity"]
    before, now = _flat(stored["recipe"]), _flat(identity["recipe"])
    for key in {**before, **now}:
        if before.get(key) != now.get(key):
            raise ConfigError(
                f"checkpoint '{path}' belongs to another recipe: {key} was {before.get(key)}, "
                f"is {now.get(key)}: ",
                advise("set it back, or start anew with {overwrite}"),
            )
    if stored != identity:
        raise ConfigError(
            f"checkpoint '{path}' was trained on other images: {stored['n_images']:,} then, "
            f"{identity['n_images']:,} now: ",
            advise("bring them back, or start anew with {overwrite}"),
        )
    return content


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise ConfigError(f"there is no checkpoint '{path}' to resume from: ", advise("leave {resume} out"))
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError) as error:
        raise ConfigError(
            f"checkpoint '{path}' is damaged: ", advise("start anew with {overwrite}")
        ) from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise ConfigError(
            f"'{path}' is no checkpoint of format {_FORMAT}: it was written by another version; ",
            advise("start anew with {overwrite}"),
        )
    return content


def _flat(fields: Any, prefix: str = "") -> dict[str, Any]:
    items = fields.items() if isinstance(fields, Mapping) else enumerate(fields)
    found: dict[str, Any] = {}
    for key, value in items:
        place = f"{prefix}.{key}" if prefix else str(key)
        nested = isinstance(value, Mapping | list) and value
        found.update(_flat(value, place) if nested else {place: value})
    return found
