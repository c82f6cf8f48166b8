"""Image sets with a fixed protocol, laid out as a user would have them: files and manifests."""

from __future__ import annotations

import argparse
import csv
from dataclasses import dataclass
from pathlib import Path

from vicinal.models.bundle import default_bundle_path
from vicinal.training.datasets.layouts.protocol import ProtocolConfig

__all__ = ["Part", "coarse_labels", "extract_part", "extract_photos", "protocol_parser"]


@dataclass(frozen=True)
class Part:
    """One part (calibration or test) of an image set, on disk.

    Attributes:
        gallery: Manifest of the gallery images.
        queries: Manifest of all queries, with and without a mate; the column `role` tells. Both have a column
            `coarse`, empty for sets without coarse labels.
    """

    gallery: Path
    queries: Path


def coarse_labels(root: Path, labels: set[str]) -> dict[str, str]:
    """Coarse label of each label: class of groceries, alphabet of characters; none for dogs."""
    if (root / "classes.csv").is_file():
        with (root / "classes.csv").open(newline="", encoding="utf-8") as stream:
            found = {
                row["Class Name (str)"]: row["Coarse Class Name (str)"] for row in csv.DictReader(stream)
            }
        return {label: found[label] for label in labels}
    return {label: label.rpartition("/")[0] for label in labels if "/" in label}


def extract_part(root: Path, split: str, folder: Path) -> Part:
    """Unpack one split of a protocol folder and write its manifests."""
    named = {"gallery": ("gallery",), "queries": ("query", "absent")}
    return Part(**{name: _extract(root, split, roles, folder, name) for name, roles in named.items()})


def extract_photos(root: Path, folder: Path) -> Path:
    """Unpack the training part of a protocol folder; its manifest."""
    return _extract(root, "train", ("train",), folder, "photos")


def _extract(root: Path, split: str, roles: tuple[str, ...], folder: Path, name: str) -> Path:
    config = ProtocolConfig(kind="protocol", root=root, split=split, roles=roles)
    rows, manifest = config.rows(), folder / f"{name}.csv"
    coarse = coarse_labels(root, {row.label for row in rows})
    with config.open() as read:
        for row in rows:
            path = folder / "images" / row.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(read(row))
    with manifest.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["path", "id", "label", "role", "coarse"])
        writer.writerows(
            [f"images/{row.path}", row.path, row.label, row.role, coarse.get(row.label, "")] for row in rows
        )
    return manifest


def protocol_parser(description: str | None) -> argparse.ArgumentParser:
    """Options of what is measured on parts of the sets, by one bundle, at one FPIR."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, required=True, help="folder with one protocol folder a set")
    parser.add_argument("--sets", nargs="+", default=["grocery", "dogfacenet", "omniglot"])
    parser.add_argument("--parts", nargs="+", default=["calibration", "test"])
    parser.add_argument("--bundle", type=Path, default=default_bundle_path())
    parser.add_argument("--fpir", type=float, default=0.05)
    return parser
