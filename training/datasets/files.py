"""Labelled images of a data set, and the way to their pixels: in a folder or in a zip archive."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from vicinal.calibration.frozen import Frozen
from vicinal.models.decoding import ImageSource, decode_image
from vicinal.models.errors import DatasetError, ImageError


@dataclass(frozen=True)
class LabelledFile:
    """Image of a data set.

    Attributes:
        path: Path below the data set's root, or name inside `archive`, a zip archive there, empty for none.
        role: `train`; `test` (searched among its like); or, where a protocol tells them apart, `gallery`,
            `query` (its label is in the gallery), `absent` (it is not) and `unused`.
        super_label: Group of classes that `label` belongs to; empty where the data set has none.
    """

    path: str
    label: str
    role: str = "train"
    super_label: str = ""
    archive: str = ""


ReadImage = Callable[[LabelledFile], ImageSource]


class ImageFolder(Frozen):
    """Folder of a data set, of any layout.

    Attributes:
        root: The folder.
    """

    root: Path

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.root.name

    @contextmanager
    def open(self) -> Iterator[ReadImage]:
        """Open the data set for reading; archives are opened as they are needed.

        Gives a function from a row to what `decode_image` and the embedder take: the path of a file, or the
        bytes of an archive's member. It raises a DatasetError where there is no such image, or its archive is
        missing or damaged.
        """
        with ExitStack() as stack:
            archives: dict[str, zipfile.ZipFile] = {}

            def read(file: LabelledFile) -> ImageSource:
                source: ImageSource = member(file) if file.archive else self.root / file.path
                if isinstance(source, Path) and not source.is_file():
                    raise DatasetError(f"'{self.root}' has no image '{file.path}', which it lists")
                return source

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


def decoded(source: ImageSource, what: str, *, target_side: int | None = None) -> Image.Image:
    """Decode an image of a data set; see `decode_image`."""
    try:
        return decode_image(source, target_side=target_side)
    except ImageError as error:
        raise DatasetError(f"{what} cannot be used: {error.reason}") from error
