"""Shards: the images of WebDataset archives, `.tar` files in which a photo has its label and more beside it.

shards/photos-000.tar       one shard
shards/photos-{000..012}.tar    thirteen

    milk/1.jpg              an image; its id is the shard's name and the path inside
    milk/1.cls              its label
    milk/1.json             its metadata, and its label and id if they stand there
    milk/1.txt              a text, the metadata `text`

What stands beside an image has its name up to a dot: `1.left.jpg` has `1.cls` or `1.left.cls`, whichever has
more of the name. Names may have more dots: `22.05.cls` is about `22.05.jpg`, and not about `22.06.jpg`.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from vicinal.indexer.errors import SourceError
from vicinal.indexer.sources.archives import TarMember, places_in
from vicinal.indexer.sources.folders import FolderFiles
from vicinal.indexer.sources.items import SourceItem, SourceOptions, labels_in
from vicinal.indexer.sources.values import known_values
from vicinal.models.configs.value_texts import value_as_text
from vicinal.models.decoding import image_suffixes
from vicinal.models.images.hidden_files import count_hidden, hidden_part

_MOST_SHARDS = 100_000
_NUMBERS = re.compile(r"\{(\d+)\.\.(\d+)\}")
_BESIDE = (".cls", ".json", ".txt")
# What stands beside an image is a few words, whatever a stranger's archive says.
_LARGEST_BESIDE = 2**20


@dataclass(frozen=True)
class _ArchivedImage:
    """An image of a shard, with what stands beside it."""

    file: TarMember
    label: str | None = None  # What `.cls` says
    values: dict[str, Any] = field(default_factory=dict)  # What `.json` and `.txt` say
    problem: str | None = None  # Why one of these cannot be read


def shards_of(pattern: Path) -> list[Path]:
    """The archives that a name with numbers such as `{000..012}` stands for; another one is its own."""
    found = _NUMBERS.search(pattern.name)
    if not found:
        return [pattern]
    first, last = int(found[1]), int(found[2])
    width, name = len(found[1]), pattern.name
    if last - first >= _MOST_SHARDS:
        raise SourceError(f"'{name}' stands for {last - first + 1:,} archives: name {_MOST_SHARDS:,} at most")
    return [
        pattern.with_name(f"{name[: found.start()]}{number:0{width}}{name[found.end() :]}")
        for number in range(first, last + 1)
    ]


def shard_items(pattern: Path, options: SourceOptions) -> tuple[list[SourceItem], FolderFiles, str | None]:
    """Images of shards such as `{000..012}`, what else is in them, and why albums give them no labels."""
    files = FolderFiles()
    images = [one for archive in shards_of(pattern) for one in _read(archive.absolute(), files, options)]
    if not images and files.unread:
        raise SourceError(next(iter(files.unread.values())))
    files.images = [one.file.name for one in images]
    labels, remark = _labels(images, options, pattern)
    ids = _ids(images, options)
    is_label = options.label_rule.kind in ("given", "auto", "column")
    taken = {options.id_column, (options.label_column or "label") if is_label else None}
    items = [
        SourceItem(
            item_id,
            one.file,
            label,
            known_values({key: value for key, value in one.values.items() if key not in taken}),
            one.problem or _unclear(one, taken),
        )
        for one, item_id, label in zip(images, ids, labels, strict=True)
    ]
    return items, files, remark


def _labels(
    images: Sequence[_ArchivedImage], options: SourceOptions, pattern: Path
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


def _ids(images: Sequence[_ArchivedImage], options: SourceOptions) -> list[str]:
    prefix, column = options.prefix_of(""), options.id_column
    earlier: dict[str, _ArchivedImage] = {}
    for one in images:
        said = _text(one, column) if column else None
        item_id = f"{prefix}{said or f'{one.file.container.stem}/{one.file.name}'}"
        if earlier.setdefault(item_id, one) is not one:
            raise SourceError(f"'{earlier[item_id].file}' and '{one.file}' have one id, '{item_id}'")
    return list(earlier)


def _text(one: _ArchivedImage, key: str) -> str | None:
    try:
        return value_as_text(one.values.get(key))
    except ValueError:
        return None


def _unclear(one: _ArchivedImage, keys: Iterable[str | None]) -> str | None:
    """Reason why a value beside an image is neither an id nor a label."""
    for key in filter(None, keys):
        try:
            value_as_text(one.values.get(key))
        except ValueError as error:
            return f"its '{key}' is {error}, expected text, a whole number, or true or false"
    return None


def _read(archive: Path, files: FolderFiles, options: SourceOptions) -> Iterator[_ArchivedImage]:
    """Images of an archive; what else is in it is added to the files."""
    try:
        places, twice, damage = places_in(archive, archive.stat().st_mtime_ns)
        hidden = Counter() if options.include_hidden else count_hidden(places)
        if hidden:
            places = {name: place for name, place in places.items() if not hidden_part(name)}
        names = [name for name in places if _suffix(name) in image_suffixes()]
        found = _files_beside(names, [name for name in places if _suffix(name) in _BESIDE])
        beside = _beside(archive, places, found)
    except (tarfile.TarError, OSError) as error:
        files.unread[archive.name] = f"shard '{archive}' cannot be read: {error}"
        return
    if damage:
        files.unread[archive.name] = f"not to its end: {damage}"
    files.hidden += hidden
    used = {*names, *(one for some in found.values() for one in some)}
    for name in sorted(used & twice)[:1]:
        raise SourceError(
            f"'{archive.name}' holds '{name}' twice, and one name is one photo: write the shard again with a "
            "name for each, or with one of them"
        )
    files.others += Counter(_suffix(name) for name in places if name not in used)
    for name in names:
        said = beside.get(name, {})
        bad = [str(one) for one in said.values() if isinstance(one, SourceError)]
        if bad:
            yield _ArchivedImage(TarMember(archive, name), problem=bad[0])
            continue
        values = dict(said.get(".json", {}))
        if ".txt" in said:
            values["text"] = said[".txt"]
        yield _ArchivedImage(TarMember(archive, name), said.get(".cls") or None, values)


def _files_beside(images: Sequence[str], files: Sequence[str]) -> dict[str, list[str]]:
    """Names of the files that stand beside each image: of each suffix those with most of its name."""
    by_stem: dict[str, list[str]] = {}
    for image in images:
        for stem in _stems(image):
            by_stem.setdefault(stem, []).append(image)
    whole = {_stems(image)[0]: image for image in images} | {image: image for image in images}
    found: dict[str, dict[str, tuple[int, list[str]]]] = {}
    for name in files:
        own, *shorter = _stems(name)
        # A file with another word in its name, `1.meta.json`, is about an image without it, `1.jpg`.
        about = by_stem.get(own) or [whole[one] for one in shorter if one in whole][:1]
        length = len(own)
        for image in about:
            best, names = found.setdefault(image, {}).get(_suffix(name), (-1, []))
            if length >= best:
                kept = [*names, name] if length == best else [name]
                found[image][_suffix(name)] = length, kept
    return {image: [name for _, names in one.values() for name in names] for image, one in found.items()}


def _beside(
    archive: Path, places: dict[str, tuple[int, int]], files: dict[str, list[str]]
) -> dict[str, dict[str, Any]]:
    """Files beside images, by image and suffix; an error where one cannot be read or is there twice."""
    parsed: dict[str, Any] = {}
    with archive.open("rb") as stream:
        for name in {one: None for names in files.values() for one in names}:
            stream.seek(places[name][0])
            try:
                parsed[name] = _parsed(stream, places[name][1], _suffix(name), name)
            except SourceError as error:
                parsed[name] = error
    found: dict[str, dict[str, Any]] = {}
    for image, names in files.items():
        said = found.setdefault(image, {})
        for name in names:
            if (suffix := _suffix(name)) in said:
                other = next(one for one in names if _suffix(one) == suffix)
                said[suffix] = SourceError(f"'{other}' and '{name}' are both beside it: one is needed")
            else:
                said[suffix] = parsed[name]
    return found


def _parsed(stream: BinaryIO, size: int, suffix: str, name: str) -> Any:
    if size > _LARGEST_BESIDE:
        raise SourceError(f"'{name}' beside it has {size:,} bytes: no few words")
    try:
        encoded = stream.read(size)
        # With its byte order mark, or of two bytes a character, as some systems save a text.
        text = encoded.decode(json.detect_encoding(encoded)).strip()
        value = json.loads(text) if suffix == ".json" else text
    except UnicodeDecodeError as error:
        wrong = f"it is not UTF-8: {error.reason} at byte {error.start}"
        raise SourceError(f"'{name}' beside it cannot be read: {wrong}") from error
    except (ValueError, RecursionError, OSError) as error:
        raise SourceError(f"'{name}' beside it cannot be read: {error}") from error
    if suffix == ".json" and not isinstance(value, dict):
        raise SourceError(f"'{name}' beside it is no JSON object")
    return value


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def _stems(name: str) -> list[str]:
    """The path without the suffix, then without each further part of the name that a dot begins."""
    folder, _, own = name.rpartition("/")
    parts = own.split(".")
    return [f"{folder}/{'.'.join(parts[:n])}" for n in range(max(len(parts) - 1, 1), 0, -1)]
