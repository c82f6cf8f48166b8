"""Pipeline: the settings that decide how a score is made, and so what a threshold means."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from vicinal.indexer.graph.neighbor_graph import N_NEIGHBORS
from vicinal.models.bundle import ModelBundle
from vicinal.models.refiner_manifest import Sides
from vicinal.refine.errors import RefinementError, RefinerNotFoundError
from vicinal.refine.k_reciprocal import DEFAULT_K1
from vicinal.service.errors import RequestError

__all__ = [
    "Pipeline",
    "Refine",
    "RefineChoice",
    "Rerank",
    "RerankChoice",
    "RerankMethod",
    "choose_pipeline",
    "service_pipeline",
]

RefineChoice = Literal["auto", "off", "gallery", "query", "both"]

RerankMethod = Literal["off", "contextual", "k_reciprocal"]
RerankChoice = Literal["auto", "off", "contextual", "k_reciprocal"]


class Refine(BaseModel):
    """Refinement of embeddings by the bundle's refiner, in front of the search.

    Attributes:
        sides: `gallery`: the query as it is, among the refined items; `query`: the refined query, among the
            items as they are; `both`; `off`.
        steps: Steps of the refiner; 0 when off.
        refiner: Fingerprint of the refiner; empty when off.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    sides: Sides = "off"
    steps: int = Field(0, ge=0)
    refiner: str = ""

    @model_validator(mode="after")
    def _names_a_refiner(self) -> Refine:
        is_off = self.sides == "off"
        if is_off != (self.steps == 0) or is_off != (self.refiner == ""):
            raise ValueError(f"refine {self.sides} with {self.steps} steps of refiner '{self.refiner}'")
        return self

    @property
    def of_gallery(self) -> bool:
        """Whether the items are refined."""
        return self.sides in ("gallery", "both")

    @property
    def of_query(self) -> bool:
        """Whether the query is refined."""
        return self.sides in ("query", "both")


class Rerank(BaseModel):
    """Re-ranking of the candidates.

    The defaults of `contextual` are chosen by `benchmarks/quality/rerank_settings.py`, those of
    `k_reciprocal` are the paper's; `benchmarks/quality/k_reciprocal_settings.py` says what others do.

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

    refine: Refine = Refine()
    rerank: Rerank = Rerank()

    @property
    def key(self) -> str:
        """Text that is equal for pipelines that score alike, and only for those."""
        refine = self.refine
        if refine.sides == "off":
            return self._rerank_key
        return f"refine={refine.sides} steps={refine.steps} refiner={refine.refiner} {self._rerank_key}"

    @property
    def _rerank_key(self) -> str:
        rerank = self.rerank
        if rerank.method == "off":
            return "rerank=off"
        if rerank.method == "k_reciprocal":
            return f"rerank=k_reciprocal k1={rerank.k1} k2={rerank.k2} lam={rerank.lam!r}"
        return f"rerank={rerank.method} k={rerank.k} beta={rerank.beta!r} eps={rerank.eps!r}"

    def is_of_other_refiner(self, other: Pipeline) -> bool:
        """Whether nothing but the refiner is different."""
        refiner = {"refiner": other.refine.refiner}
        alike = self.model_copy(update={"refine": self.refine.model_copy(update=refiner)})
        return self.key != other.key and alike.key == other.key


def service_pipeline(
    given: Pipeline, bundle: ModelBundle, *, refine: str = "auto", steps: int | None = None
) -> Pipeline:
    """The pipeline of a service, which `auto` stands for in its calls.

    Args:
        given: Settings of the re-ranking. Where they name none, a bundle that is refined as its validation
            decided is also re-ranked as that decided.
        bundle: The service's bundle.
        refine: Sides; `auto` follows the bundle's validation, and is off without a refiner.
        steps: Steps of the refiner; None for all.

    Raises:
        RefinerNotFoundError: The bundle has no refiner, and refinement was asked for.
        RefinementError: The refiner has fewer steps.
    """
    manifest = bundle.manifest.refiner
    decided: Sides = manifest.sides if manifest else "off"
    sides = decided if refine == "auto" else refine
    chosen = _refine(bundle, sides, None if sides == "off" else steps)
    rerank = given.rerank
    if manifest and chosen.sides == decided and "rerank" not in given.model_fields_set:
        rerank = Rerank.model_validate({**rerank.model_dump(), "method": manifest.rerank})
    return Pipeline(refine=chosen, rerank=rerank)


def choose_pipeline(
    default: Pipeline,
    rerank: str,
    *,
    refine: str = "auto",
    steps: int | None = None,
    bundle: ModelBundle | None = None,
) -> Pipeline:
    """The pipeline of one call.

    Args:
        default: The service's pipeline, which `auto` stands for.
        rerank: `auto`, `off`, `contextual` or `k_reciprocal`.
        refine: `auto`, `off`, `gallery`, `query` or `both`.
        steps: Steps of the refiner; None for those of the default, or all.
        bundle: The service's bundle; without one nothing but the default can be refined.

    Raises:
        RequestError: There is no such method, or no such sides.
        RefinerNotFoundError: The bundle has no refiner, and refinement was asked for.
        RefinementError: The refiner has fewer steps.
    """
    chosen = default.refine
    if steps is not None or refine not in ("auto", chosen.sides):
        sides = chosen.sides if refine == "auto" else refine
        if steps is None and sides != "off":
            steps = chosen.steps or None
        chosen = _refine(bundle, sides, steps)
    if rerank in ("auto", default.rerank.method):
        return default if chosen == default.refine else Pipeline(refine=chosen, rerank=default.rerank)
    if rerank in get_args(RerankMethod):
        method = Rerank.model_validate({**default.rerank.model_dump(), "method": rerank})
        return Pipeline(refine=chosen, rerank=method)
    raise RequestError(f"rerank is '{rerank}', expected auto, off, contextual or k_reciprocal")


def _refine(bundle: ModelBundle | None, sides: str, steps: int | None) -> Refine:
    if sides not in get_args(Sides):
        raise RequestError(f"refine is '{sides}', expected auto, off, gallery, query or both")
    if sides == "off":
        if steps is not None:
            raise RequestError(f"steps is {steps}, but nothing is refined: name the sides with refine")
        return Refine()
    if bundle is None or bundle.manifest.refiner is None:
        raise RefinerNotFoundError(bundle.name if bundle else "none")
    manifest = bundle.manifest.refiner
    n_steps = manifest.architecture.n_steps
    if steps is not None and not 1 <= steps <= n_steps:
        raise RefinementError(
            f"the refiner of bundle '{bundle.name}' has {n_steps} steps, got {steps}: use 1 to {n_steps}"
        )
    chosen = {"sides": sides, "steps": steps or n_steps, "refiner": manifest.fingerprint}
    return Refine.model_validate(chosen)
