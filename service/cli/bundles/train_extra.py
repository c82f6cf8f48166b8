"""What the `train` extra installs, asked for before a command begins that needs it."""

from __future__ import annotations

import importlib

from vicinal.models.errors import MissingPackageError

__all__ = ["require_train_extra"]

# The log of a run needs the last two.
_PACKAGES = ("torch", "timm", "matplotlib", "tensorboard")


def require_train_extra(purpose: str) -> None:
    """Refuse a command that needs torch where it is not installed.

    Args:
        purpose: What it is needed for, for people.

    Raises:
        MissingPackageError: One of its packages is not installed.
    """
    for package in _PACKAGES:
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise MissingPackageError(package, "train", purpose) from error
