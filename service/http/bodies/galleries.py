"""Response bodies of the calls about galleries, their versions, and the service as a whole."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from vicinal.service.galleries.open_galleries import GalleryState
from vicinal.service.http.bodies.fields import Response
from vicinal.service.measuring.evidence import Evidence
from vicinal.service.redis_link import RedisState
from vicinal.service.request_fields import Request
from vicinal.service.search.answers import Threshold


class CalibrationBody(Response):
    """The calibration in use."""

    id: str
    target: str | None
    threshold: float
    rates: dict[str, float | None] | None
    evidence: Evidence | None = Field(
        description="Intervals of the rates and what they let expect; null for a threshold set by hand."
    )


class GalleryBody(Response):
    """One gallery."""

    name: str
    aliases: list[str] = Field(description="Further names that it is reached by.")
    version: int = Field(description="The built version that is searched.")
    revision: int = Field(description="The state of its live changes.")
    n_items: int
    n_labels: int
    graph_staleness: float = Field(
        description="Share of the items that changed since the neighbor lists of all items were made."
    )
    dim: int
    index: str
    bundle: str
    bundle_name: str
    calibration: CalibrationBody | None
    threshold: Threshold | None = Field(
        description="What searches without further options are decided by, and whether it holds; null when "
        "the calibration cannot be used."
    )
    calibration_problem: str | None = Field(description="Why the calibration cannot be used.")


class GalleryListBody(Response):
    """All galleries."""

    galleries: list[GalleryBody] = Field(description="Those that can be searched.")
    problems: dict[str, str] = Field(description="Why each of the others cannot be searched, by name.")


class AliasTarget(Request):
    """What an alias stands for."""

    gallery: str = Field(description="Name of the gallery, or another alias of it.")


class AliasBody(Response):
    """One alias."""

    alias: str
    gallery: str = Field(description="Name of the gallery that it stands for.")


class AliasListBody(Response):
    """All aliases."""

    aliases: list[AliasBody]


class LimitsBody(Response):
    """What is taken in one request, as the settings of these names say."""

    max_image_bytes: int
    max_image_pixels: int
    max_request_bytes: int
    max_batch: int = Field(description="Most images or queries.")
    max_embeddings: int = Field(description="Most ready embeddings of one addition.")
    max_limit: int


class ReadinessBody(Response):
    """Whether searches can be answered, and by what."""

    ready: bool
    reasons: list[str]
    bundle: str | None = Field(
        description="Fingerprint of the bundle of the settings. Null, as are the next three, while it is not "
        "open: every gallery holds ready embeddings, and nothing has needed it."
    )
    refiner: str | None = Field(description="Fingerprint of the bundle's refiner; null without one.")
    refine: str | None = Field(description="What `auto` refines: `off`, `gallery`, `query` or `both`.")
    provider: str | None = Field(description="Execution provider of ONNX Runtime that is really in use.")
    devices: dict[str, str] = Field(
        description="What each stage of a search runs on, as in `explain`: `cpu`, GPUs such as `cuda:0`, and "
        "for `embed`, which is missing while no bundle is open, `CUDAExecutionProvider on cuda:0`. Of "
        "`search` it is where the indexes of the galleries are that have been searched."
    )
    degraded: list[str] = Field(
        description="What is slower than it could be, waits or is refused, and why: indexes or networks that "
        "are on the processor in the place of a GPU, jobs whose store is held or damaged, keys whose file is."
        " Empty where nothing is."
    )
    other_bundles: list[str] = Field(
        description="Fingerprints of bundles that are open for galleries of another bundle."
    )
    n_galleries: int
    galleries: list[GalleryState] = Field(description="None without an API key, where keys are asked for.")
    redis: RedisState | None = Field(description="Null when no address is set.")
    limits: LimitsBody


class VersionBody(Response):
    """One version of a gallery."""

    version: int
    created_at: datetime
    kind: str = Field(description="Made by an `index` job or by a `compaction`.")
    is_active: bool
    revision: int = Field(description="State of its live changes, which is searched when it is active.")
    n_items: int | None = Field(description="Items when it was built; null when its files are damaged.")
    n_labels: int | None
    index: str | None
    bundle: str | None
    derived_bytes: int = Field(description="Size of its own files.")
    table_bytes: int = Field(description="Size of the files in the item table that it refers to.")
    own_table_bytes: int = Field(description="Size of those that no other version refers to.")
    comparison: str | None = Field(None, description="Its newest comparison with another, in one line.")


class VersionListBody(Response):
    """All versions of a gallery, newest first."""

    versions: list[VersionBody]
