"""Image sets with a fixed protocol, laid out as a user would have them: files and manifests."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from models.datasets.protocol import open_archives, read_protocol

__all__ = ["Part", "extract_part"]


@dataclass(frozen=True)
class Part:
    """One part (calibration or test) of an image set, on disk.

    Attributes:
        gallery: Manifest of the gallery images.
        queries: Manifest of all queries, with and without a mate; the column `role` tells.
    """

    gallery: Path
    queries: Path


def extract_part(root: Path, split: str, folder: Path) -> Part:
    """Unpack one split of a protocol folder and write its manifests."""
    rows = read_protocol(root, split=split, roles=("gallery", "query", "absent"))
    with open_archives(root) as read:
        for row in rows:
            path = folder / "images" / row.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(read(row))
    manifests = {}
    for name, roles in (("gallery", {"gallery"}), ("queries", {"query", "absent"})):
        manifests[name] = folder / f"{name}.csv"
        with manifests[name].open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(["path", "id", "label", "role"])
            writer.writerows(
                [f"images/{row.path}", row.path, row.label, row.role] for row in rows if row.role in roles
            )
    return Part(**manifests)
