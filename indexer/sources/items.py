"""Source items: an image each, the rules of their ids and labels, and a look at them before they are read."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any, Literal, Self, get_args

from vicinal.indexer.errors import ItemRefusedError, SourceError
from vicinal.indexer.item_rules import checked_id, checked_label, checked_metadata, readable
from vicinal.indexer.sources.remote import PUBLIC, ImageFile, SourceAccess
from vicinal.models.configs.value_texts import look_of, visible
from vicinal.models.decoding import with_extra

_Kind = Literal["given", "auto", "folder", "none", "column", "regex"]
# A year, or a month or a day of one; these also before other words.
_DATE = re.compile(r"(19|20)\d\d([-_. ]?(0[1-9]|1[0-2])([-_. ]?(0[1-9]|[12]\d|3[01]))?(\D.*)?)?")
# What cameras and telephones call their folders.
_CAMERA = re.compile(
    r"dcim|img|img_\d+|images?|camera( roll)?|whatsapp images|screenshots|misc|\d{3}_\d{4}"
    r"|\d{3}_?(canon|nikon|apple|msdcf|pana|olymp|fuji|gopro|media|andro|casio|kodak|pentx|ricoh|sigma|d\d{4})",
    re.IGNORECASE,
)
# A label with this share of the images, or more, tells little.
_NEARLY_ALL = 0.9
_SHOWN = 3
_MISSING = frozenset({"nan", "none", "null", "<na>", "nat"})


@dataclass(frozen=True)
class LabelRule:
    """Rule where labels are taken from."""

    kind: _Kind  # `given`: the column of a manifest, the topmost folder inside a folder
    pattern: re.Pattern[str] | None = None  # What `regex` looks for in paths

    @classmethod
    def parse(cls, text: str | None) -> Self:
        """Read `auto`, `folder`, `none`, `column` or `regex:PATTERN`; None is `given`."""
        if text is None:
            return cls("given")
        for kind in get_args(_Kind):
            if text == kind and kind not in ("given", "regex"):
                return cls(kind)
        if not text.startswith("regex:"):
            raise SourceError(
                f"labels cannot be taken from '{text}': take auto, folder, none, column or regex:PATTERN"
            )
        try:
            pattern = re.compile(text.removeprefix("regex:"))
        except re.error as error:
            raise SourceError(f"'{text}' is no regular expression: {error}") from error
        if pattern.groups != 1:
            raise SourceError(
                f"'{text}' has {pattern.groups} groups, expected one for the label, as in regex:^([^/]+)/"
            )
        return cls("regex", pattern)

    def of_paths(self, paths: Sequence[str]) -> list[str | None]:
        """Labels that stand in paths."""
        if self.kind == "none":
            return [None] * len(paths)
        if self.kind == "column":
            raise SourceError("a folder has no columns: take labels from folder, none or regex:PATTERN")
        if self.pattern is None:
            folders = (path.split("/")[0] if "/" in path and "://" not in path else "" for path in paths)
            return [folder or None for folder in folders]
        found = [self.pattern.search(path) for path in paths]
        if paths and not any(found):
            raise SourceError(f"'regex:{self.pattern.pattern}' matches no path, such as '{paths[0]}'")
        return [None if one is None else one.group(1) or None for one in found]


@dataclass(frozen=True)
class SourceItem:
    """Image to index."""

    id: str  # Within the gallery
    path: ImageFile
    label: str | None = None  # None when unlabelled
    metadata: dict[str, Any] = field(default_factory=dict)  # As JSON can hold them
    problem: str | None = None  # Why it cannot be used, where the source tells before the file is read

    def checked(self) -> Self:
        """The item with its label in one form, or with its problem where it could not be kept or served."""
        if self.problem is not None:
            return self
        try:
            if not (is_utf8(self.id) and is_utf8(str(self.path))):
                raise ItemRefusedError("its file name is not UTF-8: rename it")
            checked_id(self.id)
            checked_metadata(self.metadata, self.id)
            label = checked_label(self.label, self.id)
        except ItemRefusedError as error:
            return replace(self, problem=str(error))
        return self if label == self.label else replace(self, label=label)


@dataclass(frozen=True)
class SourceOptions:
    """Options by which a source is read; a column that is None has its usual name.

    Attributes:
        prefix: Stands before every id, with a slash; '' for none. None: the own name of a folder, and none of
            any other source.
        label_from: `folder`: the topmost folder of the path; `column`: the label column; `none`;
            `regex:PATTERN`: the one group of the first match in the path; None: the column of a manifest, the
            folder of a folder; `auto`: the same unless the folders look like albums. Paths are those inside
            the folder, or as a manifest writes them.
        include_hidden: Also read hidden files and folders: bins, thumbnails and snapshots of systems.
    """

    prefix: str | None = ""
    label_from: str | None = None
    path_column: str | None = None
    label_column: str | None = None
    id_column: str | None = None
    embedding_column: str | None = None
    access: SourceAccess = PUBLIC
    include_hidden: bool = False

    def __post_init__(self) -> None:
        LabelRule.parse(self.label_from)

    @property
    def label_rule(self) -> LabelRule:
        """Rule by which labels are found."""
        return LabelRule.parse(self.label_from)

    def prefix_of(self, name: str) -> str:
        """Prefix that stands before every id; `name` is the source's own, '' where it is no folder."""
        prefix = (name if self.prefix is None else self.prefix).rstrip("/")
        return f"{prefix}/" if prefix else ""


def is_utf8(name: str) -> bool:
    """Tell whether a name can be written down: Python reads bytes that are not UTF-8 as half characters."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _unlike_classes(labels: Collection[str]) -> str | None:
    """Reason why folders are more likely albums than classes; None when they may be classes."""
    albums = album_names(labels)
    if len(labels) == 1:
        return f"all subfolders lie in one, '{next(iter(labels))}'"
    if 2 * len(albums) > len(labels):
        shown = ", ".join(f"'{one}'" for one in albums[:3])
        return f"{len(albums):,} of {len(labels):,} subfolders are named like dates or a camera's, as {shown}"
    return None


def labels_in(paths: Sequence[str], rule: LabelRule) -> tuple[list[str | None], str | None]:
    """Labels in the paths of a folder, and why there are none where its folders look like albums."""
    labels = rule.of_paths(paths)
    names = {label for label in labels if label is not None}
    if rule.kind == "auto" and names and (why := _unlike_classes(names)):
        return [None] * len(paths), f"no labels taken: {why}; ask for them by --label-from folder"
    return labels, None


def album_names(labels: Collection[str]) -> list[str]:
    """Names that are dates or folders of a camera, in order."""
    return sorted(one for one in labels if _DATE.fullmatch(one) or _CAMERA.fullmatch(one))


@dataclass(frozen=True)
class LabelSizes:
    """Number of items by label."""

    min: int
    median: int
    max: int


@dataclass(frozen=True)
class SourceLook:
    """Look at a source before it is read."""

    n_items: int
    n_labels: int
    n_unlabelled: int
    n_single_image_labels: int
    label_sizes: LabelSizes | None  # None without labels
    n_missing: int = 0  # Items whose file does not exist
    missing: str | None = None  # The first of these files
    # Items that cannot be used, as is known before a file is read; they count nowhere else
    n_unusable: int = 0
    unusable: str | None = None  # The first of them, with the reason
    # No images that can be read, by suffix, the most first
    other_files: Mapping[str, int] = field(default_factory=dict)
    # Archives too that were not looked into, or not to their end, with the reason
    unread_folders: Mapping[str, str] = field(default_factory=dict)
    hidden: Mapping[str, int] = field(default_factory=dict)  # Passed over, by name, the most first
    remarks: tuple[str, ...] = ()  # What to look at before a long run, a sentence each

    @classmethod
    def at(
        cls,
        labels: Iterable[str | None],
        *,
        missing: Sequence[str] = (),
        problems: Sequence[str] = (),
        remark: str | None = None,
        **others: Any,
    ) -> SourceLook:
        """Look at the labels of all items of a source; `remark` is what reading it had to say of them."""
        sizes = Counter(labels)
        n_unlabelled = sizes.pop(None, 0)
        named = {label: n for label, n in sizes.items() if label is not None}
        counts = sorted(named.values())
        return cls(
            n_items=sum(counts) + n_unlabelled,
            n_labels=len(named),
            n_unlabelled=n_unlabelled,
            n_single_image_labels=counts.count(1),
            label_sizes=LabelSizes(counts[0], statistics.median_low(counts), counts[-1]) if counts else None,
            n_missing=len(missing),
            missing=missing[0] if missing else None,
            n_unusable=len(problems),
            unusable=problems[0] if problems else None,
            remarks=(*([readable(remark)] if remark else []), *_suspicions(named)),
            **others,
        )

    def with_one_label(self) -> SourceLook:
        """Look at the same where all items get one label by hand, whatever the source's look like."""
        n = self.n_items
        return replace(
            self,
            n_labels=min(1, n),
            n_unlabelled=0,
            n_single_image_labels=int(n == 1),
            label_sizes=LabelSizes(n, n, n) if n else None,
            remarks=(),
        )


def mended_labels(n: int) -> str | None:
    """Number of items whose label was brought into one form; None where none was."""
    items = "1 item" if n == 1 else f"{n:,} items"
    return (
        f"labels of {items} are read without blanks at their ends, and in one form of Unicode" if n else None
    )


def suffix_counts(files: Mapping[str, int], most: int) -> str:
    """Numbers of files by suffix, and what would read them."""
    extras = {suffix: f" (read with {extra})" for suffix in files if (extra := with_extra(suffix))}
    counts = [
        f"{n:,} {suffix or 'without a suffix'}{extras.get(suffix, '')}"
        for suffix, n in Counter(files).most_common()
    ]
    more = [f"{len(counts) - most:,} other kinds"] if len(counts) > most else []
    return ", ".join(counts[:most] + more)


def _suspicions(sizes: Mapping[str, int]) -> Iterator[str]:
    n_items, albums = sum(sizes.values()), album_names(sizes)
    if albums:
        yield f"{_labels(albums)} named like dates or a camera's folders: {_shown(albums)}"
    largest = max(sizes, key=lambda one: sizes[one], default="")
    if len(sizes) == 1:
        yield f"there is one label only, '{largest}'"
    elif sizes and sizes[largest] >= _NEARLY_ALL * n_items:
        yield f"label '{largest}' holds {sizes[largest]:,} of the {n_items:,} items with a label"
    if len(sizes) > 1 and len(sizes) == n_items:
        yield "every item has a label of its own: nothing tells which photos show the same"
    if missing := [one for one in sizes if one.casefold() in _MISSING]:
        yield f"{_labels(missing)} written as programs write a missing value: {_shown(missing)}"
    twins = _alike(sizes, look_of)
    alike = _alike(sizes, lambda label: "".join(label.casefold().split()))
    if spellings := [group for group in alike if group not in twins]:
        examples = [" and ".join(f"'{one}'" for one in group) for group in spellings[:_SHOWN]]
        yield f"{_labels(spellings)} spelled in several ways: {'; '.join(examples)}"
    if twins:
        examples = [" and ".join(map(visible, group, repeat(group))) for group in twins[:_SHOWN]]
        yield f"{sum(map(len, twins)):,} labels look the same as another: {'; '.join(examples)}"


def _alike(labels: Iterable[str], key: Callable[[str], str]) -> list[list[str]]:
    """Labels of one key, where there are several."""
    alike: dict[str, list[str]] = {}
    for label in sorted(labels):
        alike.setdefault(key(label), []).append(label)
    return [group for group in alike.values() if len(group) > 1]


def _labels(found: Sequence[object]) -> str:
    return f"{len(found):,} label" + ("s are" if len(found) != 1 else " is")


def _shown(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > _SHOWN else ""
    return ", ".join(f"'{one}'" for one in names[:_SHOWN]) + more
