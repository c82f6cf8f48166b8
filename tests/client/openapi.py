"""The committed API document: its operations, examples of its answers, and what a model reads of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Schema = dict[str, Any]
DOCUMENT: Schema = json.loads(
    (Path(__file__).resolve().parents[2] / "openapi.json").read_text(encoding="utf-8")
)
SCHEMAS: dict[str, Schema] = DOCUMENT["components"]["schemas"]
JSON = "application/json"
FORM = "multipart/form-data"


@dataclass(frozen=True)
class Operation:
    """One operation: its name, as the server's function has it, and its description."""

    name: str
    method: str
    path: str
    schema: Schema

    def takes(self, method: str, path: str) -> bool:
        # An id may hold slashes.
        pattern = re.sub(r"\\{item_id\\}", ".+", re.escape(self.path))
        return self.method == method and bool(re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", pattern), path))

    @property
    def parameters(self) -> set[str]:
        return {one["name"] for one in self.schema.get("parameters", []) if one["in"] == "query"}

    def body(self, kind: str) -> Schema:
        return resolved(self.schema["requestBody"]["content"][kind]["schema"], DOCUMENT)

    def members(self, kind: str) -> set[str]:
        content = self.schema.get("requestBody", {}).get("content", {})
        return set(self.body(kind)["properties"]) if kind in content else set()

    @property
    def answer(self) -> tuple[int, Schema | None]:
        """Status and schema of its success."""
        status, response = next((key, one) for key, one in self.schema["responses"].items() if key[0] == "2")
        return int(status), response.get("content", {}).get(JSON, {}).get("schema")


def operations() -> Iterator[Operation]:
    """All operations; those with the most words in their path first, which are tried before a `{item_id}`."""
    found = [
        Operation(
            re.sub(r"_v1_.*|_(livez|readyz|metrics)_get$", "", call["operationId"]),
            method.upper(),
            path,
            call,
        )
        for path, calls in DOCUMENT["paths"].items()
        for method, call in calls.items()
    ]
    yield from sorted(found, key=lambda one: -len(re.sub(r"\{\w+\}", "", one.path)))


def resolved(schema: Schema, document: Schema) -> Schema:
    """A schema in place of a reference to it."""
    if "$ref" not in schema:
        return schema
    *_, folder, name = schema["$ref"].split("/")
    found: Schema = document["$defs"][name] if folder == "$defs" else document["components"]["schemas"][name]
    return found


def example(schema: Schema) -> Any:
    """A value of a schema: every member, one element a list, null where that is allowed last."""
    schema = resolved(schema, DOCUMENT)
    for key in ("const", "enum", "anyOf", "prefixItems"):
        if key in schema:
            value = schema[key]
            if key == "prefixItems":
                return [example(one) for one in value]
            return value if key == "const" else value[0] if key == "enum" else example(value[0])
    kind = schema.get("type")
    if kind == "object":
        return {name: example(one) for name, one in schema.get("properties", {}).items()}
    if kind == "array":
        return [example(schema.get("items", {}))]
    text = "2026-01-02T03:04:05Z" if schema.get("format") == "date-time" else "text"
    return {"string": text, "integer": 3, "number": 0.5, "boolean": True, "null": None}.get(str(kind))
