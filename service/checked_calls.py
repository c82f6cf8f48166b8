"""Calls from Python whose arguments are looked at: errors name the argument, and what was expected."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from inspect import signature
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

import numpy as np
from pydantic import BaseModel, BeforeValidator, Field, ValidationError, validate_call

from vicinal.service.errors import RequestError

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Model = TypeVar("Model", bound=BaseModel)
Texts = Annotated[
    Sequence[str], BeforeValidator(lambda given: given.tolist() if isinstance(given, np.ndarray) else given)
]
"""Texts in a list, or in an array of numpy."""
Counted = Annotated[int, Field(ge=0)]
AtLeastOne = Annotated[int, Field(ge=1)]
_SHOWN = 60

if TYPE_CHECKING:
    _Any = TypeVar("_Any")
    Given = Annotated[_Any, "looked at where it is used"]
else:

    class Given:
        """An argument that is looked at where it is used, of kinds that pydantic does not know."""

        def __class_getitem__(cls, _kind: object) -> object:
            return Any


# By the kind of pydantic's error, with what it says of it.
_EXPECTED = {
    "bool_parsing": "True or False",
    "bool_type": "True or False",
    "callable_type": "a function",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "is_instance_of": "a list",
    "less_than_equal": "at most {le}",
    "literal_error": "{expected}",
    "model_type": "a {class_name} or its fields",
    "path_type": "a path",
    "sequence_str": "a list, and not a text of its own",
    "string_type": "a text",
    "string_pattern_mismatch": "a text of the form {pattern}",
    "tuple_type": "a list",
}


def checked_call(call: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A function that looks at its arguments by their annotations."""
    # With the first call: an annotation may name the class that is still being made.
    checked = cache(lambda: validate_call(call))

    @wraps(call)
    def calling(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return checked()(*args, **kwargs)
        except ValidationError as error:
            if error.title not in (call.__name__, call.__qualname__):
                raise
            place, *inside = error.errors()[0]["loc"]
            if isinstance(place, int):
                names = [*signature(call).parameters.values()]
                one = names[min(place, len(names) - 1)]
                several = next((name for name in names[:place] if name.kind is name.VAR_POSITIONAL), None)
                place = (several or one).name
            raise RequestError(_in_words(error, (place, *inside))) from error

    return calling


def checked_options(model: type[Model], fields: Mapping[str, Any], *, shows_values: bool = True) -> Model:
    """Options as the model that they are for."""
    require_known(fields, [*model.model_fields])
    try:
        return model(
            **{name: one.item() if isinstance(one, np.generic) else one for name, one in fields.items()}
        )
    except ValidationError as error:
        raise RequestError(_in_words(error, shows_value=shows_values)) from error


def require_known(options: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse options that a call does not have."""
    for name in options.keys() - {*known}:
        closest = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean '{closest[0]}'?" if closest else f"choose of {', '.join(known)}"
        raise RequestError(f"there is no option '{name}': {hint}")


def _in_words(
    error: ValidationError, place: Sequence[int | str] | None = None, *, shows_value: bool = True
) -> str:
    """The first thing that is wrong."""
    first = error.errors()[0]
    # Members of unions stand in it too, by names that nobody wrote.
    parts = first["loc"] if place is None else place
    where = ".".join(str(one) for one in parts if isinstance(one, int) or one.isidentifier())
    if first["type"] == "missing_argument":
        return f"{where} is missing: give one"
    expected = _EXPECTED.get(first["type"])
    if expected is None:
        return f"{where}: {first['msg'].removeprefix('Value error, ')}" if where else first["msg"]
    expected = expected.format(**first.get("ctx", {}))
    if not shows_value:
        return f"{where}: expected {expected}"
    shown = " ".join(repr(first["input"]).split())
    return f"{where} is {shown if len(shown) <= _SHOWN else f'{shown[:_SHOWN]}…'}, expected {expected}"
