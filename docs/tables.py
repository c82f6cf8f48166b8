"""Tables of every setting and of every key of a training recipe, made from what they are of.

Run it from the root of the repository to bring docs/settings.md and docs/training.md up to date (`make
docs`); a test compares them.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from vicinal.models.configs.file import models_of
from vicinal.service.settings import Settings
from vicinal.training.datasets.layouts import DatasetConfig

__all__ = [
    "BEGIN",
    "END",
    "TABLES",
    "documented",
    "settings_table",
    "training_tables",
    "with_tables",
]

BEGIN, END = "<!-- keys: begin -->", "<!-- keys: end -->"
# Tables of their own: there are many kinds.
_DATA_SETS = ("datasets", "validation_datasets", "dataset")
# Made from the setting `refine` and the bundle, whatever the environment says.
_NOT_SETTINGS = ("pipeline.refine",)
_ATTRIBUTE = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


def with_tables(page: str, tables: str) -> str:
    """The page with its tables made anew."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}"


def settings_table(model: type[BaseModel] = Settings) -> str:
    """Markdown of the table of all settings.

    Raises:
        KeyError: A setting is not described in the docstring of its class.
    """
    head = ["| in `vicinal.toml` | as environment variable | default | what |", "|---|---|---|---|"]
    return "\n".join([*head, *_setting_rows(model, "")])


def _setting_rows(model: type[BaseModel], prefix: str) -> Iterator[str]:
    texts = documented(model)
    for name, field in model.model_fields.items():
        key = f"{prefix}{name}"
        nested = models_of(field.annotation)
        if key in _NOT_SETTINGS:
            continue
        if nested:
            yield from _setting_rows(nested[0], f"{key}.")
        else:
            variable = f"VICINAL_{key.upper().replace('.', '__')}"
            yield f"| `{key}` | `{variable}` | {_setting_default(name, field)} | {texts[name]} |"


def _setting_default(name: str, field: FieldInfo) -> str:
    # They depend on the machine.
    known = {"data_dir": '`"~/.vicinal"`', "bundle": "the one that ships"}
    if field.is_required():
        # A setting of a group that is off while this one is missing.
        return "none"
    value = _default_value(field)
    return known.get(name) or ("none" if value in (None, "", {}) else f"`{_toml(value)}`")


def training_tables() -> str:
    """Markdown of all tables of a training recipe; it needs torch."""
    from vicinal.training.config import TrainingConfig

    return "\n\n".join([*_sections(TrainingConfig, "", "The file"), _dataset_table(), _loss_table()])


def documented(model: type[BaseModel]) -> dict[str, str]:
    """What the docstrings of a model and its bases say about each field."""
    texts: dict[str, str] = {}
    for base in reversed(model.__mro__):
        _, found, attributes = inspect.cleandoc(base.__doc__ or "").partition("Attributes:\n")
        if found:
            texts |= {name: " ".join(text.split()) for name, text in _ATTRIBUTE.findall(attributes)}
    return texts


def _sections(model: type[BaseModel], prefix: str, title: str) -> Iterator[str]:
    """The table of a model, then those of the models in it."""
    texts = documented(model)
    rows, inner = [], []
    for name, field in model.model_fields.items():
        if name in _DATA_SETS:
            needed = "required" if field.is_required() else "none"
            rows.append(f"| `{prefix}{name}` | {needed} | {texts[name]} See the data sets below. |")
        elif models_of(field.annotation):
            inner.append((name, field))
        elif name != "kind":
            rows.append(f"| `{prefix}{name}` | {_default(field)} | {texts[name]} |")
    table = ["", "| key | default | what |", "|---|---|---|", *rows] if rows else []
    yield "\n".join([f"### {title}", "", _summary(model), *table])
    for name, field in inner:
        yield from _inner_sections(field, f"{prefix}{name}")


def _inner_sections(field: FieldInfo, path: str) -> Iterator[str]:
    is_list = "tuple" in str(field.annotation)
    table = path.replace(".N", "")
    heading = f"`[[{table}]]`" if is_list else f"`[{table}]`"
    for model in models_of(field.annotation):
        kind = f', `kind = "{_kind(model)}"`' if _kind(model) else ""
        default = " (the default)" if kind and isinstance(field.default, model) else ""
        yield from _sections(model, f"{path}.N." if is_list else f"{path}.", heading + kind + default)


def _dataset_table() -> str:
    rows = []
    for model in models_of(DatasetConfig):
        keys = [
            f"`{name}`" if field.is_required() else f"`{name} = {_toml(_default_value(field))}`"
            for name, field in model.model_fields.items()
            if name != "kind"
        ]
        rows.append(f"| `{_kind(model)}` | {', '.join(keys)} | {_summary(model)} |")
    head = ["### Data sets by their `kind`", "", "| kind | keys and defaults | what |", "|---|---|---|"]
    return "\n".join([*head, *rows])


def _loss_table() -> str:
    from vicinal.training.losses.registry import available_losses

    rows = [f"| `{name}` | {_arguments(name)} |" for name in available_losses()]
    head = ["### Losses and their `arguments`", "", "`tcm` is short for `threshold_consistent_margin`.", ""]
    return "\n".join([*head, "| loss | arguments and defaults |", "|---|---|", *rows])


def _arguments(name: str) -> str:
    from vicinal.training.losses.registry import loss_arguments

    shown = [
        f"`{key}`" if default is inspect.Parameter.empty else f"`{key} = {_toml(default)}`"
        for key, default in loss_arguments(name).items()
    ]
    return ", ".join(shown) or "none"


def _summary(model: type[BaseModel]) -> str:
    return " ".join(inspect.cleandoc(model.__doc__ or "").partition("\n\n")[0].split())


def _kind(model: type[BaseModel]) -> str:
    field = model.model_fields.get("kind")
    values = get_args(field.annotation) if field else ()
    return '" or "'.join(values)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = _default_value(field)
    return "none" if value is None else f"`{_toml(value)}`"


def _default_value(field: FieldInfo) -> Any:
    return field.get_default(call_default_factory=True)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | Path):
        return f'"{value}"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(one) for one in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + "}"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


TABLES: dict[str, Callable[[], str]] = {
    "settings.md": settings_table,
    "training.md": training_tables,
}

if __name__ == "__main__":
    for name, tables in TABLES.items():
        page = Path(__file__).with_name(name)
        page.write_text(with_tables(page.read_text(encoding="utf-8"), tables()), encoding="utf-8")
