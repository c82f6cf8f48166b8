"""Source items: one image each, and the options by which ids and labels are found."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

from vicinal.indexer.errors import ItemRefusedError
from vicinal.indexer.item_rules import checked_id, checked_label, checked_metadata
from vicinal.indexer.sources.labels import LabelRule
from vicinal.indexer.sources.remote import ImageFile
from vicinal.indexer.sources.web import PUBLIC, WebAccess


@dataclass(frozen=True)
class SourceItem:
    """One image to index.

    Attributes:
        id: Id within the gallery.
        path: File to read, on the disk or behind an address; absolute, so that it can be embedded again by a
            process in another folder.
        label: Class, or None when unlabelled.
        metadata: Further values, as JSON can hold them.
        problem: Why it cannot be used, where the source tells before the file is read.
    """

    id: str
    path: ImageFile
    label: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    problem: str | None = None

    def checked(self) -> Self:
        """The same with its label in one form, or with its problem where it could not be kept or served."""
        if self.problem is not None:
            return self
        try:
            label = _checked_label(self)
        except ItemRefusedError as error:
            return replace(self, problem=str(error))
        return self if label == self.label else replace(self, label=label)


@dataclass(frozen=True)
class SourceOptions:
    """How a source is read.

    Attributes:
        prefix: Stands before every id, with a slash; '' for none. None: the own name of a folder, and none of
            any other source.
        label_from: `folder`: the topmost folder of the path; `column`: the label column; `none`;
            `regex:PATTERN`: the one group of the first match in the path; None: the column of a manifest, the
            folder of a folder; `auto`: the same unless the folders look like albums. Paths are those inside
            the folder, or as a manifest writes them.
        path_column: Column of the paths, `path` when None.
        label_column: Column of the labels, `label` when None.
        id_column: Column of the ids, `id` when None.
        embedding_column: Column of ready embeddings, `embedding` when None.
        access: What may be read of the web.
        include_hidden: Also read hidden files and folders: bins, thumbnails and snapshots of systems.

    Raises:
        SourceError: `label_from` is none of these.
    """

    prefix: str | None = ""
    label_from: str | None = None
    path_column: str | None = None
    label_column: str | None = None
    id_column: str | None = None
    embedding_column: str | None = None
    access: WebAccess = PUBLIC
    include_hidden: bool = False

    def __post_init__(self) -> None:
        LabelRule.parse(self.label_from)

    @property
    def label_rule(self) -> LabelRule:
        """How labels are found."""
        return LabelRule.parse(self.label_from)

    def prefix_of(self, name: str) -> str:
        """What stands before every id.

        Args:
            name: Own name of the source, '' where it is no folder.
        """
        prefix = (name if self.prefix is None else self.prefix).rstrip("/")
        return f"{prefix}/" if prefix else ""


def is_utf8(name: str) -> bool:
    """Whether a name can be written down; Python makes halves of characters of bytes that are not UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _checked_label(item: SourceItem) -> str | None:
    """The label of an item that can be kept and served."""
    if not (is_utf8(item.id) and is_utf8(str(item.path))):
        raise ItemRefusedError("its file name is not UTF-8: rename it")
    checked_id(item.id)
    checked_metadata(item.metadata, item.id)
    return checked_label(item.label, item.id)
