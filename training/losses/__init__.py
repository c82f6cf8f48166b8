"""Losses of metric learning; every loss is `loss(embeddings, labels) -> scalar` (torch)."""
