"""Source: a folder of images, a manifest, a dataset with images inside, or ready embeddings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from vicinal.indexer.errors import SourceError
from vicinal.indexer.item_rules import readable
from vicinal.indexer.sources.embeddings import EmbeddingSource, holds_embeddings, is_saved
from vicinal.indexer.sources.folders import FolderFiles, folder_items
from vicinal.indexer.sources.hub import HubDataset
from vicinal.indexer.sources.image_tables import MANIFEST_SUFFIXES, dataset_items, manifest_items
from vicinal.indexer.sources.items import (
    SourceItem,
    SourceLook,
    SourceOptions,
    is_utf8,
    mended_labels,
    suffix_counts,
)
from vicinal.indexer.sources.parquet_datasets import PARQUET, holds_images
from vicinal.indexer.sources.remote import (
    Refuse,
    is_address,
    is_on_hub,
    list_bucket,
    refuse_none,
)
from vicinal.indexer.sources.shards import shard_items, shards_of
from vicinal.models.decoding import image_suffixes

_SHOWN_SUFFIXES = 3
_UNPACKED_BY = {
    ".gz": "gunzip",
    ".tgz": "gunzip",
    ".zst": "zstd -d",
    ".bz2": "bunzip2",
    ".xz": "unxz",
    ".zip": "unzip",
}


@dataclass(frozen=True)
class Source:
    """The images of a source, and what else is there."""

    items: list[SourceItem]  # In a fixed order, with a problem where one cannot be used
    files: FolderFiles = field(default_factory=FolderFiles)  # What is in the folder; nothing of a manifest
    remark: str | None = None  # Why a folder gives no labels
    name: str | None = None  # By which a gallery knows its items again

    @classmethod
    def open(cls, place: Path | str, options: SourceOptions | None = None) -> Self:
        """List the images of a source.

        A folder gives every image below it, with its path inside as id. A manifest is a `.csv` or `.parquet`
        file with a column `path` (taken from the manifest's folder when relative) and optionally `id`,
        `label` and any others, which become metadata. Parquet files may hold the images themselves, one file
        or a folder of them. An image is a source of one, by its name. Shards, and addresses of buckets, of
        folders in them and of data sets of the hub of Hugging Face are sources too.

        Raises:
            SourceError: The source is missing, empty, or of another kind; a manifest lacks a column or has
                an id twice; labels cannot be taken from where the options say.
        """
        name = source_name(place)
        if not is_utf8(name):
            raise SourceError(
                f"'{readable(str(place))}' is not UTF-8, so that no gallery can note where its images are: "
                "rename it, or give a link to it"
            )
        items, files, remark = _listed(place, options or SourceOptions())
        if not items:
            besides = f", only {suffix_counts(files.others, _SHOWN_SUFFIXES)}" if files.others else ""
            if files.hidden:
                besides += f"; hidden, and not read: {suffix_counts(files.hidden, _SHOWN_SUFFIXES)}"
            raise SourceError(f"'{place}' holds no images ({', '.join(sorted(image_suffixes()))}){besides}")
        checked = [item.checked() for item in items]
        pairs = zip(items, checked, strict=True)
        mended = mended_labels(sum(old.label != new.label for old, new in pairs))
        return cls(checked, files, "; ".join(filter(None, (remark, mended))) or None, name)

    @property
    def unread(self) -> Mapping[str, str]:
        """Folders, archives and files that were not read, each with the reason."""
        return self.files.unread

    def require_whole(self) -> Self:
        """The source, where it is known what it no longer holds."""
        closed = self.files.unreadable
        if closed:
            raise SourceError(
                f"{len(closed):,} part{'s' if len(closed) > 1 else ''} of the source cannot be read, "
                f"the first '{closed[0]}': nobody knows what is gone from there, and nothing was deleted"
            )
        for item in self.items:
            # Then even its id may not be known.
            if item.problem and isinstance(item.path, Path) and item.path.suffix.lower() in MANIFEST_SUFFIXES:
                raise SourceError(
                    f"'{readable(item.id)}' of '{item.path.name}' cannot be used: {item.problem}; nobody "
                    "knows what is gone, and nothing was deleted"
                )
        return self

    def look(self, refuse: Refuse = refuse_none) -> SourceLook:
        """Count what is there."""
        # What a folder lists is there, and nobody asks a bucket for every file first.
        named = [] if self.files.images else [item.path for item in self.items if item.problem is None]
        missing = [
            str(one) for one in named if isinstance(one, Path) and refuse(one) is None and not one.exists()
        ]
        return SourceLook.at(
            [item.label for item in self.items if item.problem is None],
            missing=missing,
            problems=[f"'{readable(one.id)}': {one.problem}" for one in self.items if one.problem],
            remark=self.remark,
            other_files=dict(self.files.others.most_common()),
            unread_folders=dict(self.files.unread),
            hidden=dict(self.files.hidden.most_common()),
        )


_Listed = tuple[list[SourceItem], FolderFiles, str | None]


def _listed(place: Path | str, options: SourceOptions) -> _Listed:
    """The images of a source, what else is there, and why folders are not taken for labels."""
    path = Path(place)
    suffix = path.suffix.lower()
    if is_on_hub(str(place)):
        found = HubDataset.at(str(place))
        name = found.name.rpartition("/")[2]
        return dataset_items(Path(name), options, name, found.fetch(options.access)), FolderFiles(), None
    if is_address(str(place)):
        return _in_bucket(str(place), options)
    if path.is_dir():
        return _in_folder(path.absolute(), options)
    if suffix == ".tar":
        return shard_items(path, options)
    if suffix == PARQUET and (parts := _parts_with_images(path, options)):
        return dataset_items(path, options, files=parts), FolderFiles(), None
    if suffix in MANIFEST_SUFFIXES and path.is_file():
        items, remark = manifest_items(path, options)
        return items, FolderFiles(), remark
    if suffix in image_suffixes() and path.is_file():
        return [SourceItem(f"{options.prefix_of('')}{path.name}", path.absolute())], FolderFiles(), None
    if suffix in _UNPACKED_BY and path.is_file():
        raise SourceError(
            f"'{path}' is compressed, so that nothing is read where it lies: unpack it once with "
            f"`{_UNPACKED_BY[suffix]} {path}`, and give what comes out"
        )
    if path.exists():
        raise SourceError(
            f"'{path}' is neither a folder nor an image nor a {', '.join(MANIFEST_SUFFIXES[:-1])} or "
            f"{MANIFEST_SUFFIXES[-1]} manifest or .tar shard"
        )
    raise SourceError(f"there is no source '{path}'")


def _in_bucket(address: str, options: SourceOptions) -> _Listed:
    found = dict(list_bucket(address, options.access))
    files = FolderFiles.listed(found, include_hidden=options.include_hidden)
    name = address.rstrip("/").rpartition("/")[2]
    items, remark = folder_items(files, name, options, found.__getitem__)
    return items, files, remark


def _in_folder(root: Path, options: SourceOptions) -> _Listed:
    name = root.resolve().name
    if is_saved(root):
        return dataset_items(root, options, name), FolderFiles(), None
    files = FolderFiles.below(root, include_hidden=options.include_hidden)
    if files.tables and not files.images:
        parts = {inside.removesuffix(PARQUET): root / inside for inside in files.tables}
        del files.others[PARQUET]
        for part, path in [*parts.items()]:
            try:
                holds_images(path, None)
            except SourceError as error:
                files.unread[readable(part + PARQUET)] = str(error)
                del parts[part]
        if not parts:
            raise SourceError(next(iter(files.unread.values())))
        return dataset_items(root, options, name, parts), files, None
    items, remark = folder_items(files, name, options, root.joinpath)
    return items, files, remark


def _parts_with_images(pattern: Path, options: SourceOptions) -> dict[str, Path]:
    """Parquet files by their names, if there are images inside; otherwise none."""
    parts = [one.absolute() for one in shards_of(pattern)]
    for one in parts:
        if one.is_file() and not holds_images(one, options.path_column):
            return {}
        if not one.is_file() and len(parts) > 1:
            raise SourceError(f"there is no '{one}'")
    return {one.stem: one for one in parts if one.is_file()}


def open_source(
    place: Path | str,
    options: SourceOptions | None = None,
    *,
    expects_embeddings: bool = False,
    needs_ids: bool = True,
    refuse: Refuse = refuse_none,
) -> Source | EmbeddingSource:
    """Open a source of images or of ready embeddings; see `Source.open` and `EmbeddingSource.open`.

    With `expects_embeddings` a table that also names images is read for its embeddings. `refuse` says why a
    file must not be read; of images it is asked later.
    """
    if not holds_embeddings(place, options, expected=expects_embeddings, refuse=refuse):
        return Source.open(place, options)
    opened = EmbeddingSource.open(place, options, needs_ids=needs_ids)
    opened.name = source_name(place)
    return opened


def read_source(place: Path | str, options: SourceOptions | None = None) -> list[SourceItem]:
    """The images of a source, in a fixed order; see `Source.open`."""
    return Source.open(place, options).items


def source_name(place: Path | str) -> str:
    """Name by which a gallery knows a source's items: absolute path, of a link its own, or address."""
    text = str(place)
    return text.rstrip("/") if is_address(text) else os.path.normpath(Path(place).absolute())
