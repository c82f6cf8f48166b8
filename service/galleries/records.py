"""Records of a gallery: which of its small files are damaged, and how to come by others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from vicinal.indexer.gallery import Gallery
from vicinal.indexer.storage.files import broken_files, read_bound, read_sealed
from vicinal.models.configs.sealed_json import BrokenSealError

_BACKUP = "bring it back from a backup, or index the gallery again"
# What to do, by where a file lies; the first that fits. `{}` is the gallery.
_REMEDIES = (
    ("active.copy.json", "nothing is read of it; the next change writes it anew"),
    ("identity.json", "bring it back from a backup, or remove it and calibrate again"),
    (
        "calibrations/active*.json",
        "put a calibration in force again by `vicinal calibration activate ID -g {}`",
    ),
    ("calibrations/pipeline.json", "let the settings choose again by `vicinal use -g {} --reset`"),
    ("calibrations/checks/*", "check again by `vicinal calibration check -g {} --queries FOLDER`"),
    ("calibrations/drift/*", "it is left out, and can be removed"),
    (
        "calibrations/*",
        "calibrate again, or put another one in force by `vicinal calibration activate ID -g {}`",
    ),
    ("comparisons/*", "compare again by `vicinal compare -g {}`"),
    ("duplicates/*", "look for them again by `vicinal duplicates -g {}`"),
    ("labelling/**/*", "begin anew by `vicinal label -g {} --restart`"),
    ("reports/*", "bring it back from a backup; the gallery is searched as before"),
)


def damaged_records(gallery: Gallery) -> list[str]:
    """Every record and pointer of a gallery that is not what was written, each with what to do.

    The files of versions and of the item table are looked at by `check_version`.
    """
    versions = gallery.path / "versions"
    broken = [path for path in broken_files(gallery.path) if versions not in path.parents]
    paths = dict.fromkeys([*broken, *_unbound_files(gallery.path)])
    return [f"'{path}' is damaged: {_remedy(gallery, path)}" for path in paths]


def _unbound_files(folder: Path) -> Iterator[Path]:
    """Files that are no JSON, and are not what the records beside them say."""
    for record in sorted((folder / "calibrations").glob("*.json")):
        fields = _fields(record)
        for name, suffix in (("scores_sha256", ".scores.npz"), ("curves_sha256", ".evidence.json.gz")):
            if fields.get(name) is not None:
                yield from _unlike(record.with_name(record.stem + suffix), fields[name])
    for session in sorted((folder / "labelling").glob("*/session.json")):
        yield from _unlike(session.with_name("pairs.npz"), _fields(session).get("pairs_sha256", ""))


def _fields(path: Path) -> dict[str, str | None]:
    try:
        return dict(json.loads(read_sealed(path)))
    except (OSError, BrokenSealError):
        # It is named itself.
        return {}


def _unlike(path: Path, sha256: str | None) -> Iterator[Path]:
    try:
        if sha256:
            read_bound(path, sha256)
    except (OSError, BrokenSealError):
        yield path


def _remedy(gallery: Gallery, path: Path) -> str:
    place = path.relative_to(gallery.path)
    if place == Path("active.json"):
        return gallery.pointer.remedy
    known = (remedy for pattern, remedy in _REMEDIES if _lies_in(place, pattern))
    return next(known, _BACKUP).format(gallery.name)


def _lies_in(place: Path, pattern: str) -> bool:
    if "**" in pattern:
        return place.parts[0] == pattern.split("/")[0]
    return len(place.parts) == pattern.count("/") + 1 and place.match(pattern)
