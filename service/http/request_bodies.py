"""Request bodies that are JSON or a form with images: read and checked in one way for all routes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.datastructures import FormData, UploadFile

from vicinal.models.errors import UnsupportedFormatError
from vicinal.service.errors import RequestError

__all__ = [
    "FORM",
    "JSON",
    "body_schema",
    "check_form",
    "content_type",
    "files_of",
    "images_of",
    "json_body",
    "validated",
]

Model = TypeVar("Model", bound=BaseModel)
FORM = "multipart/form-data"
JSON = "application/json"
_IMAGE = {"type": "string", "format": "binary"}


def body_schema(
    fields: dict[str, Any],
    *,
    several: bool,
    required: Sequence[str] = ("image",),
    json: type[BaseModel] | None = None,
    may_be_empty: bool = False,
) -> dict[str, Any]:
    """What OpenAPI says of a body that a route reads by itself.

    Args:
        fields: Schemas of the form's fields besides `image`.
        several: Whether the form holds several images.
        required: Fields that the form must have.
        json: Model of the body where it may be JSON too.
        may_be_empty: Whether a request without a body is answered.
    """
    image = {"type": "array", "items": _IMAGE, "minItems": 1} if several else _IMAGE
    form = {"type": "object", "required": list(required), "properties": {"image": image, **fields}}
    content = {FORM: {"schema": form}}
    if json is not None:
        content[JSON] = {"schema": _whole(json.model_json_schema())}
    return {"requestBody": {"required": not may_be_empty, "content": content}}


def _whole(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema with the models that it names in their places: a reference means another place in OpenAPI."""
    models = schema.pop("$defs", {})

    def inlined(part: Any) -> Any:
        if isinstance(part, list):
            return [inlined(one) for one in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            return inlined(models[part["$ref"].rpartition("/")[2]])
        return {name: inlined(one) for name, one in part.items()}

    return dict(inlined(schema))


def content_type(request: Request, *accepted: str) -> str:
    """Media type of a body, one of those that are accepted; none is JSON where that is.

    Raises:
        UnsupportedFormatError: It is another one.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not kind and JSON in accepted:
        return JSON
    if kind not in accepted:
        raise UnsupportedFormatError(f"the body is {kind or 'of no kind'}: send {' or '.join(accepted)}")
    return kind


async def json_body(request: Request, model: type[Model], *, may_be_empty: bool = False) -> Model:
    """A body of JSON as a model.

    Raises:
        RequestError: It is not JSON.
        RequestValidationError: It is not of the model's form.
    """
    body = await request.body()
    try:
        fields = {} if may_be_empty and not body else json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not JSON: {error}") from error
    return validated(model, fields)


def validated(model: type[Model], fields: Any, *, are_texts: bool = False) -> Model:
    """Fields as a model.

    Args:
        model: The model. In JSON a number is no text and no truth value, so that its fields are strict.
        fields: What was sent.
        are_texts: Whether all fields are text, as those of a form are; `5` is a number then.

    Raises:
        RequestValidationError: They are not of its form.
    """
    validate = model.model_validate_strings if are_texts else model.model_validate
    try:
        return validate(fields)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from error


def images_of(form: FormData) -> list[UploadFile]:
    """The files `image` of a form, at least one.

    Raises:
        RequestError: There is none, or one of them is text.
    """
    return files_of(form, "image")


def files_of(form: FormData, name: str) -> list[UploadFile]:
    """The files of one name of a form, at least one; see `images_of`."""
    sent = form.getlist(name)
    files = [one for one in sent if isinstance(one, UploadFile)]
    if not files or len(files) < len(sent):
        raise RequestError(f"the form has no file '{name}'")
    return files


def check_form(form: FormData, known: Sequence[str]) -> None:
    """Refuse a form with a field that nobody would look at.

    Raises:
        RequestError: It has such a field.
    """
    unknown = set(form) - set(known)
    if unknown:
        raise RequestError(f"unknown fields {sorted(unknown)}: expected {', '.join(known)}")
