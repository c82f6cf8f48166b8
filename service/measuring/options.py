"""Calibration options: which pipeline a call is about, and what to calibrate it for."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StrictInt, model_validator

from vicinal.calibration import CalibrationError, Target
from vicinal.indexer.sources import SourceOptions
from vicinal.service.choices import GroupChoice, RefineChoice, RerankChoice


def _target_text(text: str) -> str:
    try:
        Target.parse(text)
    except CalibrationError as error:
        raise ValueError(str(error)) from error
    return text


TargetText = Annotated[str, AfterValidator(_target_text)]
"""A text that `calibration.Target.parse` reads, such as `fpir=5%`."""


class PipelineChoice(BaseModel):
    """The pipeline that a call is about.

    Attributes:
        refine: What it refines.
        steps: Steps of the refiner.
        rerank: How it re-ranks.
        group_by: What it decides as one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    refine: RefineChoice = Field("auto", description="What the pipeline refines; `auto` is the service's.")
    steps: StrictInt | None = Field(None, ge=1, description="Steps of the refiner; the service's when null.")
    rerank: RerankChoice = Field("auto", description="How it re-ranks; `auto` is the service's.")
    group_by: str = Field(
        "auto",
        min_length=1,
        description="What it decides as one: `label`, a metadata key, or `off`; `auto` is the service's.",
    )


class QuerySourceOptions(BaseModel):
    """How labelled queries of a source are read; see `SourceOptions`.

    Attributes:
        label_from: Where labels come from.
        path_column: Column of paths or images.
        label_column: Column of labels.
        id_column: Column of ids.
        embedding_column: Column of ready embeddings.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    label_from: str | None = Field(
        None,
        description="Where labels of the queries come from: `folder` (the topmost), `column` or "
        "`regex:PATTERN`; when null the column of a manifest, the folder of a folder.",
    )
    path_column: str | None = Field(None, description="Column of their paths or images, `path` when null.")
    label_column: str | None = Field(None, description="Column of their labels, `label` when null.")
    id_column: str | None = Field(None, description="Column of their ids, `id` when null.")
    embedding_column: str | None = Field(
        None, description="Column of ready embeddings, `embedding` when null."
    )

    @model_validator(mode="after")
    def _labels_can_be_taken(self) -> QuerySourceOptions:
        _ = self.source_options
        return self

    @property
    def source_options(self) -> SourceOptions:
        """The options of the source."""
        names = ("label_from", "path_column", "label_column", "id_column", "embedding_column")
        return SourceOptions(**{name: getattr(self, name) for name in names})


class CalibrationOptions(PipelineChoice):
    """What to calibrate, and for which target.

    Attributes:
        target: Such as `fpir=5%`; see `calibration.Target.parse`.
        max_queries: Most queries that are scored; more are sampled.
        coarse_labels: Coarse label of each label, to tell near from far queries.
        coarse_by: Metadata column that holds the coarse label, in place of the above.
        visits_by: What tells which photos were taken together, which are never each other's mates: `auto` to
            look for it, `none`, or the metadata column of the visit or session.
        group_score: How the scores of a group's items become one, where groups are decided.
        absent: Expected share of searches for things that the gallery lacks.
        activate: Whether searches use the threshold as soon as it is there; None where it promises no less
            than the one in force.
    """

    target: TargetText = Field(
        "fpir=5%",
        description="`fpir=5%`, `fnir=20%`, `far=0.001`, `frr=10%`, `precision=95%`, `utility=mean` or "
        "`utility=worst`.",
    )
    max_queries: StrictInt = Field(2000, ge=1, le=100_000, description="Sample at most this many queries.")
    coarse_labels: dict[str, str] | None = Field(
        None, description="Coarse label of each label, to tell near from far queries without a mate."
    )
    coarse_by: str | None = Field(
        None, description="Metadata column that holds the coarse label, in place of `coarse_labels`."
    )
    visits_by: str = Field(
        "auto",
        min_length=1,
        description="What tells which photos were taken together, which are never mates: `auto`, `none` or a "
        "metadata column.",
    )
    group_score: GroupChoice = Field(
        "auto",
        description="How the scores of a group's items become one, where groups are decided; `auto` tries "
        "all and keeps `max`, the best photo, unless another is surely better.",
    )
    absent: float | None = Field(
        None,
        ge=0.0,
        lt=1.0,
        description="Share of real searches for things that the gallery lacks, which a precision is for; "
        "when null that of the queries, and half where every query is tried both ways.",
    )
    activate: StrictBool | None = Field(
        None,
        description="Whether searches use the threshold as soon as it is there; when null they do unless it "
        "promises less than the one in force, which `objection` in the job's result then says.",
    )

    @model_validator(mode="after")
    def _one_kind_of_coarse_labels(self) -> CalibrationOptions:
        if self.coarse_labels is not None and self.coarse_by is not None:
            raise ValueError("coarse labels come as coarse_labels or by coarse_by: name one of them")
        return self
