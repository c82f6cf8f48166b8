"""Evaluation: retrieval metrics, clustering, and the protocols of public test sets."""

from models.evaluation.metrics import RetrievalMetrics, auroc, retrieval_metrics

__all__ = ["RetrievalMetrics", "auroc", "retrieval_metrics"]
