"""The `train` extra: its packages are asked for before anything of it is imported."""

from __future__ import annotations

import importlib

from vicinal.models.errors import MissingPackageError

__all__ = ["require_train_extra"]


def require_train_extra(purpose: str) -> None:
    """Refuse a command that needs torch where it is not installed.

    Args:
        purpose: What it is needed for, for people.

    Raises:
        MissingPackageError: torch or timm is not installed.
    """
    try:
        importlib.import_module("timm")
    except ImportError as error:
        raise MissingPackageError("torch and timm", "train", purpose) from error
