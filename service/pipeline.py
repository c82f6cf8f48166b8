"""Pipeline: the settings that decide how a score is made, and so what a threshold means."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from indexer.neighbor_graph import N_NEIGHBORS
from service.errors import RequestError

__all__ = ["Pipeline", "Rerank", "RerankChoice", "choose_pipeline"]

RerankChoice = Literal["auto", "off", "contextual"]


class Rerank(BaseModel):
    """Re-ranking of the candidates; the defaults are chosen by `benchmarks/rerank_settings.py`.

    Attributes:
        method: `contextual` (CSO, appendix I.5), or `off`: the score is then `exp(2 s - 2)`.
        k: Neighborhood size, the query itself counted; at most about the usual number of images a class.
        beta: Weight of the contextual similarity, in [0, 1].
        eps: Slack of the neighborhood on the squared distance.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: Literal["off", "contextual"] = "contextual"
    k: int = Field(8, ge=2, le=N_NEIGHBORS)
    beta: float = Field(0.1, ge=0.0, le=1.0)
    eps: float = Field(0.05, ge=0.0, le=4.0)


class Pipeline(BaseModel):
    """All that happens between an embedding and its scores."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rerank: Rerank = Rerank()

    @property
    def key(self) -> str:
        """Text that is equal for pipelines that score alike, and only for those."""
        rerank = self.rerank
        if rerank.method == "off":
            return "rerank=off"
        return f"rerank={rerank.method} k={rerank.k} beta={rerank.beta!r} eps={rerank.eps!r}"


def choose_pipeline(default: Pipeline, rerank: str) -> Pipeline:
    """The pipeline of one call.

    Args:
        default: The service's pipeline, which `auto` stands for.
        rerank: `auto`, `off` or `contextual`.

    Raises:
        RequestError: There is no such method.
    """
    if rerank == "auto" or rerank == default.rerank.method:
        return default
    if rerank in ("off", "contextual"):
        return Pipeline.model_validate({"rerank": {**default.rerank.model_dump(), "method": rerank}})
    raise RequestError(f"rerank is '{rerank}', expected auto, off or contextual")
