"""Losses of metric learning; every loss is `loss(embeddings, labels) -> scalar` (torch)."""

from models.losses.registry import Loss, available_losses, build_loss

__all__ = ["Loss", "available_losses", "build_loss"]
