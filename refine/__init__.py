"""Refinement: the context refiner and re-ranking; the refiner's training in modules of its own."""

from refine.context_refiner import ContextRefiner, Refinement
from refine.reranking import contextual_scores, dense_contextual_scores

__all__ = ["ContextRefiner", "Refinement", "contextual_scores", "dense_contextual_scores"]
