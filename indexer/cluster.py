"""Cluster: machines that do parts of a build; `jobs.ray_cluster` makes one of what Ray knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

    from vicinal.indexer.sources import SourceItem
    from vicinal.models.embedder import Embedder

Part = TypeVar("Part")
Result = TypeVar("Result")


class Cluster(Protocol):
    """Machines that embed images and find neighbors; what they cannot do raises ClusterError."""

    provider: str  # What embedded images there, for people; empty before

    @property
    def n_workers(self) -> int:
        """Parts that they work on at a time."""

    def share(self, value: Any) -> Any:
        """Bring an array, or what else can be pickled, to the machines; `map` takes what comes of it."""

    def map(self, function: Callable[..., Result], parts: Iterable[Part], *shared: Any) -> Iterator[Result]:
        """Results of `function(*shared, part)` as they come; it stands in a module, and changes nothing."""

    def embedded(
        self, items: Iterator[SourceItem], embedder: Embedder
    ) -> Iterator[tuple[pa.Table | None, list[tuple[SourceItem, str]]]]:
        """Rows of the gallery table in the order of the items, some at a time, and the items that cannot be
        used with the reasons; None and none of these where it was waited for some time.
        """
