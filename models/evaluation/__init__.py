"""Evaluation: retrieval metrics, clustering, and judged landmark sets, all without torch."""

from vicinal.models.evaluation.clustering import clustering_nmi, nmi
from vicinal.models.evaluation.metrics import RetrievalMetrics, auroc, average_precisions, retrieval_metrics
from vicinal.models.evaluation.open_set import (
    OpenSetRoles,
    deal_roles,
    fnir_at_fpir,
    map_at_r_by_halves,
    threshold_at_fpir,
)
from vicinal.models.evaluation.report import Evaluation, EvaluationSettings, evaluate
from vicinal.models.evaluation.revisited import JudgedMetrics, judged_metrics

__all__ = [
    "Evaluation",
    "EvaluationSettings",
    "JudgedMetrics",
    "OpenSetRoles",
    "RetrievalMetrics",
    "auroc",
    "average_precisions",
    "clustering_nmi",
    "deal_roles",
    "evaluate",
    "fnir_at_fpir",
    "judged_metrics",
    "map_at_r_by_halves",
    "nmi",
    "retrieval_metrics",
    "threshold_at_fpir",
]
