"""Evaluation: retrieval metrics and clustering, all without torch."""

from vicinal.training.evaluation.metrics import (
    RetrievalMetrics,
    auroc,
    clustering_nmi,
    nmi,
    retrieval_metrics,
)
from vicinal.training.evaluation.open_set import (
    deal_roles,
    fnir_at_fpir,
    threshold_at_fpir,
)
from vicinal.training.evaluation.report import EvaluationSettings, evaluate

__all__ = [
    "EvaluationSettings",
    "RetrievalMetrics",
    "auroc",
    "clustering_nmi",
    "deal_roles",
    "evaluate",
    "fnir_at_fpir",
    "nmi",
    "retrieval_metrics",
    "threshold_at_fpir",
]
