"""Answers: what a search says, and by which threshold it was decided."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from vicinal.service.matcher.explanation import Explanation
from vicinal.service.thresholds.decision import Threshold

__all__ = ["Answer", "Candidate"]


@dataclass(frozen=True)
class Candidate:
    """One scored item.

    Attributes:
        rank: From 1.
        score: Final score in [0, 1].
        similarity: Cosine of the embeddings that were matched.
        initial_similarity: Cosine of the initial embeddings.
        contextual_similarity: Share of common neighbors in [0, 1]; None when re-ranking is off.
        margin: Score minus threshold; None without a threshold.
    """

    id: str
    label: str | None
    metadata: dict[str, Any]
    uri: str
    rank: int
    score: float
    similarity: float
    initial_similarity: float
    contextual_similarity: float | None
    margin: float | None


@dataclass(frozen=True)
class Answer:
    """Answer to one query.

    Attributes:
        no_match: True when nothing reaches the threshold; None when there is no threshold to decide by.
        top_score: Best score of all; None where nothing could be compared.
        matches: Candidates whose score reaches the threshold, best first.
        candidates: The best candidates that are no matches; empty unless asked for or undecided.
        version: The built version that was searched.
        revision: The state of its live changes that was searched; two answers with one are of one state.
        n_searched: Number of items that could have been matches.
        milliseconds: Time by stage; in a batch, of the whole batch.
        pipeline_source: What named the pipeline: the `request`, a `comparison` that was put in force for the
            gallery, or the `settings`.
        explanation: What the refiner does with the query; None unless asked for.
    """

    no_match: bool | None
    top_score: float | None
    matches: list[Candidate]
    candidates: list[Candidate]
    threshold: Threshold
    gallery: str
    version: int
    revision: int
    n_searched: int
    bundle: str
    pipeline: str
    milliseconds: dict[str, float] = field(default_factory=dict)
    pipeline_source: Literal["request", "comparison", "settings"] = "settings"
    explanation: Explanation | None = None
