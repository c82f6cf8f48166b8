"""Fields that the requests of several operations share, and how a field stands on the command line."""

from __future__ import annotations

import re
from contextvars import ContextVar
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    PlainSerializer,
    StrictBool,
    StrictFloat,
    StrictInt,
    field_validator,
    model_validator,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from vicinal.indexer.sources import SourceOptions

RefineChoice = Literal["auto", "off", "gallery", "query", "both"]
RerankChoice = Literal["auto", "off", "contextual"]
MetricChoice = Literal["auto", "cosine", "lda"]
OnConflict = Literal["error", "replace", "skip"]

# Whether who asks is told no place of the server.
hides_places: ContextVar[bool] = ContextVar("hides_places", default=False)
# Of an item; empty where it is no address of the web, for who may not see all galleries or change nothing.
ItemUri = Annotated[
    str,
    PlainSerializer(lambda uri: "" if hides_places.get() and not re.match("https?://", uri) else uri),
]


GONE_FIELDS = {
    "activate_if": "`activate` may be no_worse",
    "parquet": "`items()` of a gallery in Python gives items and embeddings",
    "pictures": "decisions that flip are counted for labelled queries",
    "terminal": "--json asks, and --answer says what a search shows",
    **dict.fromkeys(
        ("opis_of", "opis_c", "opis_far", "opis_frr"), "OPIS is that of specificity, over 1 to 10 % FAR"
    ),
}


def refuse_gone(given: Any) -> Any:
    """Refuse fields that went, with what to do instead; requests in records name them by nothing."""
    for name in GONE_FIELDS.keys() & (given.keys() if isinstance(given, dict) else ()):
        if given[name] is not None:
            raise ValueError(f"'{name}' is no more: {GONE_FIELDS[name]}")
        given = {other: value for other, value in given.items() if other != name}
    return given


class CommandOption:
    """Option of the command line, stated in a field's `Annotated`, or in `command_options` of a request that
    inherits it. It stands in `--help` behind `after`; `read` makes the field's value of what was given.
    """

    def __init__(
        self,
        help: str | None = None,  # noqa: A002 (typer's word)
        *flags: str,
        kind: Any = None,
        default: Any = None,
        after: str | None = None,
        read: Callable[[Any], Any] | None = None,
        is_argument: bool = False,
        is_hidden: bool = False,
        **more: Any,
    ) -> None:
        self.help = help
        self.flags = flags
        self.kind = kind
        self.default = default
        self.after = after
        self.read = read
        self.is_argument = is_argument
        self.is_hidden = is_hidden
        self.more = more


class RequestFields(BaseModel, frozen=True, extra="forbid"):
    """A request: fields that are stated once, for every surface."""

    command_options: ClassVar[Mapping[str, CommandOption]] = {}
    # Fields that stand first in `--help`, in this order.
    command_order: ClassVar[Sequence[str]] = ()


class Body(BaseModel, frozen=True, from_attributes=True):
    """Body of an answer, which may be read off the attributes of what it tells of."""


def _target_text(text: str) -> str:
    from vicinal.calibration.errors import CalibrationError
    from vicinal.calibration.targets import Target

    try:
        Target.parse(text)
    except CalibrationError as error:
        raise ValueError(str(error)) from error
    return text


TargetText = Annotated[str, AfterValidator(_target_text)]
"""A text that `calibration.Target.parse` reads, such as `fpir=5%`."""


_WHOSE = CommandOption("Whose threshold; auto is the setting.")


class PipelineChoice(RequestFields):
    """The pipeline that a call is about."""

    refine: Annotated[RefineChoice, _WHOSE] = Field(
        "auto", description="What the pipeline refines; `auto` is the service's."
    )
    steps: Annotated[StrictInt | None, CommandOption("Steps of the refiner.")] = Field(
        None, ge=1, description="Steps of the refiner; the service's when null."
    )
    rerank: Annotated[RerankChoice, _WHOSE] = Field(
        "auto", description="How it re-ranks; `auto` is the service's."
    )
    group_by: Annotated[
        str,
        CommandOption("That of products: label or a metadata key; auto is the setting, off of items."),
    ] = Field(
        "auto",
        min_length=1,
        description="What it decides as one: `label`, a metadata key, or `off`; `auto` is the service's.",
    )


def _order_text(text: str) -> str:
    from vicinal.indexer.filters.order import Order

    Order.parse(text)
    return text


class SearchOptions(RequestFields):
    """Options of a search."""

    limit: Annotated[StrictInt, CommandOption("Most matches to show.")] = Field(
        10, ge=1, description="Most matches in the answer; with groups, most groups."
    )
    threshold: Annotated[
        StrictFloat | None, CommandOption("Decide by this score instead.", min=None, max=None)
    ] = Field(None, ge=0.0, le=1.0, description="Decide by this score instead of the calibrated threshold.")
    refine: Annotated[RefineChoice, CommandOption("What is refined; auto is the setting.")] = Field(
        "auto", description="What is refined with its neighbors; `auto` is the service's setting."
    )
    steps: Annotated[StrictInt | None, CommandOption("Steps of the refiner.")] = Field(
        None, ge=1, description="Steps of the refiner; the service's setting when null."
    )
    rerank: Annotated[RerankChoice, CommandOption("auto is the setting.")] = Field(
        "auto", description="`auto` is the service's setting."
    )
    group_by: Annotated[
        str,
        CommandOption("Decide by products: label or a metadata key; auto is the setting, off by items."),
    ] = Field(
        "auto",
        min_length=1,
        max_length=256,
        description="What is decided as one, such as a product with all its photos: `label`, a metadata "
        "key, or `off`; `auto` is the service's setting.",
    )
    filter: Annotated[
        str | None, CommandOption("What matches fulfil, such as \"label = 'a' AND metadata.price < 50\".")
    ] = Field(
        None,
        max_length=4096,
        description=(
            "What every match fulfils: comparisons (= != < <= > >=, IN, LIKE, BETWEEN, IS NULL) of `id`, "
            "`label` and `metadata.NAME`, joined by AND, OR, NOT and parentheses. It changes no score."
        ),
        examples=["label = 'shoe' AND metadata.price < 50"],
    )
    sort_by: Annotated[
        Annotated[str, AfterValidator(_order_text)] | None,
        CommandOption("Order of the matches: score, added, label or metadata.NAME, ` desc` behind."),
    ] = Field(
        None,
        max_length=1024,
        description="Order of what reaches the threshold: `score` (best first), `added` (oldest first), "
        "`label` or `metadata.NAME`, each with ` desc` behind to turn it around; items without a value come "
        "last. The 100 best, or `limit` if that is more, are sorted and cut to `limit`; `rank` stays that of "
        "the score. Of a group its best photo counts.",
        examples=["metadata.price desc"],
    )
    include_candidates: Annotated[
        StrictBool,
        CommandOption("Also show what is below the threshold.", "--candidates/--no-candidates"),
    ] = Field(False, description="Also list the best candidates below the threshold, apart from the matches.")
    mark_copies: Annotated[StrictBool, CommandOption(is_hidden=True)] = Field(
        False, description="Also say of each item whether it is a copy of a better one of the answer."
    )
    explain: Annotated[StrictBool, CommandOption(is_hidden=True)] = Field(
        False,
        description="Also say what each stage ran on, and what the refiner does with the query, whether the "
        "search uses it or not.",
    )


_PATHS = CommandOption("Column of the paths, or of the images inside; path by default.", metavar="NAME")
_LABELS = CommandOption("Column of the labels; label by default.", metavar="NAME")
_IDS = CommandOption("Column of the ids; id by default.", metavar="NAME")
_EMBEDDINGS = CommandOption("Column of ready embeddings; embedding by default.", metavar="NAME")


class _ReadSource(RequestFields):
    """A source, of which the fields say that have the names of `SourceOptions` how it is read."""

    @property
    def source_options(self) -> SourceOptions:
        """The options of the source."""
        from vicinal.indexer.sources import SourceOptions

        names = {one.name for one in fields(SourceOptions)} & {*type(self).model_fields}
        return SourceOptions(**{name: getattr(self, name) for name in names})


class QuerySource(_ReadSource):
    """Labelled queries of a source, and how it is read."""

    queries: str | None = None
    label_from: Annotated[
        str | None,
        CommandOption(
            "Where labels come from: folder (the topmost), column or regex:PATTERN; by default the column "
            "of a manifest, the folder of a folder.",
            metavar="RULE",
        ),
    ] = Field(
        None,
        description="Where labels of the queries come from: `folder` (the topmost), `column` or "
        "`regex:PATTERN`; when null the column of a manifest, the folder of a folder.",
    )
    path_column: Annotated[str | None, _PATHS] = Field(
        None, description="Column of their paths or images, `path` when null."
    )
    label_column: Annotated[str | None, _LABELS] = Field(
        None, description="Column of their labels, `label` when null."
    )
    id_column: Annotated[str | None, _IDS] = Field(None, description="Column of their ids, `id` when null.")
    embedding_column: Annotated[str | None, _EMBEDDINGS] = Field(
        None, description="Column of ready embeddings, `embedding` when null."
    )

    @model_validator(mode="after")
    def _labels_can_be_taken(self) -> QuerySource:
        if self.label_from is not None:
            _ = self.source_options
        return self


ComparedQueries = Annotated[
    str | None,
    CommandOption(
        "Labelled queries: class subfolders or a manifest. Default: leave one out.",
        kind=Path | None,
        read=str,
    ),
    Field(
        description="Labelled queries below `sources_dir`: folder of class folders, manifest or `.npz` file; "
        "when null, every labelled item that all versions hold alike is left out once.",
    ),
]
_VISITS_BY = CommandOption("As for calibrate; that of the calibration in force.")


class ComparisonOptions(RequestFields):
    """Options of a comparison of variants."""

    target: Annotated[
        TargetText | None,
        CommandOption("What every variant has to hold; by default that of the threshold in force."),
    ] = Field(
        None, description="What every variant is calibrated for; that of the threshold in force when null."
    )
    queries: ComparedQueries = None
    visits_by: Annotated[str | None, _VISITS_BY] = Field(
        None,
        description="What tells which photos were taken together, which are never mates: `auto`, `none` or a "
        "metadata column; as the calibration in force when null.",
    )
    max_queries: Annotated[StrictInt, CommandOption(max=None)] = Field(
        1000, ge=1, le=100_000, description="Sample at most this many queries."
    )
    seed: StrictInt = Field(0, ge=0, description="Seed of the sample and of the draws.")

    _say_what_is_gone = model_validator(mode="before")(refuse_gone)

    @property
    def sources(self) -> list[tuple[str, tuple[str, ...]]]:
        """Its sources, and the kinds of files that each may be beside a manifest."""
        return [] if self.queries is None else [(self.queries, (".npz",))]


class ComparisonFields(QuerySource, ComparisonOptions):
    """Fields of comparing variants and reading the queries."""

    command_order = ("target", "queries", "visits_by", *QuerySource.model_fields)

    queries: ComparedQueries = None


class ItemSource(_ReadSource):
    """A source of items, how it is read, and what becomes of items whose ids are taken."""

    source: str | None = None
    prefix: Annotated[
        str | None,
        CommandOption("Stands before every id; of a folder its own name, '' for none.", metavar="NAME"),
    ] = Field(
        None, description="Stands before every id; the own name of a folder when null, none when empty."
    )
    label_from: Annotated[
        str,
        CommandOption(
            "Where labels come from: folder (the topmost), column, none, regex:PATTERN (its group, in the "
            "path), or auto: the column of a manifest, the folder unless folders look like albums.",
            metavar="RULE",
        ),
    ] = Field(
        "auto",
        description="Where labels come from: `folder` (the topmost), `column`, `none`, `regex:PATTERN` (its "
        "one group, in the path), or `auto`: the column of a manifest, the folder unless folders look like "
        "albums.",
    )
    path_column: Annotated[str | None, _PATHS] = Field(
        None, description="Column of the paths, `path` when null."
    )
    label_column: Annotated[str | None, _LABELS] = Field(
        None, description="Column of the labels, `label` when null."
    )
    id_column: Annotated[str | None, _IDS] = Field(None, description="Column of the ids, `id` when null.")
    embedding_column: Annotated[str | None, _EMBEDDINGS] = Field(
        None, description="Column of ready embeddings, `embedding` when null."
    )
    include_hidden: Annotated[
        StrictBool,
        CommandOption(
            "Also read hidden files and folders: bins, thumbnails, snapshots.", "--include-hidden", kind=bool
        ),
    ] = Field(
        False, description="Also read hidden files and folders: bins, thumbnails and snapshots of systems."
    )
    space: Annotated[
        str | None,
        CommandOption(
            "What made the ready embeddings, such as clip-vit-b32; needed the first time.",
            metavar="NAME[@VERSION]",
        ),
    ] = Field(
        None,
        description="What made the ready embeddings of the source, `NAME` or `NAME@VERSION`; the space of "
        "the gallery when null.",
    )
    on_conflict: Annotated[OnConflict, CommandOption(is_hidden=True)] = Field(
        "error",
        description="What to do with an image whose id belongs to another image of another source; with "
        "`error` nothing is done when there is one.",
    )

    @property
    def conflict(self) -> OnConflict:
        """Rule for an item whose id belongs to another one."""
        return self.on_conflict

    def deciding(self, conflict: OnConflict) -> Self:
        """The same with another rule for such items."""
        return self.model_copy(update={"on_conflict": conflict})

    @property
    def is_read_as_usual(self) -> bool:
        """Tell whether nothing was said of how the source is read."""
        return self.source_options == ItemSource().source_options


class AdditionOptions(RequestFields):
    """Rules by which ready embeddings become items."""

    space: str | None = Field(
        None, description="What made them, `NAME` or `NAME@VERSION`: refused unless it is the gallery's."
    )
    on_conflict: OnConflict = Field(
        "error", description="What to do with an embedding whose id belongs to another one."
    )

    @field_validator("space")
    @classmethod
    def _is_name(cls, value: str | None) -> str | None:
        from vicinal.models.bundle import space_manifest

        if value is not None:
            space_manifest(value, 1)
        return value
