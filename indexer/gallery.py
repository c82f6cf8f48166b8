"""Gallery: a named collection of items on disk, and the only code that touches its files.

<gallery>/
  items.lance/            the truth: one Lance data set, one row an item
  versions/<v>/           snapshots derived from version v of it
  reports/<v>.json        what the index job found
  calibrations/           kept by the calibrator
  active.json             which version is searched
  writer.lock             held while a job writes
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import lance
import numpy as np
import pyarrow as pa

from indexer.errors import GalleryError, GalleryNotFoundError, ItemNotFoundError
from indexer.neighbor_graph import NeighborGraph
from indexer.snapshot import ITEM_COLUMNS, Snapshot, write_snapshot
from models.similarity import FloatArray

__all__ = ["Activation", "GALLERY_NAME", "Gallery", "list_galleries"]

GALLERY_NAME = re.compile(r"^[a-z0-9][a-z0-9_-]{0,63}$")
_BUNDLE_KEY = b"vicinal"


@dataclass(frozen=True)
class Activation:
    """Which version is searched.

    Attributes:
        token: New with every activation: a gallery that was deleted and made anew starts at the same
            versions, and must not be taken for the old one.
    """

    version: int
    token: str


class Gallery:
    """A gallery directory.

    Args:
        path: The directory; its name is the gallery's name.

    Raises:
        GalleryError: The name is not made of lower-case letters, digits, `-` and `_`.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        if not GALLERY_NAME.fullmatch(self.path.name):
            raise GalleryError(
                f"'{self.path.name}' is no gallery name: use up to 64 lower-case letters, digits, - and _"
            )

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Open a gallery that was indexed.

        Raises:
            GalleryNotFoundError: There is none at this path.
        """
        gallery = cls(path)
        if gallery.active_version is None:
            raise GalleryNotFoundError(
                f"there is no gallery '{gallery.name}': "
                f"make one with `vicinal index SOURCE --gallery {gallery.name}`"
            )
        return gallery

    @property
    def name(self) -> str:
        """Name of the gallery."""
        return self.path.name

    @property
    def activation(self) -> Activation | None:
        """What is searched, or None before the first index job.

        Raises:
            GalleryError: The file that says it is damaged.
        """
        path = self.path / "active.json"
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            return Activation(int(fields["version"]), str(fields["token"]))
        except FileNotFoundError:
            return None
        except (KeyError, TypeError, ValueError) as error:
            raise GalleryError(f"'{path}' is damaged: index the gallery again") from error

    @property
    def active_version(self) -> int | None:
        """Version that is searched, or None before the first index job."""
        activation = self.activation
        return None if activation is None else activation.version

    @property
    def calibrations_path(self) -> Path:
        """Folder of the gallery's calibration records."""
        return self.path / "calibrations"

    def versions(self) -> list[int]:
        """Versions that were published, oldest first."""
        folders = (self.path / "versions").glob("[0-9]*")
        return sorted(int(folder.name) for folder in folders if folder.name.isdigit())

    def snapshot(self, version: int | None = None) -> Snapshot:
        """Open a version for searching; its derived files are made again when missing or damaged.

        Args:
            version: A published version; the active one when None.

        Raises:
            GalleryNotFoundError: There is no such version.
            GalleryError: The gallery table itself is damaged.
        """
        chosen = self.active_version if version is None else version
        if chosen is None:
            raise GalleryNotFoundError(f"gallery '{self.name}' was never indexed")
        try:
            return Snapshot.open(self._snapshot_path(chosen))
        except GalleryError:
            # The index job's report remembers the kind of index, also one that was chosen by hand.
            return self._derive(chosen, index=self.report(chosen).get("index", "auto"))

    def thumbnail(self, version: int, item_id: str) -> bytes:
        """JPEG thumbnail of an item.

        Raises:
            ItemNotFoundError: There is no such item in this version.
        """
        condition = "id = '" + item_id.replace("'", "''") + "'"
        rows = self._table(version).to_table(columns=["thumbnail"], filter=condition)
        if not rows.num_rows:
            raise ItemNotFoundError(self.name, item_id)
        return bytes(rows["thumbnail"][0].as_py())

    def columns(self, version: int, names: list[str]) -> pa.Table:
        """Whole columns of a version, one row an item in gallery order."""
        return self._table(version).to_table(columns=names)

    def share_changed(self, before: int, after: int) -> float:
        """Share of the items that were added, removed or replaced between two versions, in [0, 1].

        1 when the earlier version is gone.
        """
        try:
            old, new = (self._contents(version) for version in (before, after))
        except GalleryError:
            return 1.0
        return 1.0 - len(old & new) / max(len(old), len(new))

    def report(self, version: int) -> dict[str, Any]:
        """What the index job found when it made a version; empty when it left no report."""
        path = self._report_path(version)
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}

    def delete(self) -> None:
        """Remove the gallery and all its versions."""
        with self.writing():
            shutil.rmtree(self.path)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the writer's lock; it is released also when the process dies.

        Raises:
            GalleryError: Another job is writing.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "writer.lock").open("a") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise GalleryError(
                    f"gallery '{self.name}' is being written by another job: wait for it"
                ) from error
            yield

    def start(self, rows: pa.Table, *, bundle: str, bundle_name: str) -> None:
        """Commit the first rows of a new generation of the table, which published versions outlive.

        Args:
            rows: One row an item.
            bundle: Fingerprint of the bundle that embedded them.
            bundle_name: Its name.
        """
        identity = json.dumps({"bundle": bundle, "bundle_name": bundle_name})
        self._commit(rows.replace_schema_metadata({_BUNDLE_KEY: identity}), mode="overwrite")

    def append(self, rows: pa.Table) -> None:
        """Commit further rows; nothing is visible to searches before `publish`."""
        self._commit(rows, mode="append")

    def publish(self, graph: NeighborGraph, *, index: str = "auto") -> Snapshot:
        """Make the appended rows the active version.

        Args:
            graph: Neighbor graph over all rows, in order.
            index: Factory string of the vector index, or `auto`.
        """
        table = lance.dataset(self._table_path)
        columns = pa.table(
            {
                "neighbor_ids": _fixed_lists(graph.ids),
                "neighbor_similarities": _fixed_lists(graph.similarities),
            }
        )
        table.add_columns(columns.to_reader())
        snapshot = self._derive(int(table.version), index=index)
        self.activate(snapshot.manifest.version)
        return snapshot

    def activate(self, version: int) -> None:
        """Let searches use a published version, from their next request on.

        Raises:
            GalleryNotFoundError: There is no such version.
        """
        if version not in self.versions():
            raise self._no_version(version)
        activation = {"version": version, "token": secrets.token_hex(8)}
        _write_atomically(self.path / "active.json", json.dumps(activation) + "\n")

    def save_report(self, version: int, report: dict[str, Any]) -> None:
        """Keep what the index job found beside the version."""
        self._report_path(version).parent.mkdir(exist_ok=True)
        _write_atomically(self._report_path(version), json.dumps(report, indent=2) + "\n")

    def pending_embeddings(self) -> FloatArray:
        """(n, d) embeddings of the rows appended so far, in order."""
        return _matrix(lance.dataset(self._table_path).to_table(columns=["embedding"])["embedding"])

    def _commit(self, rows: pa.Table, mode: str) -> None:
        if not Path(self._table_path).exists():
            mode = "create"
        try:
            lance.write_dataset(rows, self._table_path, mode=mode)
        except (OSError, ValueError) as error:
            raise GalleryError(f"gallery '{self.name}' cannot be written: {error}") from error

    def _derive(self, version: int, *, index: str) -> Snapshot:
        table = self._table(version)
        if "neighbor_ids" not in table.schema.names:
            raise self._no_version(version)
        rows = table.to_table(columns=["embedding", "neighbor_ids", "neighbor_similarities"])
        graph = NeighborGraph(_matrix(rows["neighbor_ids"]), _matrix(rows["neighbor_similarities"]))
        return write_snapshot(
            self._snapshot_path(version),
            table.to_table(columns=list(ITEM_COLUMNS)),
            _matrix(rows["embedding"]),
            graph,
            index=index,
            fields={"version": version, **json.loads(table.schema.metadata[_BUNDLE_KEY])},
        )

    def _contents(self, version: int) -> set[tuple[str, bytes]]:
        rows = self.columns(version, ["id", "content_sha256"])
        return set(zip(rows["id"].to_pylist(), rows["content_sha256"].to_pylist(), strict=True))

    def _table(self, version: int) -> Any:
        try:
            return lance.dataset(self._table_path, version=version)
        except (OSError, ValueError) as error:
            if version not in (self.active_version, *self.versions()):
                raise self._no_version(version) from error
            raise GalleryError(
                f"version {version} of gallery '{self.name}' cannot be read: {error}"
            ) from error

    def _no_version(self, version: int) -> GalleryNotFoundError:
        return GalleryNotFoundError(f"gallery '{self.name}' has no version {version}, only {self.versions()}")

    @property
    def _table_path(self) -> str:
        return str(self.path / "items.lance")

    def _snapshot_path(self, version: int) -> Path:
        return self.path / "versions" / str(version)

    def _report_path(self, version: int) -> Path:
        return self.path / "reports" / f"{version}.json"


def list_galleries(root: Path) -> list[Gallery]:
    """Galleries below a data folder that were indexed, by name."""
    folders = sorted(folder for folder in root.glob("*") if GALLERY_NAME.fullmatch(folder.name))
    return [Gallery(folder) for folder in folders if (folder / "active.json").is_file()]


def _fixed_lists(matrix: np.ndarray) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), matrix.shape[1])


def _matrix(column: pa.ChunkedArray) -> Any:
    array = column.combine_chunks()
    width = array.type.list_size
    return array.flatten().to_numpy(zero_copy_only=False).reshape(len(array), width)


def _write_atomically(path: Path, text: str) -> None:
    staging = path.with_name(path.name + ".partial")
    with staging.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    staging.replace(path)
