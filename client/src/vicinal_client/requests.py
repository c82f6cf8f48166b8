"""Requests: how images, paths and options become what is sent, and an answer becomes a model."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from vicinal_client.errors import UnreadableAnswerError

__all__ = [
    "Image",
    "NewEmbedding",
    "NewItem",
    "OnConflict",
    "Vector",
    "floats_of",
    "given",
    "image_base64",
    "image_file",
    "items_body",
    "path_of",
    "read_model",
    "vector_of",
]

Image: TypeAlias = bytes | str | PathLike[str]
"""The bytes of an image file, or its path."""

Vector: TypeAlias = Iterable[float]
"""An embedding of the gallery's bundle or space: a list, a tuple, or an array of shape (d,)."""

OnConflict: TypeAlias = Literal["error", "replace", "skip"]

Model = TypeVar("Model", bound=BaseModel)
_File: TypeAlias = tuple[str, tuple[str, bytes, str]]


@dataclass(frozen=True)
class NewItem:
    """An image that shall become an item.

    Attributes:
        image: The bytes of its file, or the path.
        id: Id that it gets; a digest of its file when None.
        filename: Name that the server keeps as its source; the name of its path when None.
    """

    image: Image
    id: str | None = None
    label: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    filename: str | None = None

    @property
    def name(self) -> str:
        """Name of the image in a request."""
        _check_image(self.image)
        own = "image" if isinstance(self.image, bytes) else Path(self.image).name
        return self.filename or self.id or own


@dataclass(frozen=True)
class NewEmbedding:
    """A ready embedding that shall become an item, in a gallery of such.

    Attributes:
        id: Id that it gets.
        embedding: As many finite numbers as the gallery's, not all 0.
        uri: Path or address of what was embedded.
    """

    id: str
    embedding: Vector
    label: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    uri: str = ""


def path_of(*parts: str | int) -> str:
    """A path below `/v1`; each part is one segment, whatever it holds."""
    return "/v1/" + "/".join(_encoded(str(part)) for part in parts)


def _encoded(part: str) -> str:
    # A path is shortened by its segments `.` and `..` before it is sent, unless they are spelled otherwise.
    return part.replace(".", "%2E") if part in (".", "..") else quote(part, safe="")


def given(**options: Any) -> dict[str, Any]:
    """The options that were given: for the others the server's own choice counts."""
    return {name: value for name, value in options.items() if value is not None}


def image_file(image: Image, name: str | None = None) -> _File:
    """An image as a file of a form."""
    _check_image(image)
    # Without a name it would be a field of text.
    own = "image" if isinstance(image, bytes) else Path(image).name
    return "image", (name or own, _bytes_of(image), "application/octet-stream")


def image_base64(image: Image) -> str:
    """An image as JSON carries it."""
    return base64.b64encode(_bytes_of(image)).decode("ascii")


def _bytes_of(image: Image) -> bytes:
    _check_image(image)
    return image if isinstance(image, bytes) else Path(image).read_bytes()


def _check_image(image: object) -> None:
    if not isinstance(image, bytes | str | PathLike):
        raise TypeError(
            f"an image is the bytes of an image file, or its path, and no {type(image).__name__}: give an "
            "embedding by the keyword embedding (embeddings for several), and encode a picture as PNG or JPEG"
        )


def vector_of(vector: Vector) -> list[float]:
    """An embedding as JSON carries it.

    Raises:
        TypeError: It is no list of numbers.
        ValueError: A number is not finite, for which JSON has no form.
    """
    try:
        if isinstance(vector, str | bytes):
            raise TypeError
        numbers = [float(value) for value in vector]
    except (TypeError, ValueError) as error:
        shape = f" of the shape {vector.shape}" if hasattr(vector, "shape") else ""
        raise TypeError(
            f"an embedding is a list or array of numbers of the shape (d,), and no {type(vector).__name__}"
            f"{shape}"
        ) from error
    return numbers


def floats_of(vector: Vector | bytes) -> bytes:
    """An embedding as float32 numbers, little-endian; bytes are those already."""
    if isinstance(vector, bytes):
        return vector
    numbers = vector_of(vector)
    return struct.pack(f"<{len(numbers)}f", *numbers)


def items_body(items: Sequence[NewItem] | Sequence[NewEmbedding], **options: Any) -> dict[str, Any]:
    """Request that adds items: a form with images, or embeddings as JSON.

    Raises:
        ValueError: Images and embeddings come together, or only some of the images have an id.
    """
    images = [one for one in items if isinstance(one, NewItem)]
    embeddings = [one for one in items if isinstance(one, NewEmbedding)]
    if images and embeddings:
        raise ValueError("add images and embeddings apart from each other")
    chosen = given(**options)
    return (
        {"json": {"items": [_as_json(one) for one in embeddings], **chosen}}
        if embeddings
        else _form(images, chosen)
    )


def _as_json(item: NewEmbedding) -> dict[str, Any]:
    return {
        "id": item.id,
        "embedding": vector_of(item.embedding),
        "label": item.label,
        "metadata": dict(item.metadata),
        "uri": item.uri,
    }


def _form(items: Sequence[NewItem], fields: dict[str, Any]) -> dict[str, Any]:
    """Fields `id`, `label` and `metadata` of each image, in their order."""
    ids = [item.id for item in items]
    if any(one is not None for one in ids):
        if None in ids:
            raise ValueError("give every item of a request an id, or none of them")
        fields["id"] = ids
    fields["label"] = [item.label or "" for item in items]
    fields["metadata"] = [json.dumps(dict(item.metadata), allow_nan=False) for item in items]
    return {"files": [image_file(item.image, item.name) for item in items], "data": fields}


def read_model(response: httpx.Response, model: type[Model]) -> Model:
    """An answer as a model.

    Raises:
        UnreadableAnswerError: It is not JSON of that form.
    """
    try:
        return model.model_validate_json(response.content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        raise UnreadableAnswerError(
            f"{response.request.method} {response.request.url.path} was answered with something that is no "
            f"{model.__name__}: {where}: {first['msg']}"
        ) from error
