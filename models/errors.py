"""Errors of the models package, all below `ModelsError`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, requires
from typing import ClassVar

from vicinal.calibration.advice import AdvisedError

IMAGE_HINT = (
    "a picture is a path, the bytes of an image file, or a PIL image such as PIL.Image.fromarray(array)"
)


class ModelsError(AdvisedError):
    """Root of the package's errors."""


class ImageError(ModelsError, ValueError):
    """An image cannot be used."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NotAnImageError(ImageError):
    """The bytes are no image, or an image that breaks off."""


class UnsupportedFormatError(ImageError):
    """The bytes are an image of a format that is not accepted."""


class ImageTooLargeError(ImageError):
    """The image passes a limit on bytes or pixels."""


class ImageTooSmallError(ImageError):
    """The image has too few pixels to mean anything."""


class BlankImageError(ImageError):
    """The image is of one color all over."""


class DecodingBusyError(ModelsError):
    """Other images take the memory for decoding for too long."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"others decode large images, and no memory came free within {seconds:.0f} s")


class BundleError(ModelsError, ValueError):
    """A model bundle is missing, damaged or of another kind than expected."""


class HubError(ModelsError):
    """The hub of Hugging Face cannot be reached, or does not give what was asked for."""


class EmbeddingError(ModelsError, ValueError):
    """An embedding has the wrong length, is zero, or holds values that are not finite."""


class NetworkDeviceError(ModelsError, RuntimeError):
    """The GPU that ran the network failed; images are embedded on the processor from then on."""

    headers: ClassVar[dict[str, str]] = {"Retry-After": "1"}


class NoDirectionError(EmbeddingError):
    """Embeddings are zero, or hold NaN or infinity; `row` is the first, `what` is wrong with it."""

    def __init__(self, found: Mapping[int, str]) -> None:
        self.found = found
        self.row, self.what = next(iter(found.items()))
        super().__init__(
            f"embedding {self.row} {self.what}: it points nowhere, so nothing can be similar to it"
        )


class ReadyEmbeddingsError(ModelsError, ValueError):
    """A gallery of ready embeddings has no images, and no network that could embed one."""

    def __init__(
        self, gallery: str, space: str, instead: str = "search with an embedding or an item id"
    ) -> None:
        super().__init__(f"gallery '{gallery}' holds ready embeddings of '{space}': {instead}")


class ConfigError(ModelsError, ValueError):
    """A training configuration cannot work as written."""


class DatasetError(ModelsError, ValueError):
    """A data set is incomplete or its labels cannot be used."""


class EvaluationError(ModelsError, ValueError):
    """Embeddings, labels or ground truth do not fit together, or leave nothing to measure."""


class TrainingStoppedError(ModelsError):
    """A run was asked to stop, and did so after writing a checkpoint."""

    def __init__(self, step: int, n_steps: int, how_to_resume: str = "resume it from its checkpoint") -> None:
        super().__init__(f"training stopped at step {step:,} of {n_steps:,}: {how_to_resume}")
        self.step, self.n_steps = step, n_steps


def in_one_line(error: BaseException) -> str:
    """Words of an error on one line, or the name of one that says nothing."""
    return " ".join(str(error).split()) or type(error).__name__


def install_command(extra: str) -> str:
    """The command that brings what an extra needs, whether an index has this project or not."""
    try:
        listed = requires("vicinal") or ()
    except PackageNotFoundError:
        return f"install the extra '{extra}' of Vicinal"
    packages = [one.partition(";")[0].strip() for one in listed if one.endswith((f"'{extra}'", f'"{extra}"'))]
    return shlex.join(["pip", "install", *packages])


class MissingPackageError(ModelsError, ImportError):
    """An optional package is needed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}: {install_command(extra)}")
        self.package, self.extra = package, extra
