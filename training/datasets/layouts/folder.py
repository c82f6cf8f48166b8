"""Class folders: one subfolder a class, its images inside."""

from __future__ import annotations

from typing import Literal

from vicinal.models.configs.value_texts import label_in_one_form
from vicinal.models.decoding import image_suffixes
from vicinal.models.errors import DatasetError
from vicinal.models.images.hidden_files import hidden_part
from vicinal.training.datasets.files import ImageFolder, LabelledFile


class FolderConfig(ImageFolder):
    """A folder with one subfolder a class."""

    kind: Literal["folder"]

    def rows(self) -> list[LabelledFile]:
        """Images of the subfolders, by path; other and hidden files are passed over."""
        if not self.root.is_dir():
            raise DatasetError(f"there is no folder '{self.root}'")
        paths = sorted(path for path in self.root.glob("*/*") if path.suffix.lower() in image_suffixes())
        files = [
            LabelledFile(path.relative_to(self.root).as_posix(), label_in_one_form(path.parent.name))
            for path in paths
        ]
        return [file for file in files if not hidden_part(file.path)]
