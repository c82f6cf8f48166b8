"""Golden answers: what an index, an addition, calibrations, searches, a check and a roll back say of two
sets of photos, beside what they are known to say.

    python -m tests.golden.answers             # name what differs; the status is 1 where anything does
    python -m tests.golden.answers --write     # keep the present answers

Numbers are compared with a tolerance, all else exactly. Times, drawn ids and folders are left out.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import re
import sys
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter

import vicinal
from vicinal.models.bundle import default_bundle_path
from vicinal.service.local_gallery import LocalGallery
from vicinal.service.request_fields import PipelineChoice

KEPT = Path(__file__).parent
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
# Two runs on one machine; `ACROSS` for two machines, whose float32 kernels differ.
TOLERANCE = 1e-12
ACROSS = 1e-5
N_SEARCHED = 20
# Times, where things lie, in how many steps changes were written, checksums of kept files, and words, which
# their own tests hold.
_LEFT_OUT = {
    "revision",
    *("milliseconds", "seconds", "created_at", "checked_at", "since", "calibration", "gallery_id", "uri"),
    *("scores_sha256", "curves_sha256", "points_sha256", "sentence", "warnings", "reason", "note", "remark"),
}
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True)
class PhotoSet:
    """Subset of a set of photos with a protocol, the same everywhere: by sorted names."""

    folder: str
    splits: tuple[str, ...]  # None of them trained the bundle
    n_labels: int  # Of the gallery
    n_added: int  # Further labels, which are added while the gallery is searched
    n_absent: int  # Labels that the gallery lacks
    n_photos: int  # Most photos of a label in the gallery
    n_queries: int  # Most queries of a label; half of them calibrate, the others search and check


SETS = {
    "groceries": PhotoSet("grocery", ("calibration", "test"), 24, 2, 11, 8, 8),
    "dogs": PhotoSet("dogfacenet", ("calibration",), 40, 5, 40, 4, 4),
}


def answers(name: str, data: Path, folder: Path) -> dict[str, Any]:
    """The golden answers of one set, as JSON; `folder` is an empty one to work in."""
    lists = _Lists(SETS[name], data, folder)
    settings: dict[str, Any] = {"device": "cpu", "index_device": "cpu", "threads": 1}
    places = {"data_dir": folder / "galleries", "bundle": default_bundle_path()}
    shop = vicinal.open_gallery(name, **places, **settings)
    queries = lists.searched
    told: dict[str, Any] = {
        "index": shop.index(lists.gallery).summary(),
        "add": [shop.add(lists.added), shop.add(lists.added, on_conflict="skip")],
        "calibrate": _calibrations(shop, lists.queries),
        "search": {
            "items": shop.search_many(queries, limit=3, include_candidates=True),
            "by_label": shop.search_many(queries[::6], limit=2, include_candidates=True, group_by="label"),
            "reranked": shop.search_many(queries[::4], limit=2, include_candidates=True, rerank="contextual"),
            "filtered": shop.search_many(queries[::5], limit=3, filter="metadata.place = 'even'"),
            "own_item": shop.search(item=lists.held[0].path, limit=4),
        },
        "check": shop.check(lists.checks),
        "promise": [re.findall(r"\d+", _DAY.sub("", sentence)) for sentence in shop.promise],
        "roll_back": _rolled_back(shop, lists, queries[::5]),
    }
    return dict(_plain(TypeAdapter(dict[str, Any]).dump_python(told, mode="json")))


def _calibrations(shop: LocalGallery, queries: Path) -> dict[str, Any]:
    """Of three pipelines, of which the last one each is in force, and for every kind of target."""
    wanted: dict[str, dict[str, Any]] = {
        "leave_one_out": {"target": "fpir=10%", "rerank": "off"},
        "queries": {"target": "fpir=10%", "rerank": "off", "queries": queries},
        "by_label": {"target": "fpir=10%", "queries": queries, "group_by": "label"},
        "reranked": {"target": "fpir=10%", "rerank": "contextual"},
        "visits": {"target": "fnir=20%", "rerank": "off", "visits_by": "place", "activate": False},
    }
    for target in ("far=0.01", "frr=10%", "precision=80%", "utility=mean"):
        wanted[target] = {"target": target, "rerank": "off", "activate": False}
    return {name: shop.calibrate(metric="cosine", **options) for name, options in wanted.items()}


def _rolled_back(shop: LocalGallery, lists: _Lists, queries: Sequence[Path]) -> dict[str, Any]:
    """The version of a changed source and its answers, and what is said after going back."""
    lists.change()
    told: dict[str, Any] = {"changed": shop.index(lists.gallery, delete=True).summary()}
    told["then"] = shop.search_many(queries, limit=2)
    shop.activate(1)
    told["back"] = shop.search_many(queries, limit=2)
    told["threshold"] = shop.matcher.roll_back(PipelineChoice()).threshold
    told["decided"] = shop.threshold
    told["removed"] = shop.remove([lists.held[0].path])
    told["without"] = shop.search(queries[0], limit=4, include_candidates=True)
    return told


class _Photo(NamedTuple):
    path: str  # Within its archive; also its id
    label: str


class _Lists:
    """Photos of a set in a folder, and manifests of them."""

    def __init__(self, photos: PhotoSet, data: Path, folder: Path) -> None:
        self._folder = folder
        found = _by_role(photos, data / photos.folder, folder)
        known = sorted(found["gallery"].keys() & found["query"].keys())
        held, added = known[: photos.n_labels], known[photos.n_labels :][: photos.n_added]
        absent = sorted(found["absent"])[: photos.n_absent]
        self.held = _first(found["gallery"], held, photos.n_photos)
        queries = [
            *_first(found["query"], held + added, photos.n_queries),
            *_first(found["absent"], absent, photos.n_queries),
        ]
        self.gallery = self._write("gallery", self.held)
        self.added = self._write("added", _first(found["gallery"], added, photos.n_photos))
        self.queries = self._write("queries", queries[::2])
        self.checks = self._write("checks", queries[1::2])
        self.searched = [folder / one.path for one in queries[1 :: len(queries) // N_SEARCHED]][:N_SEARCHED]

    def change(self) -> None:
        """Take some photos out of the gallery's own source, and give others another label."""
        kept = [one for n, one in enumerate(self.held) if n % 11]
        other = [one._replace(label="other") if n % 13 == 0 else one for n, one in enumerate(kept)]
        self._write("gallery", other)

    def _write(self, name: str, photos: Sequence[_Photo]) -> Path:
        path = self._folder / f"{name}.csv"
        with path.open("w", newline="", encoding="utf-8") as stream:
            rows = csv.writer(stream)
            rows.writerow(["id", "path", "label", "place"])
            rows.writerows((*one[:1], *one, ("even", "odd")[n % 2]) for n, one in enumerate(photos))
        return path


def _by_role(photos: PhotoSet, root: Path, folder: Path) -> dict[str, dict[str, list[_Photo]]]:
    """Photos by role and label; those of the splits are unpacked."""
    found: dict[str, dict[str, list[_Photo]]] = defaultdict(lambda: defaultdict(list))
    for split in photos.splits:
        with zipfile.ZipFile(root / f"{split}.zip") as archive:
            archive.extractall(folder)
    with (root / "protocol.csv").open(newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            if row["split"] in photos.splits:
                found[row["role"]][row["label"]].append(_Photo(row["path"], row["label"]))
    return found


def _first(photos: dict[str, list[_Photo]], labels: Sequence[str], n: int) -> list[_Photo]:
    return [one for label in labels for one in sorted(photos[label])[:n]]


def _plain(value: Any) -> Any:
    """JSON without nulls, records' ids, and what is left out."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    left_out = {*_LEFT_OUT, "id"} if "evidence" in value else _LEFT_OUT
    return {key: _plain(one) for key, one in value.items() if one is not None and key not in left_out}


def differences(kept: Any, now: Any, tolerance: float = TOLERANCE, where: str = "") -> Iterator[str]:
    """Name what differs between two JSON values; floats may by the tolerance, absolute or relative."""
    if isinstance(kept, dict) and isinstance(now, dict):
        for key in [*kept, *(now.keys() - kept.keys())]:
            place = f"{where}.{key}" if where else key
            if key not in now:
                yield f"{place} is missing"
            elif key not in kept:
                yield f"{place} is new: {_short(now[key])}"
            else:
                yield from differences(kept[key], now[key], tolerance, place)
    elif isinstance(kept, list) and isinstance(now, list):
        if len(kept) != len(now):
            yield f"{where} has {len(now)} entries, not {len(kept)}"
        for place, (one, other) in enumerate(zip(kept, now, strict=False)):
            yield from differences(one, other, tolerance, f"{where}[{place}]")
    elif not _is_same(kept, now, tolerance):
        yield f"{where}: {_short(kept)} -> {_short(now)}"


def _is_same(kept: Any, now: Any, tolerance: float) -> bool:
    if isinstance(kept, float) and isinstance(now, float):
        return math.isclose(kept, now, rel_tol=tolerance, abs_tol=tolerance)
    return type(kept) is type(now) and bool(kept == now)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:79]}…"


def read(name: str, folder: Path = KEPT) -> Any:
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the answers of every set with the kept ones, or keep them."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.answers", description=__doc__)
    parser.add_argument("--write", action="store_true", help="keep the present answers")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE, help="of floats, absolute or relative")
    parser.add_argument("--kept", type=Path, default=KEPT, help="folder of the kept answers")
    parser.add_argument("--data", type=Path, default=os.environ.get("VICINAL_TEST_DATA", DATA))
    given = parser.parse_args(arguments)
    n_differences = 0
    for name in SETS:
        with tempfile.TemporaryDirectory() as folder:
            now = answers(name, Path(given.data), Path(folder))
        if given.write:
            text = json.dumps(now, indent=0, ensure_ascii=False)
            (given.kept / f"{name}.json").write_text(text + "\n", encoding="utf-8")
            continue
        found = list(differences(read(name, given.kept), now, given.tolerance))
        sys.stdout.writelines(f"{name}: {one}\n" for one in found or ["nothing differs"])
        n_differences += len(found)
    return min(n_differences, 1)


if __name__ == "__main__":
    sys.exit(main())
