"""Pipeline: the settings that decide how a score is made, and so what a threshold means.

A choice, else that of the settings, is what searches use that ask for nothing else; it holds for the bundle
and the refiner that it was made with. Its threshold is put in force before it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import quote

from pydantic import Field, ValidationError, model_validator

from vicinal.calibration.advice import advise
from vicinal.calibration.frozen import Frozen
from vicinal.indexer.graph.neighbor_graph import N_NEIGHBORS
from vicinal.indexer.state import DamagedRowError, Rows, state_of
from vicinal.indexer.state.schema import documents
from vicinal.indexer.state.state import Cached
from vicinal.models.bundle import ModelBundle
from vicinal.models.refiner_manifest import Sides
from vicinal.refine.errors import RefinementError, RefinerNotFoundError
from vicinal.service.errors import CalibrationRecordError, RequestError

RerankMethod = Literal["off", "contextual"]

GroupScore = Literal["max", "lda", "gone"]
_LONGEST_KEY = 256
# Scores of groups that are no more, and what records say beside them.
_GONE_SCORES = ("mean", "lme", "vote", "share", "learned")
_GONE_SETTINGS = ("m", "temperature", "k", "weights")


class Refine(Frozen):
    """Refinement of embeddings by the bundle's refiner, in front of the search.

    Attributes:
        sides: `gallery`: the query as it is, among the refined items; `query`: the refined query, among the
            items as they are; `both`; `off`.
        steps: Steps of the refiner; 0 when off.
        refiner: Fingerprint of the refiner; empty when off.
    """

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
        """Tell whether the items are refined."""
        return self.sides in ("gallery", "both")

    @property
    def of_query(self) -> bool:
        """Tell whether the query is refined."""
        return self.sides in ("query", "both")


class Rerank(Frozen):
    """Re-ranking of the candidates: off, unless settings, a comparison or a refiner's validation chose it.

    The defaults of `contextual` are chosen by `benchmarks/quality/rerank_settings.py`.

    Attributes:
        method: `contextual` (CSO, appendix I.5), or `off`: the score is then `exp(2 s - 2)`. Where `k`,
            `beta` or `eps` are named without a method, it is `contextual`.
        k: Contextual: neighborhood size, the query itself counted; at most about the usual number of images a
            class.
        beta: Contextual: weight of the contextual similarity, in [0, 1].
        eps: Contextual: slack of the neighborhood on the squared distance.
    """

    method: RerankMethod = "off"
    k: int = Field(8, ge=2, le=N_NEIGHBORS)
    beta: float = Field(0.1, ge=0.0, le=1.0)
    eps: float = Field(0.05, ge=0.0, le=4.0)

    @model_validator(mode="before")
    @classmethod
    def _is_named_by_its_settings(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        # Records may hold settings of k-reciprocal re-ranking beside those of their own.
        named = {name: value for name, value in given.items() if name not in ("k1", "k2", "lam")}
        if "method" not in named and named.keys() & {"k", "beta", "eps"}:
            return {**named, "method": "contextual"}
        return named

    @property
    def n_listed(self) -> int:
        """Neighbors of an item that its list has to hold; 0 when off."""
        return 0 if self.method == "off" else self.k - 1

    @property
    def context_weight(self) -> float:
        """Weight of what is no similarity of the pair itself, in [0, 1]."""
        return 0.0 if self.method == "off" else self.beta


class Group(Frozen):
    """Decision by groups of items: a product, a person, a place.

    How groups are scored comes with the calibration in force for `by`.

    Attributes:
        by: `label`, or the metadata key whose equal values make a group.
        score: `max`, the score of its best item; or `lda`, that of a label by the gallery's own metric
            (`calibration.lda`), among the labels of the best items. `gone` stands in records for scores that
            are no more.
        metric: SHA-256 of the metric; empty for `max`, and until a calibration has made it.
    """

    by: str = Field(min_length=1, max_length=_LONGEST_KEY)
    score: GroupScore = "max"
    metric: str = Field("", pattern="^([0-9a-f]{64})?$")

    @model_validator(mode="before")
    @classmethod
    def _knows_the_score(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        former = {"score": "gone"} if given.get("score") in _GONE_SCORES else {}
        return {name: given[name] for name in given if name not in _GONE_SETTINGS} | former

    @model_validator(mode="after")
    def _scores_labels(self) -> Group:
        if self.score == "lda" and self.by != "label":
            raise ValueError("the metric scores labels: group by label, or choose the metric cosine")
        if self.metric and self.score != "lda":
            raise ValueError(f"a group score '{self.score}' has no metric")
        return self

    @property
    def key(self) -> str:
        """Text that is equal for groups that score alike, and only for those."""
        return f"group={self.score}" + (f" metric={self.metric[:12]}" if self.metric else "")


class Pipeline(Frozen):
    """All that happens between an embedding and what the threshold is applied to.

    Attributes:
        refine: What is refined.
        rerank: How candidates are re-ranked.
        group: What is decided as one; every item by itself when None.
    """

    refine: Refine = Refine()
    rerank: Rerank = Rerank()
    group: Group | None = None

    @property
    def key(self) -> str:
        """Text that is equal for pipelines that score alike, and only for those."""
        return self.slot if self.group is None else f"{self.slot} {self.group.key}"

    @property
    def slot(self) -> str:
        """The key without the form of the group score: what one calibration at a time is in force for."""
        refine, rerank = self.refine, self.rerank
        parts = [f"rerank={rerank.method}"]
        if refine.sides != "off":
            parts.insert(0, f"refine={refine.sides} steps={refine.steps} refiner={refine.refiner}")
        if rerank.method == "contextual":
            parts.append(f"k={rerank.k} beta={rerank.beta!r} eps={rerank.eps!r}")
        if self.group is not None:
            parts.append(f"group_by={quote(self.group.by, safe='')}")
        return " ".join(parts)

    def is_of_other_refiner(self, other: Pipeline) -> bool:
        """Tell whether nothing but the refiner is different."""
        refiner = {"refiner": other.refine.refiner}
        alike = self.model_copy(update={"refine": self.refine.model_copy(update=refiner)})
        return self.slot != other.slot and alike.slot == other.slot


def service_pipeline(
    given: Pipeline, bundle: ModelBundle, *, refine: str = "auto", steps: int | None = None
) -> Pipeline:
    """The pipeline of a service, which `auto` stands for in its calls. The settings decide how it re-ranks;
    where they do not, the validation of the bundle's refiner does.
    """
    manifest = bundle.manifest.refiner
    decided: Sides = manifest.sides if manifest else "off"
    sides = decided if refine == "auto" else refine
    chosen = _refine(bundle, sides, None if sides == "off" else steps)
    rerank = given.rerank
    if manifest and chosen.sides == decided and "rerank" not in given.model_fields_set:
        rerank = Rerank(method=manifest.rerank)
    return Pipeline(refine=chosen, rerank=rerank, group=given.group)


def choose_pipeline(
    default: Pipeline,
    rerank: str,
    *,
    refine: str = "auto",
    steps: int | None = None,
    group_by: str = "auto",
    bundle: ModelBundle | None = None,
) -> Pipeline:
    """Choose the pipeline of one call; without a bundle nothing but the default can be refined."""
    chosen = default.refine
    if steps is not None or refine not in ("auto", chosen.sides):
        sides = chosen.sides if refine == "auto" else refine
        if steps is None and sides != "off":
            steps = chosen.steps or None
        chosen = _refine(bundle, sides, steps)
    group = _group(default.group, group_by)
    if rerank in ("auto", default.rerank.method):
        return Pipeline(refine=chosen, rerank=default.rerank, group=group)
    if rerank in get_args(RerankMethod):
        method = Rerank.model_validate({**default.rerank.model_dump(), "method": rerank})
        return Pipeline(refine=chosen, rerank=method, group=group)
    raise RequestError(f"rerank is '{rerank}', expected auto, off or contextual")


def starting_threshold(bundle: ModelBundle, pipeline: Pipeline) -> float | None:
    """The threshold that held FPIR 5 % where the bundle was validated; None where that was not tried."""
    manifest, group = bundle.manifest.refiner, pipeline.group
    # The best photo of a group decides as it would alone.
    if manifest is None or (group is not None and group.score != "max"):
        return None
    if pipeline.refine.steps not in (0, manifest.architecture.n_steps):
        return None
    # The validation re-ranked with these settings alone.
    rerank, validated = (Pipeline(rerank=one).slot for one in (pipeline.rerank, Rerank(method="contextual")))
    if pipeline.rerank.method != "off" and rerank != validated:
        return None
    return manifest.starting_threshold(pipeline.refine.sides, pipeline.rerank.method)


def _group(default: Group | None, by: str) -> Group | None:
    if by == "auto" or (default is not None and by == default.by):
        return default
    if by == "off":
        return None
    if not 0 < len(by) <= _LONGEST_KEY:
        raise RequestError(
            f"group_by has {len(by):,} characters: name `label` or a metadata key of 1 to {_LONGEST_KEY}"
        )
    return Group(by=by)


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


logger = logging.getLogger(__name__)

PipelineSource = Literal["settings", "comparison", "calibration"]
# Of the document.
_KIND = "pipeline"


class ChosenPipeline(Frozen):
    """A pipeline that was put in force for a gallery."""

    pipeline: Pipeline
    bundle: str
    comparison: str | None = None  # None where the calibration chose it
    calibration: str
    at: datetime

    @property
    def source(self) -> Literal["comparison", "calibration"]:
        """Kind of record that chose it."""
        return "calibration" if self.comparison is None else "comparison"


@dataclass(frozen=True)
class ActivePipeline:
    """Pipeline that `auto` stands for, and why."""

    pipeline: Pipeline
    source: PipelineSource = "settings"
    chosen: ChosenPipeline | None = None  # The choice that is in force
    reason: str | None = None  # Why a choice that was made does not hold


class PipelineStore:
    """The chosen pipeline of the gallery in a folder."""

    def __init__(self, gallery: Path) -> None:
        self._gallery = gallery
        self._state = state_of(gallery)
        self._chosen = Cached(self._state, self._read)
        self._told: str | None = None

    def chosen(self) -> ChosenPipeline | None:
        """Pipeline that was put in force; None where the settings decide."""
        return self._chosen.get()

    def _read(self, rows: Rows) -> ChosenPipeline | None:
        try:
            found = rows.first(documents, documents.c.kind == _KIND)
            return None if found is None else ChosenPipeline.model_validate_json(found.content)
        except (DamagedRowError, ValidationError) as error:
            raise CalibrationRecordError(
                f"the pipeline chosen for gallery '{self._gallery.name}' is damaged or of a former form, so "
                "that nobody knows which pipeline is in force: ",
                advise(
                    "let the settings choose by {use_settings()}, then calibrate or use a comparison again",
                    gallery=self._gallery.name,
                ),
            ) from error

    def resolve(self, default: Pipeline, bundle: ModelBundle) -> ActivePipeline:
        """Find the pipeline that `auto` stands for."""
        try:
            chosen = self.chosen()
        except CalibrationRecordError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            reason: str | None = str(error)
        else:
            if chosen is None:
                return ActivePipeline(default)
            reason = _mismatch(chosen, bundle)
            if reason is None:
                # A calibration chooses no other refinement than what there is.
                refine = chosen.pipeline.refine if chosen.comparison else default.refine
                pipeline = chosen.pipeline.model_copy(update={"refine": refine})
                return ActivePipeline(pipeline, chosen.source, chosen)
        if reason != self._told:
            self._told = reason
            logger.warning("%s", reason)
        return ActivePipeline(default, reason=reason)

    def put_in_force(self, chosen: ChosenPipeline) -> None:
        """Let searches that ask for nothing else use a pipeline from their next request on."""
        row = {"kind": _KIND, "id": "", "at": chosen.at.timestamp(), "content": chosen.model_dump_json()}
        with self._state.changing() as rows:
            rows.put(documents, row)

    def clear(self) -> None:
        """Let the settings decide again."""
        with self._state.changing() as rows:
            rows.remove(documents, documents.c.kind == _KIND)


def _mismatch(chosen: ChosenPipeline, bundle: ModelBundle) -> str | None:
    """Reason for which a choice does not hold for a bundle."""
    again = "compare again" if chosen.comparison else "calibrate again"
    begin = (
        f"the pipeline of {chosen.source} {chosen.comparison or chosen.calibration} is not used: it was "
        "chosen with"
    )
    if chosen.bundle != bundle.fingerprint:
        return f"{begin} bundle {chosen.bundle}, this is {bundle.fingerprint}: {again}"
    manifest = bundle.manifest.refiner
    refiner = "none" if manifest is None else manifest.fingerprint
    if chosen.pipeline.refine.sides != "off" and chosen.pipeline.refine.refiner != refiner:
        return f"{begin} refiner {chosen.pipeline.refine.refiner}, this is {refiner}: {again}"
    return None
