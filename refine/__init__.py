"""Refinement: the context refiner and re-ranking; the refiner's training in modules of its own."""

from vicinal.refine.context_refiner import ContextRefiner, Refinement
from vicinal.refine.reranking import contextual_scores, dense_contextual_scores

__all__ = ["ContextRefiner", "Refinement", "contextual_scores", "dense_contextual_scores"]
