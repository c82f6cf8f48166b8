"""Training: networks and refiners, their losses, data sets, measurements and files (`train` extra)."""

from vicinal.training.train_extra import require_train_extra

__all__ = ["require_train_extra"]
