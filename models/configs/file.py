"""Configuration files: TOML, changed key by key, and checked with one clear line for what is wrong."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from vicinal.calibration.advice import advise
from vicinal.models.errors import ConfigError

Model = TypeVar("Model", bound=BaseModel)

_KINDS = ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False)
_BARE_WORD = re.compile(r"""[^\s'"\[\]{}=#,]+""")


def read_toml(path: Path) -> dict[str, Any]:
    """Fields of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"there is no configuration '{path}'") from error
    except OSError as error:
        raise ConfigError(f"'{path}' cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"'{path}' is not TOML: {error}") from error


def override(fields: Mapping[str, Any], settings: Sequence[str]) -> dict[str, Any]:
    """Fields with some of them set anew.

    Each setting is `key=value`: the key with dots between tables (and numbers into lists), the value in TOML.
    A word or a path alone needs no quotes, which a shell takes away: `loss.name=contextual`.
    """
    changed: Any = dict(fields)
    for setting in settings:
        key, separator, text = setting.partition("=")
        parts = key.strip().split(".")
        if not separator or not all(parts):
            advice = advise("write key=value, such as {setting} optimizer.steps=500")
            raise ConfigError(f"'{setting}' sets nothing: ", advice)
        changed = _with_value(changed, parts, _parse(text.strip(), setting), setting)
    return changed


def checked(
    model: type[Model], fields: Mapping[str, Any], where: str, *, data_root: Path | None = None
) -> Model:
    """Fields as their model; relative `root`s of data sets start from `data_root` or the working folder."""
    try:
        return model.model_validate(_rooted(fields, data_root or Path.cwd()))
    except ValidationError as error:
        raise ConfigError(f"{where}: {explain(error, model, fields)}") from error


def typed(create: Any, arguments: Mapping[str, Any], whose: str) -> dict[str, Any]:
    """Arguments of a class or a function as its annotations say; ConfigError where one cannot be."""
    kinds = get_type_hints(
        create if isinstance(create, FunctionType) else create.__init__, include_extras=True
    )
    found = {}
    for name, value in arguments.items():
        try:
            found[name] = TypeAdapter(kinds.get(name, Any), config=_KINDS).validate_python(value)
        except ValidationError as error:
            raise ConfigError(f"{whose}: {name} is {value!r}: {error.errors()[0]['msg']}") from error
    return found


def explain(error: ValidationError, model: type[BaseModel], fields: Mapping[str, Any]) -> str:
    """Say in one line the first thing that is wrong: where it is, what, and what to do."""
    first = error.errors()[0]
    where = ".".join(_as_written(first["loc"], fields))
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        known = _known_keys(model, first["loc"])
        closest = difflib.get_close_matches(str(first["loc"][-1]), known, n=1)
        hint = f"did you mean '{closest[0]}'?" if closest else f"choose of {', '.join(known)}"
        message = f"unknown key, {hint}"
    others = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{where}: {message}{others}" if where else f"{message}{others}"


def models_of(annotation: Any) -> list[type[BaseModel]]:
    """The models that a field's annotation holds, also inside of unions and tuples."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in models_of(argument)]


def _rooted(fields: Any, data_root: Path) -> Any:
    """A copy in which the `root` of every table of a data set, known by its `kind`, is absolute."""
    if isinstance(fields, list):
        return [_rooted(one, data_root) for one in fields]
    if not isinstance(fields, Mapping):
        return fields
    inner = {key: _rooted(value, data_root) for key, value in fields.items()}
    # What has another form is left as it is: the validation says what is wrong with it.
    is_dataset = "kind" in fields and isinstance(fields.get("root"), str)
    return {**inner, "root": data_root / fields["root"]} if is_dataset else inner


def _parse(text: str, setting: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError as error:
        if _BARE_WORD.fullmatch(text):
            return text
        raise ConfigError(f"'{setting}' has no TOML value: {error}") from error
    if len(parsed) != 1:
        raise ConfigError(f"'{setting}' sets more than one key: ", advise("use {setting} once for each"))
    return parsed["value"]


def _with_value(fields: Any, parts: Sequence[str], value: Any, setting: str) -> Any:
    """A copy of nested tables and lists in which one place holds the value."""
    key, rest = parts[0], parts[1:]
    if isinstance(fields, list) and key.isdecimal() and int(key) < len(fields):
        position = int(key)
        inner = _with_value(fields[position], rest, value, setting) if rest else value
        return [*fields[:position], inner, *fields[position + 1 :]]
    if not isinstance(fields, Mapping):
        raise ConfigError(f"'{setting}' cannot be set: '{key}' would be inside of {fields!r}")
    return {**fields, key: _with_value(fields.get(key, {}), rest, value, setting) if rest else value}


def _as_written(location: Sequence[str | int], fields: Any) -> list[str]:
    """A location without the tags of unions, which nobody wrote."""
    written, place = [], fields
    for depth, part in enumerate(location):
        last = depth == len(location) - 1
        if isinstance(place, Mapping) and part not in place and not last:
            continue
        written.append(str(part))
        is_inside = (isinstance(place, Mapping) and part in place) or isinstance(place, list | tuple)
        place = place[part] if is_inside else None
    return written


def _known_keys(model: type[BaseModel], location: Sequence[str | int]) -> list[str]:
    """Keys that the table of an unknown key may have."""
    found = [model]
    for part in location[:-1]:
        fields = [one.model_fields[str(part)] for one in found if part in one.model_fields]
        if fields:
            found = [inner for field in fields for inner in models_of(field.annotation)]
        else:
            # A position in a list, or the tag that chose one model of several.
            tagged = [one for one in found if part in get_args(_kind(one))]
            found = tagged or found
    return sorted({key for one in found for key in one.model_fields})


def _kind(model: type[BaseModel]) -> Any:
    return model.model_fields["kind"].annotation if "kind" in model.model_fields else None
