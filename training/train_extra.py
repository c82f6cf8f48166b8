"""What training needs, which a base installation does without."""

from __future__ import annotations

from importlib.util import find_spec

from vicinal.models.errors import MissingPackageError

# The log of a run needs the last two.
_PACKAGES = ("torch", "timm", "pytorch_metric_learning", "matplotlib", "tensorboard")


def require_train_extra(purpose: str) -> None:
    """Refuse what needs torch where it is not installed.

    Args:
        purpose: What it is needed for, for people.

    Raises:
        MissingPackageError: One of its packages is not installed.
    """
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise MissingPackageError(missing[0], "train", purpose)
