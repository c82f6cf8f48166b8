"""Evaluation: retrieval metrics, clustering, and judged landmark sets, all without torch."""

from vicinal.models.evaluation.clustering import clustering_nmi, nmi
from vicinal.models.evaluation.metrics import RetrievalMetrics, auroc, average_precisions, retrieval_metrics
from vicinal.models.evaluation.open_set import (
    OpenSetFigures,
    OpenSetRoles,
    deal_roles,
    fnir_at_fpir,
    open_set_figures,
)
from vicinal.models.evaluation.report import Evaluation, EvaluationSettings, evaluate
from vicinal.models.evaluation.revisited import JudgedMetrics, judged_metrics

__all__ = [
    "Evaluation",
    "EvaluationSettings",
    "JudgedMetrics",
    "OpenSetFigures",
    "OpenSetRoles",
    "RetrievalMetrics",
    "auroc",
    "average_precisions",
    "clustering_nmi",
    "deal_roles",
    "evaluate",
    "fnir_at_fpir",
    "judged_metrics",
    "nmi",
    "open_set_figures",
    "retrieval_metrics",
]
