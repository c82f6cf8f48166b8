"""Live run: embeds a source into a gallery that is searched meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from vicinal.indexer.jobs.changes import add_items
from vicinal.indexer.jobs.embedding_run import EmbeddingRun, Failure, RunOptions
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources import SourceItem
from vicinal.models.embedder import Embedder

__all__ = ["LiveAddition", "add_source"]

# Each commit makes neighbor lists for its rows while other changes wait.
_ROWS_PER_COMMIT = 256


@dataclass
class LiveAddition:
    """What became of a source.

    Attributes:
        n_added: Items with an id that was new.
        n_replaced: Items with an id that was there.
        failures: Images left out.
    """

    n_added: int = 0
    n_replaced: int = 0
    failures: list[Failure] = field(default_factory=list)


def add_source(
    reader: GalleryReader,
    items: Sequence[SourceItem],
    embedder: Embedder,
    *,
    options: RunOptions | None = None,
    on_progress: Callable[[int, int, int], None] | None = None,
) -> LiveAddition:
    """Add images of a source, some hundred a commit; what is committed is searched at once.

    Args:
        reader: The gallery.
        items: What to add; one whose id is there replaces it.
        embedder: Embedder of the gallery's bundle.
        options: How the run goes.
        on_progress: Called after every batch with finished, all and failed items.

    Raises:
        BuildError: Too many failures, or no image could be used; what was committed before stays.
        BundleMismatchError: The gallery was embedded with another bundle.
        GalleryBusyError: Another job keeps writing.
    """
    done = LiveAddition()

    def commit(rows: pa.Table) -> None:
        change = add_items(reader, rows, bundle=embedder.bundle.fingerprint)
        done.n_added += change.n_added
        done.n_replaced += len(change.replaced)

    run = EmbeddingRun(commit, embedder, options or RunOptions(rows_per_commit=_ROWS_PER_COMMIT))
    run.over(items, on_progress or (lambda _done, _total, _failed: None))
    done.failures = run.failures
    return done
