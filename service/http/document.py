"""Document: what the OpenAPI document says of every call beside what the routes do."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from vicinal.service.http.problems import Problem
from vicinal.service.settings import Scope

_ANY = {
    "4XX": "What was wrong with the request.",
    "421": "The server is not asked for by this name.",
    "500": "An unexpected error, or a damaged file; the server's log has the details.",
}
_OF_THE_API = {
    "401": "There is no valid API key.",
    "403": "The API key lacks the scope, or the page is of another origin.",
    "429": "Too many requests; `Retry-After` says when to come again.",
    "503": "Something is busy or away; `Retry-After` says when to come again, where that is known.",
}
_WITH_BODY = {"413": "The request is larger than the call takes."}
_CHANGING = {"507": "The disk is full or read-only."}
_GALLERY = "^[a-z0-9][a-z0-9_-]{0,63}$"
_RETRY = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
_SECURITY_SCHEMES = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key. A server without keys asks for none.",
    },
    "key": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "The same."},
}
_EXAMPLES = {
    "search": {"item_id": "shoe/1.jpg", "limit": 5, "filter": "metadata.price < 50"},
    "search_batch": {"queries": [{"item_id": "shoe/1.jpg"}, {"item_id": "shoe/2.jpg"}], "limit": 5},
    "add_items": {
        "items": [{"id": "a", "embedding": [0.1, 0.7, -0.2], "label": "shoe", "metadata": {"price": 30}}],
        "space": "clip-vit-b32",
    },
    "delete_items": {"ids": ["shoe/1.jpg", "shoe/2.jpg"]},
    "patch_item": {"label": "shoe", "metadata": {"price": 25, "sold": None}},
    "put_alias": {"gallery": "shop-2"},
    "reindex_gallery": {"source": "photos"},
    "start_calibration": {"target": "fpir=1%"},
    "put_threshold": {"threshold": 0.6},
}


def complete_document(document: dict[str, Any], scopes: Mapping[str, Scope | None]) -> dict[str, Any]:
    """Add to a document the problems of each call, who may call it, and examples."""
    _simplify(document)
    parts = document.setdefault("components", {})
    parts.setdefault("schemas", {})["Problem"] = Problem.model_json_schema()
    parts["securitySchemes"] = _SECURITY_SCHEMES
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for method, operation in chain.from_iterable(calls.items() for calls in document["paths"].values()):
        name = operation["operationId"]
        scope = scopes.get(name)
        described = dict(_ANY)
        if scope is not None:
            operation["security"] = [{"bearer": [scope]}, {"key": [scope]}]
            described |= _OF_THE_API if method == "get" else _OF_THE_API | _CHANGING
        if "requestBody" in operation:
            described |= _WITH_BODY
        responses = operation["responses"]
        for status, description in described.items():
            if status not in responses or status == "4XX":
                headers = {"headers": _RETRY} if status in ("429", "503") else {}
                responses[status] = {"description": description, "content": content, **headers}
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "path" and parameter["name"] in ("gallery", "alias"):
                parameter["schema"]["pattern"] = _GALLERY
        if name in _EXAMPLES:
            operation["requestBody"]["content"]["application/json"]["example"] = _EXAMPLES[name]
    return document


def _simplify(part: Any) -> None:
    """Write arrays of a fixed length whose values are alike without a schema for each place."""
    if isinstance(part, list):
        for one in part:
            _simplify(one)
    elif isinstance(part, dict):
        places = part.get("prefixItems")
        if isinstance(places, list) and all(one == places[0] for one in places):
            part["items"] = part.pop("prefixItems")[0]
        for one in part.values():
            _simplify(one)
