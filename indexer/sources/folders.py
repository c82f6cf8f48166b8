"""Folders: every image below one, and what else lies there."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from vicinal.indexer.errors import SourceError
from vicinal.indexer.item_rules import readable
from vicinal.indexer.sources.items import SourceItem, SourceOptions, labels_in
from vicinal.indexer.sources.parquet_datasets import PARQUET
from vicinal.indexer.sources.remote import ImageFile
from vicinal.models.decoding import image_suffixes
from vicinal.models.images.hidden_files import count_hidden, hidden_kind, hidden_part

_LINK = "a link to a folder"


@dataclass
class FolderFiles:
    """Files of a folder."""

    images: list[str] = field(default_factory=list)  # Paths inside the folder, in order
    others: Counter[str] = field(default_factory=Counter)  # By suffix in small letters, '' for those without
    # Folders and archives that were not looked into, or not to their end, each with the reason
    unread: dict[str, str] = field(default_factory=dict)
    tables: list[str] = field(default_factory=list)  # Paths of the Parquet files among the others, in order
    hidden: Counter[str] = field(default_factory=Counter)  # Folders and files that were passed over, by name

    @classmethod
    def below(cls, root: Path, *, include_hidden: bool = False) -> FolderFiles:
        """Look into a folder and all below it; links to folders are not followed."""
        found, waiting = cls(), [""]
        while waiting:
            inside = waiting.pop()
            try:
                with os.scandir(root / inside) as entries:
                    # One by one: what was found stays when the disk gives no more.
                    waiting.extend(
                        name
                        for entry in entries
                        if (include_hidden or not found._hides(entry))
                        and (name := found._note(entry, inside))
                    )
            except OSError as error:
                if not inside:
                    raise SourceError(f"'{root}' cannot be read: {error.strerror}") from error
                found.unread[readable(inside)] = str(error.strerror)
        for paths in (found.images, found.tables):
            paths.sort(key=lambda one: one.split("/"))
        return found

    @classmethod
    def listed(cls, paths: Collection[str], *, include_hidden: bool = False) -> FolderFiles:
        """Files of a folder that were listed elsewhere."""
        found = cls() if include_hidden else cls(hidden=count_hidden(paths))
        for inside in paths:
            if not include_hidden and hidden_part(inside):
                continue
            suffix = _suffix(inside)
            if suffix in image_suffixes():
                found.images.append(inside)
            else:
                found.others[suffix] += 1
        found.images.sort(key=lambda one: one.split("/"))
        return found

    @property
    def unreadable(self) -> list[str]:
        """Folders that were to be looked into and could not be."""
        return [inside for inside, reason in self.unread.items() if reason != _LINK]

    def _hides(self, entry: os.DirEntry[str]) -> bool:
        """Count what is hidden."""
        # Most names are not, and whether one is a folder is not asked of them.
        if not hidden_kind(entry.name, is_folder=True):
            return False
        self.hidden[hidden_kind(entry.name, is_folder=_kind(entry) == stat.S_IFDIR) or ""] += 1
        return True

    def _note(self, entry: os.DirEntry[str], folder: str) -> str | None:
        """Count a file; a folder comes back."""
        inside = f"{folder}/{entry.name}" if folder else entry.name
        kind = _kind(entry)
        if kind == stat.S_IFDIR:
            return inside
        if kind == stat.S_IFLNK:
            self.unread[readable(inside)] = _LINK
            return None
        suffix = _suffix(entry.name)
        # What cannot be looked at, such as a link to nothing, fails with its name when it is to be read.
        if suffix in image_suffixes() and kind in (stat.S_IFREG, None):
            self.images.append(inside)
        else:
            self.others[readable(suffix)] += 1
            if suffix == PARQUET and kind == stat.S_IFREG:
                self.tables.append(inside)
        return None


def _kind(entry: os.DirEntry[str]) -> int | None:
    """Kind of an entry as `stat` names it, of a link to a file the file's; None where it cannot be seen."""
    try:
        if entry.is_dir():
            return stat.S_IFLNK if entry.is_symlink() else stat.S_IFDIR
        return stat.S_IFREG if entry.is_file() else stat.S_IFMT(entry.stat().st_mode)
    except OSError:
        return None


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()  # noqa: PTH122  a Path for each file takes longer


def folder_items(
    files: FolderFiles, name: str, options: SourceOptions, place: Callable[[str], ImageFile]
) -> tuple[list[SourceItem], str | None]:
    """Images of a folder of some `name`, each file by `place`, and why albums give them no labels."""
    labels, remark = labels_in(files.images, options.label_rule)
    prefix = options.prefix_of(name)
    items = [
        SourceItem(f"{prefix}{inside}", place(inside), label)
        for inside, label in zip(files.images, labels, strict=True)
    ]
    return items, remark
