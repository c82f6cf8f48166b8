"""Labelled images of a data set, and the way to their pixels: in a folder or in a zip archive."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from PIL import Image

from vicinal.calibration.frozen import Frozen
from vicinal.models.decoding import ImageSource, decode_image
from vicinal.models.errors import DatasetError, ImageError

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class LabelledFile:
    """Image of a data set.

    Attributes:
        path: Path below the data set's root, or name inside `archive`, a zip archive there, empty for none.
        role: `train`; `test` (searched among its like); or, where a protocol tells them apart, `gallery`,
            `query` (its label is in the gallery), `absent` (it is not) and `unused`.
        super_label: Group of classes that `label` belongs to; empty where the data set has none.
        box: Left, top, right and bottom in pixels of the part that is meant; None for the whole image.
    """

    path: str
    label: str
    role: str = "train"
    super_label: str = ""
    archive: str = ""
    box: Box | None = None


ReadImage = Callable[[LabelledFile], ImageSource]


class ImageFolder(Frozen):
    """Folder of a data set, of any layout.

    Attributes:
        origin: Name of a published data set and its authors' page; empty for others.
        root: The folder; of a published data set the one that its archive unpacks to.
    """

    origin: ClassVar[str] = ""
    root: Path

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.root.name

    def find(self, *names: str) -> Path:
        """The first of these files that is there; more than one name are places that authors changed."""
        for name in names:
            if (self.root / name).is_file():
                return self.root / name
        wanted = " or ".join(f"'{name}'" for name in names)
        raise DatasetError(f"'{self.root}' has no file {wanted}: get {self.origin}")

    @contextmanager
    def open(self) -> Iterator[ReadImage]:
        """Open the data set for reading; archives are opened as they are needed.

        Gives a function from a row to what `decode_image` and the embedder take: the path of a file, the
        bytes of an archive's member, or the cut image where the row has a box. It raises a DatasetError where
        there is no such image, or its archive is missing or damaged.
        """
        with ExitStack() as stack:
            archives: dict[str, zipfile.ZipFile] = {}

            def read(file: LabelledFile) -> ImageSource:
                source: ImageSource = member(file) if file.archive else self.root / file.path
                if isinstance(source, Path) and not source.is_file():
                    advice = f": get {self.origin}" if self.origin else ""
                    raise DatasetError(f"'{self.root}' has no image '{file.path}', which it lists{advice}")
                return source if file.box is None else _cut(source, file.path, file.box)

            def member(file: LabelledFile) -> bytes:
                path = self.root / file.archive
                try:
                    if file.archive not in archives:
                        archives[file.archive] = stack.enter_context(zipfile.ZipFile(path))
                    return archives[file.archive].read(file.path)
                except KeyError as error:
                    raise DatasetError(f"archive '{path}' holds no '{file.path}'") from error
                except (OSError, zipfile.BadZipFile) as error:
                    raise DatasetError(f"archive '{path}' cannot be read: {error}") from error

            yield read


class PartedFolder(ImageFolder):
    """A data set in a folder whose authors say what is for training.

    Attributes:
        split: The part.
    """

    split: Literal["train", "test"] = "train"


class BoxedFolder(PartedFolder):
    """A data set of two parts with two ways to divide it, and a box for each image.

    Attributes:
        split_by: `class` is the split of metric learning, the first half of the classes and the second;
            `image` is the authors' own, in which both parts have every class.
        crop: Cut each image to the authors' bounding box.
    """

    split_by: Literal["class", "image"] = "class"
    crop: bool = False


def decoded(source: ImageSource, what: str, *, target_side: int | None = None) -> Image.Image:
    """Decode an image of a data set; see `decode_image`."""
    try:
        return decode_image(source, target_side=target_side)
    except ImageError as error:
        raise DatasetError(f"{what} cannot be used: {error.reason}") from error


def _cut(source: ImageSource, name: str, box: Box) -> Image.Image:
    image = decoded(source, f"image '{name}'")
    left, top, right, bottom = (round(edge) for edge in box)
    # A box may reach over the edge; what lies outside would come out black.
    edges = max(left, 0), max(top, 0), min(right, image.width), min(bottom, image.height)
    if edges[0] >= edges[2] or edges[1] >= edges[3]:
        raise DatasetError(f"image '{name}' is {image.width} x {image.height} pixels, its box is {box}")
    return image.crop(edges)
