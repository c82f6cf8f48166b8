"""Labels of a source: where they are taken from, and which folder names are albums rather than classes."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Self, get_args

from vicinal.indexer.errors import SourceError

_Kind = Literal["given", "auto", "folder", "none", "column", "regex"]
# A year, or a month or a day of one; these also before other words.
_DATE = re.compile(r"(19|20)\d\d([-_. ]?(0[1-9]|1[0-2])([-_. ]?(0[1-9]|[12]\d|3[01]))?(\D.*)?)?")
# What cameras and telephones call their folders.
_CAMERA = re.compile(
    r"dcim|img|img_\d+|images?|camera( roll)?|whatsapp images|screenshots|misc|\d{3}_\d{4}"
    r"|\d{3}_?(canon|nikon|apple|msdcf|pana|olymp|fuji|gopro|media|andro|casio|kodak|pentx|ricoh|sigma|d\d{4})",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class LabelRule:
    """Where labels are taken from.

    Attributes:
        kind: Which rule; `given`: the column of a manifest, the topmost folder inside a folder.
        pattern: What to look for in paths, of `regex`.
    """

    kind: _Kind
    pattern: re.Pattern[str] | None = None

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
            return [_topmost(path) for path in paths]
        found = [self.pattern.search(path) for path in paths]
        if paths and not any(found):
            raise SourceError(f"'regex:{self.pattern.pattern}' matches no path, such as '{paths[0]}'")
        return [None if one is None else one.group(1) or None for one in found]


def _unlike_classes(labels: Collection[str]) -> str | None:
    """Why folders are more likely albums than classes; None when they may be classes."""
    albums = album_names(labels)
    if len(labels) == 1:
        return f"all subfolders lie in one, '{next(iter(labels))}'"
    if 2 * len(albums) > len(labels):
        shown = ", ".join(f"'{one}'" for one in albums[:3])
        return f"{len(albums):,} of {len(labels):,} subfolders are named like dates or a camera's, as {shown}"
    return None


def labels_in(paths: Sequence[str], rule: LabelRule) -> tuple[list[str | None], str | None]:
    """Labels that stand in the paths of a folder, and why there are none where its folders look like albums.

    Args:
        paths: Paths inside the folder.
        rule: Where labels are taken from.

    Raises:
        SourceError: The rule needs columns, or its pattern matches nothing.
    """
    labels = rule.of_paths(paths)
    names = {label for label in labels if label is not None}
    if rule.kind == "auto" and names and (why := _unlike_classes(names)):
        return [None] * len(paths), f"no labels taken: {why}; ask for them by --label-from folder"
    return labels, None


def album_names(labels: Collection[str]) -> list[str]:
    """Those that are dates or folders of a camera, in order."""
    return sorted(one for one in labels if _DATE.fullmatch(one) or _CAMERA.fullmatch(one))


def _topmost(path: str) -> str | None:
    """The topmost folder of a relative path."""
    return path.split("/")[0] or None if "/" in path and "://" not in path else None
