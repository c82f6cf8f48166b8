"""How many made copies `vicinal duplicates` finds among real photos, and how many of its pairs are none.

All photos of one part of an image set are indexed together with one changed copy of some of them, drawn by a
seed. What could go is then compared with what was made. Photos of the sets themselves that are paired are
counted as wrong, although some are true copies: the same shot cut or saved anew. Those that were looked at
and are copies stand in `duplicates_judged.csv`, and a second figure leaves them out.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.record import save_result
from vicinal.indexer.duplicates.made_copies import CHANGES, make_copy
from vicinal.indexer.gallery import Gallery
from vicinal.indexer.hygiene import are_same_pictures
from vicinal.indexer.jobs.index_job import index_items
from vicinal.indexer.reader import GalleryReader
from vicinal.indexer.sources import SourceItem
from vicinal.indexer.storage.item_table import as_matrix
from vicinal.models.decoding import decode_image
from vicinal.service.duplicates.finding import find_duplicates
from vicinal.service.duplicates.record import DuplicateOptions, DuplicateRecord
from vicinal.service.galleries.bundles import ServedBundles
from vicinal.service.settings import Settings

SETS = ("grocery", "dogfacenet")
JUDGED = Path(__file__).with_name("duplicates_judged.csv")
_MADE = "made/"


def read_judged() -> set[frozenset[str]]:
    """Pairs of the sets' own photos that are the same shot."""
    with JUDGED.open(encoding="utf-8", newline="") as stream:
        return {frozenset((row["first"], row["second"])) for row in csv.DictReader(stream)}


def write_photos(archive: Path, folder: Path, n_copies: int, seed: int) -> dict[str, tuple[str, Path]]:
    """Photos of a set and made copies: the name of the photo and the file of each item.

    Args:
        archive: Zip file of a part.
        folder: Where to write.
        n_copies: Photos that get a copy.
        seed: Draws these, and their changes.
    """
    rng = np.random.default_rng(seed)
    with zipfile.ZipFile(archive) as stored:
        stored.extractall(folder)
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.jpg"))
    items = {name: (name, folder / name) for name in names}
    (folder / _MADE).mkdir()
    for number, place in enumerate(rng.choice(len(names), n_copies, replace=False)):
        change = CHANGES[number % len(CHANGES)]
        file = folder / _MADE / f"{number} {change}.jpg"
        file.write_bytes(make_copy(decode_image(folder / names[place]), change, rng))
        items[f"{_MADE}{number} {change}"] = (names[place], file)
    return items


def count(record: DuplicateRecord, items: dict[str, tuple[str, Path]]) -> dict[str, Any]:
    """What was found of the made copies, by change, and which pairs are none of them."""
    judged = read_judged()
    found: set[str] = set()
    wrong: list[tuple[str, str, float]] = []
    n_pairs = n_judged = 0
    for group in record.groups:
        for copy in group.copies:
            first, second = group.kept.id, copy.id
            n_pairs += 1
            if items[first][0] == items[second][0]:
                found |= {one for one in (first, second) if one.startswith(_MADE)}
            elif frozenset((items[first][0], items[second][0])) in judged:
                n_judged += 1
            else:
                wrong.append((items[first][0], items[second][0], copy.score or 0.0))
    made = [one for one in items if one.startswith(_MADE)]
    by_change = {
        change: [
            sum(one in found for one in made if one.endswith(change)),
            sum(one.endswith(change) for one in made),
        ]
        for change in CHANGES
    }
    return {
        "n_made": len(made),
        "n_made_found": len(found),
        "by_change": by_change,
        "n_pairs": n_pairs,
        "n_own_copies": n_judged,
        "n_wrong": len(wrong),
        "wrong": wrong,
        "precision": 1.0 - len(wrong) / n_pairs if n_pairs else None,
        "precision_all_own_wrong": 1.0 - (len(wrong) + n_judged) / n_pairs if n_pairs else None,
    }


def quick_look(gallery: Gallery, items: dict[str, tuple[str, Path]]) -> int:
    """Made copies that the index job's report would count: near in the embedding, and alike as they lie."""
    view = GalleryReader(gallery).view()
    made = [one for one in items if one.startswith(_MADE)]
    first, second = view.positions(made), view.positions([items[one][0] for one in made])
    similarities = np.einsum("nd,nd->n", view.vectors(first), view.vectors(second))
    signatures = as_matrix(gallery.table.columns(view.revision, ["signature"])["signature"])
    return int((are_same_pictures(signatures[first], signatures[second]) & (similarities >= 0.9)).sum())


def run(data: Path, name: str, split: str, n_copies: int, seed: int) -> dict[str, Any]:
    """One gallery: what was found, and how long it took."""
    with tempfile.TemporaryDirectory() as folder:
        items = write_photos(data / name / f"{split}.zip", Path(folder) / "photos", n_copies, seed)
        settings = Settings(data_dir=Path(folder) / "data", device="cpu")
        gallery = Gallery(settings.gallery_path("gallery"))
        sources = [SourceItem(one, path) for one, (_, path) in items.items()]
        index_items(gallery, sources, ServedBundles(settings).own.embedder)
        started = time.perf_counter()
        record = find_duplicates(gallery, GalleryReader(gallery).view(), DuplicateOptions(seed=seed), "run")
        seconds = time.perf_counter() - started
        result = {"set": name, "split": split, "seed": seed, "n_items": len(items), **count(record, items)}
        result |= {"seconds": round(seconds, 1), "quick_look_found": quick_look(gallery, items)}
        return result | {"threshold": record.threshold and record.threshold.model_dump()}


def main() -> None:
    """Measure, and keep the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="folder of the image sets")
    parser.add_argument("--split", default="test")
    parser.add_argument("--copies", type=int, nargs="+", default=[400, 100])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-result", action="store_true", help="print only")
    options = parser.parse_args()
    rows = []
    for name in SETS:
        for n_copies in options.copies:
            row = run(options.data, name, options.split, n_copies, options.seed)
            rows.append(row)
            print({key: value for key, value in row.items() if key != "wrong"}, flush=True)
            print(*row["wrong"], sep="\n", flush=True)
    if not options.no_result:
        save_result("duplicates", {"runs": rows})


if __name__ == "__main__":
    main()
