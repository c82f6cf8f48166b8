"""Command line: options made of the fields of a request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import typer
from pydantic_core import PydanticUndefined

from vicinal.service.request_fields import CommandOption, RequestFields

Command = TypeVar("Command", bound=Callable[..., None])


class Commands(typer.Typer):
    """Commands whose parameters of a kind of request are made of options; see `from_options`."""

    def command(self, name: str | None = None, **more: Any) -> Callable[[Command], Command]:
        """Add a command, which stays callable with its requests."""
        add = super().command(name, **more)

        def added(command: Command) -> Command:
            add(from_options(command))
            return command

        return added


def from_options(command: Callable[..., None]) -> Callable[..., None]:
    """Command whose parameters of a kind of request are made of options, which stand in their places."""
    spelled = signature(command, eval_str=True)
    models = {name: one.annotation for name, one in spelled.parameters.items() if _is_request(one.annotation)}
    options = {name: options_of(model) for name, model in models.items()}

    def run(context: typer.Context, **given: Any) -> None:
        for name, model in models.items():
            given[name] = model(**{field: _read(model, field, given.pop(field)) for field in options[name]})
        try:
            command(**given)
        except Exception as error:
            # Advice names no option that this command lacks.
            vars(error)["options"] = {flag for one in context.command.params for flag in one.opts}
            raise

    parameters: list[Parameter] = []
    for one in spelled.parameters.values():
        if one.name in models:
            parameters += options[one.name].values()
            continue
        after = next(
            (told.after for told in get_args(one.annotation) if isinstance(told, CommandOption)), None
        )
        names = [each.name for each in parameters]
        place = len(names) if after is None else names.index(after) + 1
        parameters.insert(place, one.replace(kind=Parameter.KEYWORD_ONLY))
    parameters.append(Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context))
    vars(run)["__signature__"] = spelled.replace(parameters=parameters)
    run.__name__, run.__doc__, run.__annotations__ = command.__name__, command.__doc__, {}
    return run


def options_of(model: type[RequestFields]) -> dict[str, Parameter]:
    """The options of a command by the names of a request's fields, in the order of its help."""
    names = [*model.command_order, *(one for one in model.model_fields if one not in model.command_order)]
    return {name: _parameter(model, name) for name in names if not _option(model, name).is_hidden}


def words_of(request: RequestFields, *, leave_out: Sequence[str] = ()) -> list[str]:
    """The options of a request that are not the usual ones, as the words of a command."""
    told = {name: getattr(request, name) for name in options_of(type(request)) if name not in leave_out}
    usual = {name: field.get_default() for name, field in type(request).model_fields.items()}
    return [
        word
        for name, value in told.items()
        if value != usual[name]
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]


def _parameter(model: type[RequestFields], name: str) -> Parameter:
    field, option = model.model_fields[name], _option(model, name)
    bounds = {word: getattr(one, key) for one in field.metadata for key, word in _BOUNDS if hasattr(one, key)}
    more = {"help": option.help or field.description, **bounds, **option.more}
    told = typer.Argument(**more) if option.is_argument else typer.Option(*option.flags, **more)
    default = field.get_default() if option.default is None else option.default
    return Parameter(
        name,
        Parameter.KEYWORD_ONLY,
        default=Parameter.empty if default in (..., PydanticUndefined) else default,
        annotation=Annotated[option.kind or _plain(field.annotation), told],
    )


_BOUNDS = (("ge", "min"), ("le", "max"))


def _option(model: type[RequestFields], name: str) -> CommandOption:
    told = next((one for one in model.model_fields[name].metadata if isinstance(one, CommandOption)), None)
    return model.command_options.get(name) or told or CommandOption()


def _read(model: type[RequestFields], name: str, given: Any) -> Any:
    read = _option(model, name).read
    return given if read is None or given is None else read(given)


def _plain(annotation: Any) -> Any:
    """A type without what pydantic is told of it, of which typer makes a kind of its own."""
    if get_origin(annotation) is Annotated:
        return _plain(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return Union[tuple(_plain(one) for one in get_args(annotation))]  # noqa: UP007 (made at run time)
    return annotation


def _is_request(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, RequestFields)
