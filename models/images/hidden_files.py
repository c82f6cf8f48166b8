"""Hidden files: bins, thumbnails, snapshots and notes that systems keep beside a person's own photos."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import PurePosixPath

# In small letters, beside every name that begins with a dot: .Trash-1000, .Trashes, .thumbnails, .@__thumb,
# .AppleDouble, .snapshot, .zfs, ._1.jpg.
_NAMES = frozenset(
    {
        # Windows
        *("$recycle.bin", "recycler", "recycled", "system volume information", "found.000"),
        *("thumbs.db", "ehthumbs.db", "ehthumbs_vista.db", "desktop.ini"),
        # macOS
        *("__macosx", "network trash folder", "temporary items", "icon\r"),
        # Linux
        "lost+found",
        # Network storage: Synology, QNAP, NetApp, Buffalo, Nextcloud
        *("@eadir", "@tmp", "@sharebin", "#recycle", "#snapshot", "@recycle", "@recently-snapshot"),
        *("~snapshot", "trashbox", "files_trashbin", "files_versions"),
    }
)
_APPLE_DOUBLE = "._"


def hidden_kind(name: str, *, is_folder: bool) -> str | None:
    """Name under which a hidden file or folder is counted; None where it is not hidden."""
    is_named = name.lower() in _NAMES
    if not is_named and (not name.startswith(".") or not name.strip(".")):
        return None
    if is_named or is_folder:
        return name.encode("utf-8", "replace").decode()
    # Files have a name of their own each, so that these would say nothing.
    return f"{_APPLE_DOUBLE}*" if name.startswith(_APPLE_DOUBLE) else ".*"


def hidden_part(inside: str) -> tuple[str, str] | None:
    """The part of a path that is hidden, with what it is counted under; None where nothing is."""
    parts = PurePosixPath(inside).parts
    for number, part in enumerate(parts, start=1):
        if kind := hidden_kind(part, is_folder=number < len(parts)):
            return "/".join(parts[:number]), kind
    return None


def count_hidden(paths: Iterable[str]) -> Counter[str]:
    """Count hidden folders and files above or at some paths, by what they are counted under."""
    parts = {hidden_part(one) for one in paths}
    return Counter(part[1] for part in parts if part is not None)
