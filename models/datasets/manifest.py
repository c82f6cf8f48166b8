"""Manifest: a CSV or Parquet table with the columns `path` and `label`.

It may have the columns `split`, `role` and `super_label`. Paths start from the manifest's folder unless they
are absolute; other columns are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from vicinal.models.configs.datasets import ManifestConfig
from vicinal.models.datasets.annotations import Line, read_csv
from vicinal.models.datasets.files import LabelledFile
from vicinal.models.errors import DatasetError

__all__ = ["read_manifest"]

_REQUIRED = ("path", "label")
_OPTIONAL = ("split", "role", "super_label")
_ROLES = ("train", "test", "gallery", "query", "absent", "unused")


def read_manifest(config: ManifestConfig) -> list[LabelledFile]:
    """Rows of the wanted split and roles, in file order; a row without a role has the role `train`.

    Raises:
        DatasetError: The manifest is missing, of another kind or damaged, lacks a column, has a row without
            path or label or with an unknown role, or has none of the wanted rows.
    """
    lines = list(_lines(config.root / config.file))
    if config.split is not None and any("split" not in line.fields for line in lines):
        raise DatasetError(
            f"'{config.root / config.file}' has no column 'split' to take '{config.split}' from"
        )
    wanted = config.roles or tuple(role for role in _ROLES if role != "unused")
    rows = [_row(line) for line in lines if config.split in (None, line.fields.get("split"))]
    chosen = [row for row in rows if row.role in wanted]
    if not chosen:
        split = "" if config.split is None else f" of split '{config.split}'"
        raise DatasetError(
            f"'{config.root / config.file}' has no images{split} with role {' or '.join(wanted)}"
        )
    return chosen


def _lines(path: Path) -> Iterator[Line]:
    if not path.is_file():
        raise DatasetError(f"there is no manifest '{path}'")
    match path.suffix.lower():
        case ".csv":
            return read_csv(path, _REQUIRED)
        case ".parquet":
            return _parquet_lines(path)
        case _:
            raise DatasetError(f"'{path}' is neither a .csv nor a .parquet manifest")


def _parquet_lines(path: Path) -> Iterator[Line]:
    try:
        table = pa.parquet.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise DatasetError(f"manifest '{path}' cannot be read: {error}") from error
    for column in _REQUIRED:
        if column not in table.column_names:
            raise DatasetError(f"'{path}' has no column '{column}', only {', '.join(table.column_names)}")
    kept = [column for column in (*_REQUIRED, *_OPTIONAL) if column in table.column_names]
    for number, row in enumerate(table.select(kept).to_pylist(), start=1):
        yield Line(path, number, {key: "" if value is None else str(value) for key, value in row.items()})


def _row(line: Line) -> LabelledFile:
    for column in _REQUIRED:
        if not line[column]:
            raise line.error(f"it has no {column}")
    role = line.fields.get("role") or "train"
    if role not in _ROLES:
        raise line.error(f"role '{role}', expected one of {', '.join(_ROLES)}")
    return LabelledFile(line["path"], line["label"], role, super_label=line.fields.get("super_label", ""))
