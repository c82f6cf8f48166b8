"""Pipeline variants: the pipelines that a comparison tries on one gallery, the present one first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from vicinal.indexer.errors import GalleryNotRefinedError
from vicinal.indexer.graph.neighbor_graph import N_NEIGHBORS
from vicinal.models.refiner_manifest import Sides
from vicinal.service.errors import RequestError
from vicinal.service.matcher.matcher import Matcher
from vicinal.service.scoring.pipeline import Pipeline, Refine, Rerank, RerankMethod, choose_pipeline

__all__ = ["VariantOptions", "variant_pipelines"]

_MOST_VARIANTS = 64
_SIDES: tuple[Sides, ...] = ("off", "gallery", "query", "both")
Neighbors = Annotated[int, Field(ge=2, le=N_NEIGHBORS)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class VariantOptions(BaseModel):
    """Which pipelines are tried: every combination, and the present one.

    Attributes:
        refine: What they refine; all that bundle and version can when None.
        rerank: How they re-rank.
        k: Neighborhoods of contextual re-ranking.
        beta: Weights of the contextual similarity.
        k1: Neighbors that can be reciprocal.
        k2: Items over which encodings are averaged; combinations with k2 above k1 are left out.
        lam: Weights of the similarity in k-reciprocal re-ranking.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    refine: tuple[Sides, ...] | None = Field(
        None, description="What is refined; all that bundle and version can when null."
    )
    rerank: tuple[RerankMethod, ...] = Field(
        ("off", "contextual", "k_reciprocal"), min_length=1, description="How variants re-rank."
    )
    k: tuple[Neighbors, ...] = Field((4, 8), description="Contextual: neighborhoods.")
    beta: tuple[Share, ...] = Field((0.1, 0.3), description="Contextual: weights.")
    k1: tuple[Neighbors, ...] = Field((8, 20), description="k-reciprocal: neighbors that can be reciprocal.")
    k2: tuple[Annotated[int, Field(ge=1, le=N_NEIGHBORS + 1)], ...] = Field(
        (3, 6), description="k-reciprocal: items that encodings are averaged over."
    )
    lam: tuple[Share, ...] = Field((0.3,), description="k-reciprocal: weights of the similarity.")

    @model_validator(mode="after")
    def _not_too_many(self) -> VariantOptions:
        n = len(self.refine or _SIDES) * sum(1 for _ in self.reranks(Rerank()))
        if not 1 <= n <= _MOST_VARIANTS:
            raise ValueError(f"these are {n} pipelines, expected 1 to {_MOST_VARIANTS}")
        return self

    def reranks(self, present: Rerank) -> Iterator[Rerank]:
        """Every way to re-rank; what is not varied is taken from the present one."""
        if "off" in self.rerank:
            yield present.model_copy(update={"method": "off"})
        if "contextual" in self.rerank:
            for k, beta in product(self.k, self.beta):
                yield present.model_copy(update={"method": "contextual", "k": k, "beta": beta})
        if "k_reciprocal" in self.rerank:
            for k1, k2, lam in product(self.k1, self.k2, self.lam):
                if k2 <= k1:
                    chosen = {"method": "k_reciprocal", "k1": k1, "k2": k2, "lam": lam}
                    yield present.model_copy(update=chosen)


def variant_pipelines(matcher: Matcher, options: VariantOptions) -> tuple[list[Pipeline], dict[str, str]]:
    """The pipelines to try, the present one first, and sides that are left out, each with its reason.

    Args:
        matcher: The gallery.
        options: Which pipelines are tried.

    Raises:
        RefinerNotFoundError: A refinement was asked for, and the bundle has no refiner.
        GalleryNotRefinedError: One was asked for that the version's items never had.
    """
    left_out: dict[str, str] = {}
    found = {matcher.pipeline.key: matcher.pipeline}
    for sides in options.refine or _possible(matcher):
        try:
            refine = _refine(matcher, sides)
        except GalleryNotRefinedError as error:
            if options.refine is not None:
                raise
            left_out[sides] = str(error)
            continue
        for rerank in options.reranks(matcher.pipeline.rerank):
            pipeline = Pipeline(refine=refine, rerank=rerank)
            found.setdefault(pipeline.key, pipeline)
    if len(found) < 2:
        raise RequestError("there is no pipeline to compare with the present one: name more variants")
    return list(found.values()), left_out


def _possible(matcher: Matcher) -> tuple[Sides, ...]:
    return _SIDES if matcher.embedder.bundle.manifest.refiner is not None else ("off",)


def _refine(matcher: Matcher, sides: Sides) -> Refine:
    chosen = choose_pipeline(matcher.pipeline, "auto", refine=sides, bundle=matcher.embedder.bundle)
    matcher.refinement(chosen)
    return chosen.refine
