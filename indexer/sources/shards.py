"""Shards: the images of WebDataset archives, with ids and labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from vicinal.indexer.errors import SourceError
from vicinal.indexer.sources.archives import ArchivedImage, read_shard, shards_of
from vicinal.indexer.sources.folders import FolderFiles
from vicinal.indexer.sources.items import SourceItem, SourceOptions, labels_in
from vicinal.indexer.sources.values import known_values
from vicinal.models.configs.value_texts import value_as_text


def shard_items(pattern: Path, options: SourceOptions) -> tuple[list[SourceItem], FolderFiles, str | None]:
    """Images of shards such as `{000..012}`, what else is in them, and why albums give them no labels."""
    images: list[ArchivedImage] = []
    files = FolderFiles()
    for archive in shards_of(pattern):
        try:
            found = read_shard(archive, include_hidden=options.include_hidden)
        except SourceError as error:
            files.unread[archive.name] = str(error)
            continue
        images += found.images
        files.others += found.others
        files.hidden += found.hidden
        if found.damage:
            files.unread[archive.name] = f"not to its end: {found.damage}"
    if not images and files.unread:
        raise SourceError(next(iter(files.unread.values())))
    files.images = [one.file.name for one in images]
    labels, remark = _labels(images, options, pattern)
    ids = _ids(images, options)
    is_label = options.label_rule.kind in ("given", "auto", "column")
    taken = {options.id_column, (options.label_column or "label") if is_label else None}
    items = [
        SourceItem(
            item_id, one.file, label, _metadata(one.values, taken), one.problem or _unclear(one, taken)
        )
        for one, item_id, label in zip(images, ids, labels, strict=True)
    ]
    return items, files, remark


def _labels(
    images: Sequence[ArchivedImage], options: SourceOptions, pattern: Path
) -> tuple[list[str | None], str | None]:
    rule = options.label_rule
    if rule.kind in ("given", "auto", "column"):
        said = [_text(one, options.label_column or "label") or one.label or None for one in images]
        if any(said):
            return said, None
        if rule.kind == "column" or options.label_column:
            name = options.label_column or "label"
            raise SourceError(f"'{pattern.name}' has no '{name}' in its .json files, and no .cls files")
    return labels_in([one.file.name for one in images], rule)


def _ids(images: Sequence[ArchivedImage], options: SourceOptions) -> list[str]:
    prefix, column = options.prefix_of(""), options.id_column
    earlier: dict[str, ArchivedImage] = {}
    for one in images:
        said = _text(one, column) if column else None
        item_id = f"{prefix}{said or f'{one.file.archive.stem}/{one.file.name}'}"
        if earlier.setdefault(item_id, one) is not one:
            raise SourceError(f"'{earlier[item_id].file}' and '{one.file}' have one id, '{item_id}'")
    return list(earlier)


def _metadata(values: dict[str, Any], taken: set[str | None]) -> dict[str, Any]:
    return known_values({key: value for key, value in values.items() if key not in taken})


def _text(one: ArchivedImage, key: str) -> str | None:
    try:
        return value_as_text(one.values.get(key))
    except ValueError:
        return None


def _unclear(one: ArchivedImage, keys: Iterable[str | None]) -> str | None:
    """Reason why a value beside an image is neither an id nor a label."""
    for key in filter(None, keys):
        try:
            value_as_text(one.values.get(key))
        except ValueError as error:
            return f"its '{key}' is {error}, expected text, a whole number, or true or false"
    return None
