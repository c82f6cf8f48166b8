"""A look at a source before it is indexed: what it holds, what is left out, and labels that look wrong."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vicinal.indexer.item_rules import readable
from vicinal.indexer.sources.labels import album_names
from vicinal.models.decoding import with_extra

# A label with this share of the images, or more, tells little.
_NEARLY_ALL = 0.9
_SHOWN = 3
_MISSING = frozenset({"nan", "none", "null", "<na>", "nat"})


@dataclass(frozen=True)
class LabelSizes:
    """How many items a label has."""

    min: int
    median: int
    max: int


@dataclass(frozen=True)
class SourceLook:
    """What is in a source.

    Attributes:
        label_sizes: Items by label; None without labels.
        n_single_image_labels: Labels with one item.
        n_missing: Items whose file does not exist.
        missing: The first of these files.
        n_unusable: Items that cannot be used, as is known before a file is read; they count nowhere else.
        unusable: The first of them, with the reason.
        other_files: Files that are no images which can be read, by suffix, the most first.
        unread_folders: Folders and archives that were not looked into, or not to their end, each with the
            reason.
        hidden: Hidden folders and files that were passed over, by name, the most first.
        remarks: What to look at before a long run, a sentence each.
    """

    n_items: int
    n_labels: int
    n_unlabelled: int
    n_single_image_labels: int
    label_sizes: LabelSizes | None
    n_missing: int = 0
    missing: str | None = None
    n_unusable: int = 0
    unusable: str | None = None
    other_files: Mapping[str, int] = field(default_factory=dict)
    unread_folders: Mapping[str, str] = field(default_factory=dict)
    hidden: Mapping[str, int] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    @classmethod
    def at(
        cls,
        labels: Iterable[str | None],
        *,
        missing: Sequence[str] = (),
        problems: Sequence[str] = (),
        other_files: Mapping[str, int] | None = None,
        unread_folders: Mapping[str, str] | None = None,
        hidden: Mapping[str, int] | None = None,
        remark: str | None = None,
    ) -> SourceLook:
        """Look at the labels of a source.

        Args:
            labels: Those of all items.
            missing: Files of items that do not exist.
            problems: Items that cannot be used, each with the reason.
            other_files: Files that are no images which can be read, by suffix.
            unread_folders: Folders that were not looked into, each with the reason.
            hidden: Hidden folders and files that were passed over, by name.
            remark: What reading it had to say of the labels.
        """
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
            other_files=dict(Counter(other_files or {}).most_common()),
            unread_folders=dict(unread_folders or {}),
            hidden=dict(Counter(hidden or {}).most_common()),
            remarks=(*([readable(remark)] if remark else []), *_suspicions(named)),
        )

    def with_one_label(self) -> SourceLook:
        """The same where all items get one label by hand, whatever those of the source look like."""
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
    """Of how many items the label was brought into one form; None where none was."""
    items = "1 item" if n == 1 else f"{n:,} items"
    return (
        f"labels of {items} are read without blanks at their ends, and in one form of Unicode" if n else None
    )


def suffix_counts(files: Mapping[str, int], most: int) -> str:
    """How many files there are by suffix, and what would read them."""
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
    alike: dict[str, list[str]] = {}
    for label in sorted(sizes):
        alike.setdefault("".join(label.casefold().split()), []).append(label)
    spellings = [group for group in alike.values() if len(group) > 1]
    if spellings:
        examples = [" and ".join(f"'{one}'" for one in group) for group in spellings[:_SHOWN]]
        yield f"{_labels(spellings)} spelled in several ways: {'; '.join(examples)}"


def _labels(found: Sequence[object]) -> str:
    return f"{len(found):,} label" + ("s are" if len(found) != 1 else " is")


def _shown(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > _SHOWN else ""
    return ", ".join(f"'{one}'" for one in names[:_SHOWN]) + more
