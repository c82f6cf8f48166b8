"""Two image sets that no model of the project has seen, made of what openly licensed packages ship.

`things`: photographed things, cut out, from the stamps of Tux Paint. The gallery has each once, on white.
A query is the same photo in another setting. `symbols`: emoji as two vendors draw them in the gallery, and
as a third draws them in the queries. Below the folder of packages lie the unpacked contents of each:

| folder | package |
|---|---|
| `tuxpaint-stamps-default`, `mate-backgrounds` | Debian packages of these names |
| `emoji-datasource-google`, `emoji-datasource-twitter` | npm packages of these names |
| `fluent-emoji-3d` | npm package `@lobehub/fluent-emoji-3d` |
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

__all__ = ["SETS", "Example", "ExampleSet", "drawn_symbols", "photographed_things", "role_of", "write_set"]

SIDE = 256
WHITE = (255, 255, 255)
# Folders of stamps that are drawn, or that hold letters and the like.
_DRAWN = {"cartoon", "symbols", "seasonal"}


@dataclass(frozen=True)
class Example:
    """One image of a set.

    Attributes:
        label: What it shows.
        view: How it was made.
        coarse: Kind of thing, to tell near strangers from far ones.
        image: RGB.
    """

    label: str
    view: str
    coarse: str
    image: Image.Image


@dataclass(frozen=True)
class ExampleSet:
    """Manifests of a set on disk. Their column `role` holds `gallery`, `query` or `absent`.

    Attributes:
        gallery: What is indexed.
        calibration: Queries that the threshold is calibrated on.
        queries: Queries of other labels, that it is tried on.
    """

    gallery: Path
    calibration: Path
    queries: Path


def photographed_things(packages: Path) -> Iterator[Example]:
    """Every photographed stamp: once on white for the gallery, and three times as a query.

    `scene`: smaller, mirrored, turned, before a photographed background. `part`: the middle 60 % of its width
    and height. `dim`: dark and yellowish, 64 pixels, strongly compressed.
    """
    root = packages / "tuxpaint-stamps-default" / "usr/share/tuxpaint/stamps"
    backgrounds = sorted((packages / "mate-backgrounds/usr/share/backgrounds/mate/nature").glob("*.jpg"))
    for path in _without_copies(sorted(root.rglob("*.png"))):
        name = path.relative_to(root).with_suffix("")
        if _DRAWN & set(name.parts) or name.name.endswith("_mirror"):
            continue
        thing, draw = _cut_out(path), np.random.default_rng(crc32(str(name).encode()))
        label, coarse = name.name.replace("_", " ").lower(), "/".join(name.parts[:-1])
        upright = _on_white(thing)
        if all(low == high for low, high in upright.getextrema()):
            continue  # white on white
        yield Example(label, "gallery", coarse, upright)
        yield Example(label, "scene", coarse, _in_scene(thing, backgrounds, draw))
        yield Example(label, "part", coarse, _middle(upright, 0.6))
        yield Example(label, "dim", coarse, _dim(upright))


def drawn_symbols(packages: Path) -> Iterator[Example]:
    """Every emoji that all three vendors draw: two drawings for the gallery, one as a query.

    Skin tones are left out. So are flags: the third package has those of the first.
    """
    sources = {
        "noto": packages / "emoji-datasource-google/package/img/google/64",
        "twemoji": packages / "emoji-datasource-twitter/package/img/twitter/64",
    }
    described = json.loads((packages / "emoji-datasource-google/package/emoji.json").read_text("utf-8"))
    third = {_code(path.stem): path for path in (packages / "fluent-emoji-3d/package/assets").glob("*.webp")}
    for one in sorted(described, key=lambda one: one["unified"]):
        paths = {name: folder / one["image"] for name, folder in sources.items()}
        code = _code(one["unified"])
        if (
            one["category"] == "Flags"
            or code not in third
            or not all(path.is_file() for path in paths.values())
        ):
            continue
        for name, path in paths.items():
            yield Example(one["short_name"], f"gallery {name}", one["subcategory"], _on_white(_cut_out(path)))
        yield Example(one["short_name"], "fluent", one["subcategory"], _on_white(_cut_out(third[code])))


SETS: dict[str, Callable[[Path], Iterator[Example]]] = {
    "things": photographed_things,
    "symbols": drawn_symbols,
}


def role_of(label: str) -> tuple[bool, bool]:
    """Whether the gallery has a label, two of three; and whether its queries calibrate, every second one.

    Both are drawn from the label alone, so that they stay when the packages change.
    """
    number = crc32(label.encode())
    return number % 3 != 0, number // 3 % 2 == 0


def write_set(examples: Iterator[Example], folder: Path) -> ExampleSet:
    """Write the images of a set and its three manifests.

    Raises:
        ValueError: Nothing was found in the packages.
    """
    rows: dict[str, list[list[str]]] = {"gallery": [], "calibration": [], "queries": []}
    for number, one in enumerate(examples):
        known, calibrates = role_of(one.label)
        in_gallery = one.view.startswith("gallery")
        if in_gallery and not known:
            continue
        part = "gallery" if in_gallery else "calibration" if calibrates else "queries"
        role = "gallery" if in_gallery else "query" if known else "absent"
        path = folder / "images" / f"{number:05}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        one.image.save(path)
        name = f"{one.label}/{one.view}"
        rows[part].append([f"images/{path.name}", name, one.label, one.coarse, one.view, role])
    if not rows["gallery"]:
        raise ValueError("the folder of packages holds no images of this set: unpack the packages there")
    written = {name: folder / f"{name}.csv" for name in rows}
    for name, path in written.items():
        with path.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(["path", "id", "label", "coarse", "view", "role"])
            writer.writerows(sorted(rows[name], key=lambda row: row[1]))
    return ExampleSet(**written)


def _code(name: str) -> str:
    """Code points without the selector of the colored form, which vendors write or leave out."""
    return "-".join(part for part in name.lower().split("-") if part != "fe0f")


def _without_copies(paths: list[Path]) -> Iterator[Path]:
    seen: set[bytes | str] = set()
    for path in paths:
        content, name = path.read_bytes(), path.stem.replace("_", " ").lower()
        if not {content, name} & seen:
            yield path
        seen |= {content, name}


def _cut_out(path: Path) -> Image.Image:
    """The image without its transparent border, with an alpha channel."""
    with Image.open(path) as opened:
        image = opened.convert("RGBA")
    return image.crop(image.getchannel("A").getbbox())


def _placed(thing: Image.Image, ground: Image.Image, share: float) -> Image.Image:
    """The thing in the middle of a ground, its longer side `share` of the ground's."""
    fitted = ImageOps.contain(thing, (round(share * SIDE), round(share * SIDE)), Image.Resampling.LANCZOS)
    ground = ground.copy()
    ground.paste(fitted, ((SIDE - fitted.width) // 2, (SIDE - fitted.height) // 2), fitted)
    return ground


def _on_white(thing: Image.Image) -> Image.Image:
    return _placed(thing, Image.new("RGB", (SIDE, SIDE), WHITE), 0.9)


def _in_scene(thing: Image.Image, backgrounds: list[Path], draw: np.random.Generator) -> Image.Image:
    with Image.open(backgrounds[draw.integers(len(backgrounds))]) as opened:
        opened.draft("RGB", (4 * SIDE, 4 * SIDE))
        ground = ImageOps.fit(opened.convert("RGB"), (SIDE, SIDE), Image.Resampling.LANCZOS)
    turned = ImageOps.mirror(thing).rotate(
        float(draw.uniform(-20, 20)), Image.Resampling.BICUBIC, expand=True
    )
    return _placed(turned, ground, 0.65)


def _middle(image: Image.Image, share: float) -> Image.Image:
    border = round((1 - share) / 2 * SIDE)
    return image.crop((border, border, SIDE - border, SIDE - border))


def _dim(image: Image.Image) -> Image.Image:
    small = ImageEnhance.Brightness(image.resize((64, 64), Image.Resampling.LANCZOS)).enhance(0.4)
    warm = Image.merge(
        "RGB",
        [
            band.point(lambda v, f=factor: round(v * f))
            for band, factor in zip(small.split(), (1, 0.85, 0.6), strict=True)
        ],
    )
    encoded = io.BytesIO()
    warm.save(encoded, "JPEG", quality=30)
    with Image.open(encoded) as opened:
        return opened.convert("RGB")
