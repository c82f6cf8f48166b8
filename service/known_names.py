"""Names that nobody knows: refused, with the name that was probably meant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel

from vicinal.models.configs.file import models_of
from vicinal.service.errors import RequestError

# Commands that went, and what to do instead.
GONE_COMMANDS = {
    "plan": "docs/SCALE.md has what a gallery takes by its size",
    "explain": "'Why?' on the page says it, or `explain` in a search over HTTP or in Python",
}
_JOINT = "__"
# Where the tests find image sets; no setting begins so.
_OF_TESTS = "test_"
# Settings that are no more, and what to do instead.
_GONE = {
    "postgres_url": "PostgreSQL finds no candidates, index with --index milvus or auto",
    **dict.fromkeys(("k1", "k2", "lam"), "k-reciprocal re-ranking is no more: choose contextual or off"),
    "allow_urls": "fetch what is on the web with img2dataset and index its shards; data sets of the hub of "
    "Hugging Face are read where `allow_hub` is set",
}


def did_you_mean(name: str, known: Iterable[str], write: Callable[[str], str] = "'{}'".format) -> str:
    """The end of a sentence that refuses a name: the known name that it is most like, if it is like any."""
    close = get_close_matches(name, known, n=1)
    return f": did you mean {write(close[0])}?" if close else ""


def check_variables(model: type[BaseModel], environment: Mapping[str, str], prefix: str) -> None:
    """Refuse an environment variable with the prefix that sets nothing; what may be secret is not shown."""
    known = {_JOINT.join(path): is_open for path, is_open in _paths(model)}
    for variable in sorted(environment):
        name = variable.lower().removeprefix(prefix.lower())
        if name == variable.lower() or name.startswith(_OF_TESTS):
            continue
        first, joint, rest = name.partition(_JOINT)
        if name in known or (joint and known.get(first)):
            continue
        shown = name if first in known else first
        hint = _instead(shown) or did_you_mean(shown, known, lambda one: f"{prefix}{one.upper()}")
        rest = f"{_JOINT}…" if rest and shown == first else ""
        raise RequestError(f"{prefix}{shown.upper()}{rest} is not a setting{hint}")


def check_file(model: type[BaseModel], values: Mapping[str, Any], file: str) -> None:
    """Refuse a key of a settings file that sets nothing."""
    known = {".".join(path): is_open for path, is_open in _paths(model)}
    for key in _keys(values, known):
        if key not in known:
            hint = _instead(key) or did_you_mean(key, known)
            raise RequestError(f"'{key}' in '{file}' is not a setting{hint}")


def _instead(name: str) -> str:
    instead = _GONE.get(re.split(r"__|\.", name)[-1])
    return f" any more: {instead}" if instead else ""


def _paths(model: type[BaseModel], before: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], bool]]:
    """The path of every setting and of every table of settings; whether its own keys are the user's."""
    for name, field in model.model_fields.items():
        path, tables = (*before, name), models_of(field.annotation)
        yield path, not tables and "dict" in str(field.annotation)
        for table in tables:
            yield from _paths(table, path)


def _keys(values: Mapping[str, Any], known: Mapping[str, bool], before: str = "") -> Iterator[str]:
    for name, value in values.items():
        key = f"{before}{name}"
        yield key
        if isinstance(value, Mapping) and key in known and not known[key]:
            yield from _keys(value, known, f"{key}.")
