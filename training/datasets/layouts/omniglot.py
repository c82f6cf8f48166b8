"""Omniglot: 1,623 characters of 50 alphabets, each drawn by 20 people.

Lake, Salakhutdinov and Tenenbaum, "Human-level concept learning through probabilistic program induction",
Science 350, 2015. `images_background` and `images_evaluation` hold `<alphabet>/<character>/<image>.png`, as
folders or, as shipped, as zip archives; the repository has them in its folder `python`.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import ClassVar, Literal

from vicinal.models.errors import DatasetError
from vicinal.training.datasets.files import LabelledFile, PartedFolder

_PARTS = {"train": "images_background", "test": "images_evaluation"}


class OmniglotConfig(PartedFolder):
    """Omniglot: the folder with `images_background` and `images_evaluation`, unpacked or as zip archives.

    `train` is the background set, `test` the evaluation set.
    """

    origin: ClassVar[str] = "Omniglot from https://github.com/brendenlake/omniglot"
    kind: Literal["omniglot"]

    def rows(self) -> list[LabelledFile]:
        """Images of one part, by name; labels are such as `Greek/character05`, super-labels alphabets.

        A folder is preferred to the archive that it was unpacked from.
        """
        part = _PARTS[self.split]
        for above in ("", "python/"):
            folder = self.root / above / part
            if folder.is_dir():
                names = (path.relative_to(self.root).as_posix() for path in folder.glob("*/*/*.png"))
                return _rows(names, self.split)
        archive = self.find(f"{part}.zip", f"python/{part}.zip")
        return _rows(_members(archive, part), self.split, archive.relative_to(self.root).as_posix())


def _members(archive: Path, part: str) -> list[str]:
    try:
        with zipfile.ZipFile(archive) as opened:
            names = opened.namelist()
    except (OSError, zipfile.BadZipFile) as error:
        raise DatasetError(f"archive '{archive}' cannot be read: {error}") from error
    return [name for name in names if name.endswith(".png") and _is_drawing(PurePosixPath(name), part)]


def _is_drawing(path: PurePosixPath, part: str) -> bool:
    # Archives packed on a Mac hold a second, hidden tree.
    return len(path.parts) == 4 and path.parts[0] == part


def _rows(names: Iterable[str], role: str, archive: str = "") -> list[LabelledFile]:
    rows = []
    for name in sorted(names):
        alphabet, character = PurePosixPath(name).parts[-3:-1]
        rows.append(LabelledFile(name, f"{alphabet}/{character}", role, alphabet, archive))
    return rows
