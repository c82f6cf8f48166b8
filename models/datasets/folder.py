"""Class folders: one subfolder a class, its images inside."""

from __future__ import annotations

from vicinal.models.configs.datasets import FolderConfig
from vicinal.models.datasets.files import LabelledFile
from vicinal.models.decoding import IMAGE_SUFFIXES
from vicinal.models.errors import DatasetError

__all__ = ["read_folder"]


def read_folder(config: FolderConfig) -> list[LabelledFile]:
    """Images of the subfolders, by path; other files are passed over.

    Raises:
        DatasetError: There is no such folder.
    """
    if not config.root.is_dir():
        raise DatasetError(f"there is no folder '{config.root}'")
    paths = sorted(path for path in config.root.glob("*/*") if path.suffix.lower() in IMAGE_SUFFIXES)
    return [LabelledFile(path.relative_to(config.root).as_posix(), path.parent.name) for path in paths]
