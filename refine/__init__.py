"""Refinement of search results: contextual re-ranking."""

from refine.reranking import contextual_scores, dense_contextual_scores

__all__ = ["contextual_scores", "dense_contextual_scores"]
