"""Tests that a bundle is measured on: named data sets, from a TOML file or the command line."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from vicinal.models.configs.datasets import DatasetConfig, DemoCatalogConfig, RevisitedConfig
from vicinal.models.errors import ConfigError

__all__ = ["MeasurableConfig", "RetrievalTest", "load_tests", "parse_test"]

MeasurableConfig = Annotated[DatasetConfig | RevisitedConfig, Field(discriminator="kind")]
# Layouts that a folder says all about.
_KINDS: dict[str, type[BaseModel]] = {
    kind: config
    for config in (*get_args(get_args(DatasetConfig)[0]), RevisitedConfig)
    if config is not DemoCatalogConfig
    for kind in get_args(config.model_fields["kind"].annotation)
}


class RetrievalTest(BaseModel):
    """A named data set to measure on, with classes that training never saw.

    Attributes:
        name: Name of the test, which a bundle's metrics are listed under.
        dataset: Where its images come from; their roles say who searches whom.
        ks: Ranks of the hit rates and recalls; None takes those of the whole run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    dataset: MeasurableConfig
    ks: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(None, min_length=1)


def load_tests(path: Path, *, data_root: Path | None = None) -> list[RetrievalTest]:
    """Read the `[[tests]]` of a TOML file, such as a training recipe; its other tables are passed over.

    Args:
        path: The file.
        data_root: Folder that relative data set paths start from; the working directory when None.

    Raises:
        ConfigError: The file is missing, not TOML, has no tests, or one cannot work.
    """
    tests = _read(path).get("tests")
    if not isinstance(tests, list) or not tests:
        raise ConfigError(f"'{path}' has no [[tests]] to measure on")
    return [_test(_rooted(fields, data_root or Path.cwd()), f"'{path}': tests") for fields in tests]


def parse_test(text: str, *, split: str | None = None) -> RetrievalTest:
    """Read a data set as `KIND:ROOT`, with the settings that suit a measurement.

    Args:
        text: Such as `cub200:data/CUB_200_2011`, `folder:photos` or `manifest:photos/manifest.csv`.
        split: Part of the data set; None takes `test` of a layout that has parts, and all of a manifest.

    Raises:
        ConfigError: There is no such kind, or it has no such part.
    """
    kind, separator, root = text.partition(":")
    if not separator or not root or kind not in _KINDS:
        raise ConfigError(f"'{text}' is no data set: write KIND:ROOT, the kind one of {', '.join(_KINDS)}")
    fields = {"kind": kind, **_located(kind, Path(root)), **_part(kind, split), **_MEASURED.get(kind, {})}
    name = "-".join([fields["root"].name or kind, *([fields["split"]] if "split" in fields else [])])
    return _test({"name": name, "dataset": fields}, f"'{text}'")


# What a measurement needs besides: the roles, and the authors' way of drawing a gallery.
_MEASURED: dict[str, dict[str, Any]] = {
    "protocol": {"roles": ("gallery", "query", "absent")},
    "vehicle_id": {"gallery_seed": 0},
}


def _located(kind: str, root: Path) -> dict[str, Any]:
    if kind == "manifest" and root.suffix.lower() in (".csv", ".parquet"):
        return {"root": root.parent, "file": root.name}
    return {"root": root}


def _part(kind: str, split: str | None) -> dict[str, Any]:
    has_parts = "split" in _KINDS[kind].model_fields
    if split is not None and not has_parts:
        raise ConfigError(f"a data set of kind '{kind}' has no parts: leave out the split '{split}'")
    if split is None and (not has_parts or kind == "manifest"):
        return {}
    return {"split": split or "test"}


def _test(fields: Any, where: str) -> RetrievalTest:
    try:
        return TypeAdapter(RetrievalTest).validate_python(fields)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{where}: {place}: {first['msg']}") from error


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"there is no configuration '{path}'") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"'{path}' is not TOML: {error}") from error


def _rooted(fields: Any, data_root: Path) -> Any:
    # What has another form than a test is left as it is: the validation says what is wrong with it.
    if not isinstance(fields, dict) or not isinstance(fields.get("dataset"), dict):
        return fields
    dataset = fields["dataset"]
    root = {"root": data_root / dataset["root"]} if isinstance(dataset.get("root"), str) else {}
    return {**fields, "dataset": {**dataset, **root}}
