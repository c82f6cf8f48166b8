"""Tests that a bundle is measured on: named data sets, from a TOML file or the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BaseModel, Field

from vicinal.calibration.frozen import Frozen
from vicinal.models.configs.file import checked, models_of, read_toml
from vicinal.models.errors import ConfigError
from vicinal.training.datasets.layouts import DatasetConfig
from vicinal.training.evaluation.metrics import Distance


class RetrievalTest(Frozen):
    """A named data set to measure on, with classes that training never saw.

    Attributes:
        name: Name of the test, which a bundle's metrics are listed under.
        dataset: Where its images come from; their roles say who searches whom.
        ks: Ranks of the hit rates and recalls; None takes those of the whole run.
        distance: `cosine`, or `euclidean` for a network whose loss does not normalize embeddings; None takes
            that of the whole run.
    """

    name: str
    dataset: DatasetConfig
    ks: tuple[Annotated[int, Field(ge=1)], ...] | None = Field(None, min_length=1)
    distance: Distance | None = None


# Layouts that a folder says all about.
_KINDS = {
    kind: layout
    for layout in models_of(DatasetConfig)
    if "root" in layout.model_fields
    for kind in get_args(layout.model_fields["kind"].annotation)
}
# What a measurement needs besides.
_MEASURED: dict[str, dict[str, Any]] = {"protocol": {"roles": ("gallery", "query", "absent")}}


class _Tests(BaseModel):
    tests: tuple[RetrievalTest, ...]


def load_tests(path: Path, *, data_root: Path | None = None) -> tuple[RetrievalTest, ...]:
    """Read the `[[tests]]` of a TOML file, such as a training recipe; its other tables are passed over.

    Relative data set paths start from `data_root`; from the working directory when None.
    """
    fields = read_toml(path)
    if not fields.get("tests"):
        raise ConfigError(f"'{path}' has no [[tests]] to measure on")
    return checked(_Tests, fields, f"'{path}'", data_root=data_root).tests


def parse_test(text: str, *, split: str | None = None) -> RetrievalTest:
    """Read a data set as `KIND:ROOT`, with the settings that suit a measurement.

    The text is such as `folder:photos` or `manifest:photos/manifest.csv`; without a `split` it means `test`
    of a layout that has parts, and all of a manifest.
    """
    kind, separator, place = text.partition(":")
    if not separator or not place or kind not in _KINDS:
        raise ConfigError(
            f"'{text}' is no data set: write KIND:ROOT, the kind one of {', '.join(_KINDS)}; "
            "recipes/convert.py makes a manifest of a published one"
        )
    root, fields = Path(place), {"kind": kind, **_MEASURED.get(kind, {})}
    if kind == "manifest" and root.suffix.lower() in (".csv", ".parquet"):
        root, fields["file"] = root.parent, root.name
    has_parts = "split" in _KINDS[kind].model_fields
    if split is not None and not has_parts:
        raise ConfigError(f"a data set of kind '{kind}' has no parts: leave out the split '{split}'")
    part = split or ("test" if has_parts and kind != "manifest" else None)
    name = root.name or kind
    if part is not None:
        name, fields["split"] = f"{name}-{part}", part
    return checked(RetrievalTest, {"name": name, "dataset": {**fields, "root": root}}, f"'{text}'")
