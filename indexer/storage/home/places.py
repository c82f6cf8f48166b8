"""Places: which files of a data folder the home keeps, and in which order they are laid.

Of a gallery these are its table, versions, refiners, its space and the queries of jobs that are not over; of
the whole home its bundles. Paths are those below the data folder, with `/`.
"""

from __future__ import annotations

import re
from typing import Literal

GALLERIES = "galleries"
# Stands for the files of the whole home where galleries are named: no gallery has such a name.
WHOLE = ".home"
TOP = "bundles"
# The kind of index that stands for an engine, as a version's manifest names it.
ENGINE: Literal["milvus"] = "milvus"
# Vectors of a version, which a machine need not hold where an engine does.
VECTORS = ("embeddings.npy", "refined.npy")
TABLE, SEALS = "items.lance", "items.seals"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_KEPT = {(TABLE,), (SEALS,), ("versions",), ("refiners",), ("space",), ("calibrations", "uploads")}
_OWN_NAMES = {"checked.json", "damaged.json", "lock", "latest_version_hint.json"}
_OWN_ENDS = (".lock", ".partial", ".deleted")
_PENDING_TAG = "_refs/tags/pending.json"
_VERSION = re.compile(r"(galleries/[^/]+/versions/\d+)(/refined-[^/]+)?/")
# Written once and never changed: a link is as good as a copy.
_IMMUTABLE = (".lance", ".npy", ".npz", ".index", ".arrow", ".onnx")
# What names other files of its folder.
_LAST = ("bundle.json", "queries.parquet")
_DIGITS = 64


def is_kept(place: str) -> bool:
    """Tell whether the home keeps a file."""
    parts = place.split("/")
    if any(part.startswith(".") or part.endswith(_OWN_ENDS) for part in parts) or parts[-1] in _OWN_NAMES:
        return False
    if parts[0] != GALLERIES:
        return parts[0] == TOP and len(parts) > 1
    is_named = len(parts) > 2 and _NAME.fullmatch(parts[1]) is not None
    return (
        is_named and bool({tuple(parts[2:3]), tuple(parts[2:4])} & _KEPT) and not place.endswith(_PENDING_TAG)
    )


def gallery_of(place: str) -> str:
    """Name of the gallery that a file belongs to; `WHOLE` for one of the whole home."""
    parts = place.split("/")
    return parts[1] if parts[0] == GALLERIES and len(parts) > 2 else WHOLE


def folder_of(gallery: str) -> str:
    """Path of a gallery's folder."""
    return f"{GALLERIES}/{gallery}"


def below(gallery: str, place: str) -> str:
    """Path of a file below its gallery's folder; `place_in` is the way back."""
    return place if gallery == WHOLE else place.removeprefix(f"{GALLERIES}/{gallery}/")


def place_in(gallery: str, path: str) -> str:
    """Path of a file of a gallery below the data folder."""
    return path if gallery == WHOLE else f"{GALLERIES}/{gallery}/{path}"


def sha256_of(name: str) -> str:
    """SHA-256 of the content of the object of this name."""
    return name[:_DIGITS]


def is_table(place: str) -> bool:
    """Tell whether a file belongs to a gallery's table, which changes under its lease alone."""
    parts = place.split("/")
    return parts[0] == GALLERIES and len(parts) > 2 and parts[2] in (TABLE, SEALS)


def is_immutable(place: str) -> bool:
    """Tell whether a file is written once."""
    return place.endswith(_IMMUTABLE)


def has_unique_name(place: str) -> bool:
    """Tell whether no other content ever has a file's name: Lance draws those of its data."""
    parts = place.split("/")
    return len(parts) > 3 and parts[2] == TABLE and parts[3] in ("data", "_deletions", "_transactions")


def unit_of(place: str) -> tuple[str, str] | None:
    """Folder of a version, and the folder in it of items refined for it or '', which appear as a whole."""
    found = _VERSION.match(place)
    return None if found is None else (found[1], (found[2] or "").lstrip("/"))


def rank(place: str) -> int:
    """Number of the turn in which a file is laid: what names others comes after them."""
    parts = place.split("/")
    if is_table(place):
        order = {"_transactions": 1, "_versions": 3, "_refs": 4}
        return 2 if parts[2] == SEALS else order.get(parts[3], 0)
    return 5 if parts[-1] in _LAST else 0
