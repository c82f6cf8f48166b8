"""Request bodies that are JSON or a form with images, parsed in a thread and checked in one way."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from email.message import Message
from email.utils import collapse_rfc2231_value
from typing import Annotated, Any, TypeVar

from fastapi import HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, BeforeValidator, Field, StrictBool, StrictFloat, StrictInt, ValidationError
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.types import Message as Received
from starlette.types import Receive, Scope

from vicinal.indexer.item_rules import LONGEST_ID, LONGEST_LABEL
from vicinal.models.configs.value_texts import value_as_text
from vicinal.models.errors import UnsupportedFormatError
from vicinal.service.errors import BodyTooLargeError, BodyTooSlowError, RequestError
from vicinal.service.request_fields import QuerySource

Model = TypeVar("Model", bound=BaseModel)
_Value = str | StrictInt | StrictFloat | StrictBool
_AS_TEXT = BeforeValidator(value_as_text, json_schema_input_type=_Value)

Id = Annotated[str, _AS_TEXT, Field(min_length=1, max_length=LONGEST_ID)]
Label = Annotated[str | None, BeforeValidator(value_as_text, json_schema_input_type=_Value | None)]
Vector = Annotated[list[StrictFloat], Field(fail_fast=True)]
Vectors = Annotated[list[Vector], Field(fail_fast=True)]
Labels = Annotated[
    list[Annotated[str, _AS_TEXT, Field(max_length=LONGEST_LABEL)]],
    Field(fail_fast=True),
]

FORM = "multipart/form-data"
JSON = "application/json"
FLOATS = "application/octet-stream"
_FILES = (b"image", b"embedding")
_IMAGE = {"type": "string", "format": "binary"}
_NO_JSON = "json_invalid"
# Of a call that takes neither images nor embeddings.
_SMALL_BODY = 4 * 2**20
_MOST_DIGITS = 18
# Bytes a second of a body, at the least.
_SLOWEST = 16 * 2**10
_MOST_SMALL_VALUES = 200_000
_GZIP = b"\x1f\x8b"
# 1,000 embeddings of 2,048 numbers and some; parsing so many takes a sixth of a second. Lists and objects
# cost as much as some numbers, though they be empty.
MOST_VALUES = 2_500_000
_VALUES_OF = ((b",", 1), (b"[", 10), (b"{", 20))


class SentEmbeddings(QuerySource):
    """Labelled queries that a body may hold in place of a source's name."""

    embeddings: Vectors | None = Field(None, description="Queries as embeddings of the bundle.")
    labels: Labels | None = Field(None, description="Label of each embedding.")


def limited_body(scope: Scope, receive: Receive, *, most: int, is_large: bool, seconds: float) -> Receive:
    """Reader of a request's body that comes in `seconds`, and one more for every 16 KiB, and has at most 4
    MiB, or `most` where it `is_large`. Values of JSON are counted, as brackets grow fortyfold when parsed.
    """
    most = most if is_large else min(most, _SMALL_BODY)
    most_values = MOST_VALUES if is_large else _MOST_SMALL_VALUES
    headers = Headers(scope=scope)
    declared = headers.get("content-length", "").lstrip("0")
    if "transfer-encoding" not in headers:
        if not declared:
            return receive
        if declared.isdecimal() and (len(declared) > _MOST_DIGITS or int(declared) > most):
            raise _too_large(most)
    coding = headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("", "identity"):
        raise UnsupportedFormatError(
            f"the body is compressed, Content-Encoding '{coding[:40]}': send it as it is"
        )
    received = values = 0
    is_whole = False
    begun = asyncio.get_running_loop().time()
    # Pictures and numbers hold any byte; who parses fields of a form counts for itself.
    is_counted = media_type(headers) not in (FORM, FLOATS)

    async def counted() -> Received:
        nonlocal received, values, is_whole
        if is_whole:
            return await receive()
        try:
            async with asyncio.timeout_at(begun + seconds + received / _SLOWEST):
                message = await receive()
        except TimeoutError as error:
            raise BodyTooSlowError(f"{received:,} bytes of the body came, and then none") from error
        body = message.get("body", b"")
        is_whole = not message.get("more_body", False)
        received += len(body)
        values += count_values(body) if is_counted else 0
        if values > most_values:
            raise BodyTooLargeError(f"the JSON of the request holds more than {most_values:,} values")
        if received > most:
            raise _too_large(most)
        return message

    return counted


def _too_large(most: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"the request is larger than this call takes: {most:,} bytes")


def body_schema(
    fields: dict[str, Any],
    *,
    several: bool,
    required: Sequence[str] = ("image",),
    json: type[BaseModel] | None = None,
    may_be_empty: bool = False,
) -> dict[str, Any]:
    """Schema for OpenAPI of a body that a route reads by itself: a form, or the model `json`."""
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


def count_values(body: bytes) -> int:
    """Most values that a part of a body of JSON can hold, counted before it is parsed."""
    return sum(n * body.count(mark) for mark, n in _VALUES_OF)


def media_type(headers: Headers) -> str:
    """Media type of a body, in small letters and without parameters; empty where none is named."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def content_type(request: Request, *accepted: str) -> str:
    """Media type of a body, one of those that are accepted; none is JSON where that is."""
    kind = media_type(request.headers)
    if not kind and JSON in accepted:
        return JSON
    if kind not in accepted:
        raise UnsupportedFormatError(f"the body is {kind or 'of no kind'}: send {' or '.join(accepted)}")
    return kind


async def json_body(request: Request, model: type[Model], *, may_be_empty: bool = False) -> Model:
    """A body of JSON as a model."""
    content_type(request, JSON)
    body = (await request.body()).removeprefix(codecs.BOM_UTF8)
    return await run_in_threadpool(_parsed, model, body or b"{}" if may_be_empty else body)


def _parsed(model: type[Model], body: bytes) -> Model:
    if body.startswith(_GZIP):
        raise RequestError("the body is not JSON but compressed by gzip: send it as it is")
    try:
        # In one go: lists and objects of what was sent would take many times its size.
        return model.model_validate_json(body)
    except ValidationError as error:
        errors = _errors(error)
        if errors[0]["type"] == _NO_JSON:
            raise RequestError(f"the body is not JSON: {errors[0]['msg']}") from error
        raise RequestValidationError(errors) from error


def validated(model: type[Model], fields: Any, *, are_texts: bool = False) -> Model:
    """Fields as a model; where all are texts, as those of a form are, `5` is a number."""
    validate = model.model_validate_strings if are_texts else model.model_validate
    try:
        return validate(fields)
    except ValidationError as error:
        raise RequestValidationError(_errors(error)) from error


def _errors(error: ValidationError) -> Sequence[Any]:
    """Errors without what was sent: it may be large, secret, or NaN, which JSON cannot hold."""
    return error.errors(include_url=False, include_context=False, include_input=False)


@asynccontextmanager
async def read_form(request: Request, *, max_files: int, max_fields: int) -> AsyncIterator[FormData]:
    """A form; leaving the block removes the files that large uploads are kept in."""
    parser = _FormParser(request.headers, request.stream(), max_files=max_files, max_fields=max_fields)
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise HTTPException(400, error.message) from error
    try:
        yield form
    finally:
        await form.close()


class _FormParser(MultiPartParser):
    """Takes images and embeddings for files also where they have no file name, and refuses half a form."""

    is_whole = False

    def on_end(self) -> None:
        """Take in the boundary that ends a form."""
        self.is_whole = True

    async def parse(self) -> FormData:
        """Parse all of it."""
        form = await super().parse()
        if not self.is_whole:
            for file in self._files_to_close_on_error:
                file.close()
            raise MultiPartException("the form breaks off before the boundary that ends it: send all of it")
        return form

    def on_headers_finished(self) -> None:
        """Take in the headers of a part."""
        said = self._current_part.content_disposition
        _, options = parse_options_header(said)
        if said and options.get(b"name") in _FILES and b"filename" not in options:
            self._current_part.content_disposition = said + b'; filename=""'
        super().on_headers_finished()
        if self._current_part.file is not None and said and b"filename*" in said:
            self._current_part.file.filename = _coded_name(said) or self._current_part.file.filename


def _coded_name(disposition: bytes) -> str | None:
    """The file name of `filename*`, which says in what encoding it is (RFC 8187)."""
    message = Message()
    message["content-disposition"] = disposition.decode("latin-1")
    given: Any = message.get_params([], "content-disposition")
    coded = (value for name, value in given if name == "filename" and isinstance(value, tuple))
    return next(map(collapse_rfc2231_value, coded), None)


def files_of(form: FormData, name: str = "image") -> list[UploadFile]:
    """The files of one name of a form, at least one."""
    sent = form.getlist(name)
    files = [one for one in sent if isinstance(one, UploadFile)]
    if not files or len(files) < len(sent):
        raise RequestError(f"the form has no file '{name}'")
    return files


def check_form(form: FormData, known: Sequence[str]) -> None:
    """Refuse a form with a field that nobody would look at."""
    unknown = set(form) - set(known)
    if unknown:
        raise RequestError(f"unknown fields {sorted(unknown)}: expected {', '.join(known)}")
