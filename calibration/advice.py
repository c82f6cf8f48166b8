"""Advice of errors: what would help, as data that each surface says in its own terms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from string import Formatter
from typing import Any

# Takes the name of a field, or of an operation with its values; gives what a surface calls it.
Names = Callable[[str, dict[str, Any] | None], str]


def own_names(name: str, values: dict[str, Any] | None) -> str:
    """Names as programs know them: of fields `id_column`, of operations `calibrate`."""
    return f"`{name}`" if values is not None else name


@dataclass(frozen=True)
class Advice:
    """Sentence on what would help, with blanks: `{id_column}` for a field of a request and `{index()}` for an
    operation, which each surface calls by its own name; others, and what an operation takes, are `values`.
    """

    kind: str
    values: dict[str, Any] = field(default_factory=dict)

    def said(self, names: Names = own_names) -> str:
        """The sentence in the terms of a surface."""
        return _Blanks(names).vformat(self.kind, (), self.values)


def advise(kind: str, /, **values: Any) -> Advice:
    """Advice of a kind and its values."""
    return Advice(kind, values)


class AdvisedError(Exception):
    """Error that may carry advice: with the names of programs at the end of its message, and as data."""

    def __init__(self, reason: str = "", advice: Advice | None = None) -> None:
        super().__init__(reason if advice is None else reason + advice.said())
        self.message, self.advice = reason, advice

    def said(self, names: Names) -> str:
        """The message in the terms of a surface."""
        return str(self) if self.advice is None else self.message + self.advice.said(names)


class _Blanks(Formatter):
    def __init__(self, names: Names) -> None:
        self._names = names

    def get_value(self, key: int | str, _args: Any, kwargs: Any) -> Any:
        name = str(key)
        if name.endswith("()"):
            return self._names(name[:-2], kwargs)
        return kwargs[name] if name in kwargs else self._names(name, None)
