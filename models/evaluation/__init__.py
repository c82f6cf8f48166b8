"""Evaluation: retrieval metrics, clustering, and judged landmark sets, all without torch."""

from vicinal.models.evaluation.clustering import clustering_nmi, nmi
from vicinal.models.evaluation.metrics import RetrievalMetrics, auroc, retrieval_metrics
from vicinal.models.evaluation.report import Evaluation, EvaluationSettings, evaluate
from vicinal.models.evaluation.revisited import JudgedMetrics, judged_metrics

__all__ = [
    "Evaluation",
    "EvaluationSettings",
    "JudgedMetrics",
    "RetrievalMetrics",
    "auroc",
    "clustering_nmi",
    "evaluate",
    "judged_metrics",
    "nmi",
    "retrieval_metrics",
]
