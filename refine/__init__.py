"""Refinement: the context refiner and re-ranking; its training, with torch, in `training.refiner`."""

from vicinal.refine.context_refiner import ContextRefiner, Refinement
from vicinal.refine.reranking import contextual_scores, dense_contextual_scores, rerank

__all__ = ["ContextRefiner", "Refinement", "contextual_scores", "dense_contextual_scores", "rerank"]
