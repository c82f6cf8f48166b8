"""Evaluation: retrieval metrics, clustering, and judged landmark sets, all without torch."""

from models.evaluation.clustering import clustering_nmi, nmi
from models.evaluation.metrics import RetrievalMetrics, auroc, retrieval_metrics
from models.evaluation.report import Evaluation, EvaluationSettings, evaluate
from models.evaluation.revisited import JudgedMetrics, judged_metrics

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
