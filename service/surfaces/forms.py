"""Forms: fields of a request that may come beside images."""

from __future__ import annotations

from typing import Any

from vicinal.service.request_fields import QuerySource, Request

_TEXTS = {"string", "integer", "number", "boolean", "null"}


def form_of(model: type[Request]) -> dict[str, Any]:
    """JSON schemas of a request's fields that a form, of texts and images, may have, by name."""
    fields = model.model_json_schema()["properties"]
    return {
        name: schema
        for name, schema in fields.items()
        if name not in QuerySource.model_fields
        and {one.get("type") for one in schema.get("anyOf", [schema])} <= _TEXTS
    }
