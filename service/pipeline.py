"""Pipeline: the settings that decide how a score is made, and so what a threshold means."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from indexer.neighbor_graph import N_NEIGHBORS
from refine.k_reciprocal import DEFAULT_K1
from service.errors import RequestError

__all__ = ["Pipeline", "Rerank", "RerankChoice", "RerankMethod", "choose_pipeline"]

RerankMethod = Literal["off", "contextual", "k_reciprocal"]
RerankChoice = Literal["auto", "off", "contextual", "k_reciprocal"]


class Rerank(BaseModel):
    """Re-ranking of the candidates.

    The defaults of `contextual` are chosen by `benchmarks/rerank_settings.py`, those of `k_reciprocal` are
    the paper's; `benchmarks/k_reciprocal_settings.py` says what others do.

    Attributes:
        method: `contextual` (CSO, appendix I.5), `k_reciprocal` (Zhong et al., CVPR 2017, see
            `refine.k_reciprocal`), or `off`: the score is then `exp(2 s - 2)`.
        k: Contextual: neighborhood size, the query itself counted; at most about the usual number of images a
            class.
        beta: Contextual: weight of the contextual similarity, in [0, 1].
        eps: Contextual: slack of the neighborhood on the squared distance.
        k1: k-reciprocal: neighbors that can be reciprocal; smaller where classes are small. Galleries store
            the encodings of the default; those of another k1 are computed with every query.
        k2: k-reciprocal: items, the query itself counted, over which encodings are averaged; 1 does not
            average.
        lam: k-reciprocal: weight of the similarity, in [0, 1].
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: RerankMethod = "contextual"
    k: int = Field(8, ge=2, le=N_NEIGHBORS)
    beta: float = Field(0.1, ge=0.0, le=1.0)
    eps: float = Field(0.05, ge=0.0, le=4.0)
    k1: int = Field(DEFAULT_K1, ge=2, le=N_NEIGHBORS)
    k2: int = Field(6, ge=1, le=N_NEIGHBORS + 1)
    lam: float = Field(0.3, ge=0.0, le=1.0)

    @property
    def n_listed(self) -> int:
        """Neighbors of an item that its list has to hold; 0 when off."""
        return {"off": 0, "contextual": self.k - 1, "k_reciprocal": max(self.k1, self.k2 - 1)}[self.method]

    @property
    def reach(self) -> int:
        """Nearest items of a query that decide its scores; all that are tied with the last count too."""
        return {"off": 0, "contextual": self.k - 1, "k_reciprocal": max(self.k1 + 1, self.k2 - 1)}[
            self.method
        ]

    @property
    def slack(self) -> float:
        """Squared distance by which those may lie beyond the last of them."""
        return self.eps if self.method == "contextual" else 0.0

    @property
    def context_weight(self) -> float:
        """Weight of what is no similarity of the pair itself, in [0, 1]."""
        return {"off": 0.0, "contextual": self.beta, "k_reciprocal": 1.0 - self.lam}[self.method]


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
        if rerank.method == "k_reciprocal":
            return f"rerank=k_reciprocal k1={rerank.k1} k2={rerank.k2} lam={rerank.lam!r}"
        return f"rerank={rerank.method} k={rerank.k} beta={rerank.beta!r} eps={rerank.eps!r}"


def choose_pipeline(default: Pipeline, rerank: str) -> Pipeline:
    """The pipeline of one call.

    Args:
        default: The service's pipeline, which `auto` stands for.
        rerank: `auto`, `off`, `contextual` or `k_reciprocal`.

    Raises:
        RequestError: There is no such method.
    """
    if rerank == "auto" or rerank == default.rerank.method:
        return default
    if rerank in get_args(RerankMethod):
        return Pipeline.model_validate({"rerank": {**default.rerank.model_dump(), "method": rerank}})
    raise RequestError(f"rerank is '{rerank}', expected auto, off, contextual or k_reciprocal")
