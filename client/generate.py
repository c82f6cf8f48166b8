"""Makes the models and the options of the client from `openapi.json`; a build of the package does so.

Names and words are those of the API, whose null is None. What is chosen here is which schemas have a model,
what a model leaves to `model_extra`, and what stands for a member that an older server does not send. Texts
of a fixed choice are read as `str`, so that a further choice of a newer server is no error.
"""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "client" / "src" / "vicinal_client"
Schema = dict[str, Any]

# A model by the schema that it reads.
MODELS = {
    "ActivationEvent": "Activation",
    "ActivePipelineBody": "ActivePipeline",
    "AddedItem": "AddedItem",
    "AddedSearch": "AddedSearch",
    "AdditionBody": "Addition",
    "AliasBody": "Alias",
    "AliasListBody": "AliasList",
    "Answer": "Answer",
    "BatchAnswerBody": "BatchAnswer",
    "BroughtBackBody": "BroughtBack",
    "CalibrationBody": "GalleryCalibration",
    "CalibrationHistoryBody": "CalibrationHistory",
    "CalibrationRecord": "CalibrationRecord",
    "CalibrationStateBody": "Calibration",
    "CalibrationSummaryBody": "CalibrationSummary",
    "Candidate": "Candidate",
    "CompactionState": "CompactionState",
    "Comparison": "Comparison",
    "DeletedSearchesBody": "DeletedSearches",
    "DeletionBody": "Deletion",
    "DisagreementBody": "Disagreement",
    "ExplainedRefinement": "ExplainedRefinement",
    "Explanation": "Explanation",
    "FoundGroup": "FoundGroup",
    "GalleryBody": "Gallery",
    "GalleryListBody": "GalleryList",
    "GalleryState": "GalleryState",
    "GivenAnswerBody": "GivenAnswer",
    "GivenAnswersBody": "GivenAnswers",
    "ItemBody": "Item",
    "ItemPageBody": "ItemPage",
    "Job": "Job",
    "JobFailure": "JobFailure",
    "JobListBody": "JobList",
    "JobProgress": "JobProgress",
    "KeptCandidate": "KeptCandidate",
    "KeptSearchBody": "KeptSearch",
    "KeptSearchPageBody": "KeptSearchPage",
    "KnownAnswersBody": "KnownAnswers",
    "LabelCountBody": "LabelCount",
    "LabelListBody": "LabelList",
    "LimitsBody": "Limits",
    "MetadataKeyBody": "MetadataKey",
    "MetadataKeyListBody": "MetadataKeyList",
    "MetadataValueBody": "MetadataValue",
    "PassedSearch": "PassedSearch",
    "Rates": "Rates",
    "ReadinessBody": "Readiness",
    "RefusedAnswerBody": "RefusedAnswer",
    "RefusedItemBody": "RefusedItem",
    "RemovedItemBody": "RemovedItem",
    "RightsBody": "Rights",
    "SearchAdditions": "SearchAdditions",
    "SearchAnswerBody": "SearchAnswer",
    "SearchQuestionBody": "SearchQuestion",
    "SearchQuestionsBody": "SearchQuestions",
    "SentItem": "SentItem",
    "SetAsideBody": "SetAside",
    "SetAsideItemBody": "SetAsideItem",
    "SetAsideListBody": "SetAsideList",
    "Standing": "Standing",
    "StorageUse": "StorageUse",
    "TakenBackBody": "TakenBack",
    "Target": "Target",
    "Threshold": "Threshold",
    "Variant": "Variant",
    "VersionBody": "Version",
    "VersionListBody": "VersionList",
    "WrongMatchBody": "WrongMatch",
}
BASES = {
    "AddedItem": "SentItem",
    "GivenAnswer": "SearchAnswer",
    "Job": "Ending",
    "RefusedItem": "SentItem",
    "SetAside": "Deletion",
}
# Members of large records, and what is said for people.
UNTYPED = {
    "CalibrationRecord": {"format_version", "pipeline", "seed", "evidence", "gallery", "gallery_id"},
    "CompactionState": {"done", "total"},
    "Comparison": {"format_version", "request", "target", "items"},
    "ExplainedRefinement": {"neighbors", "ranks", "way", "variance"},
    "GalleryCalibration": {"evidence"},
    "GalleryState": {"pipeline", "pipeline_source", "pipeline_reason", "drift", "files"},
    "Job": {"folders", "worker", "state"},
    "Limits": {"max_image_pixels"},
    "Readiness": {"refiner", "refine", "devices", "degraded", "other_bundles", "n_galleries", "redis"},
    "Variant": {"pipeline", "calibration", "figures", "opis_floor", "flips", "left_out"},
}
# What an older server leaves out.
OLDER = {
    "Calibration": {"last_check": "None"},
    "CalibrationSummary": {"state": "None"},
    "Gallery": {
        "aliases": "Field(default_factory=list)",
        "threshold": "None",
        "promise_in_short": "None",
        "standing": "None",
        "changed_at": "None",
        "takes": '"images"',
    },
    "GalleryList": {"problems": "Field(default_factory=dict)"},
    "GalleryState": {"calibration": '"none"', "calibration_reason": "None"},
    "ItemPage": {"n_items": "None"},
    "Limits": {
        "max_image_bytes": "32 * 2**20",
        "max_request_bytes": "256 * 2**20",
        "max_batch": "64",
        "max_embeddings": "1000",
        "max_limit": "1000",
    },
    "Readiness": {"limits": "Limits()"},
}
# Options of a call by its name, besides what it takes as arguments of their own.
OPTIONS = {
    "PipelineOptions": ("roll_back", "", set[str]()),
    "SearchOptions": ("search_batch", "PipelineOptions", {"queries"}),
    "CalibrationOptions": ("start_calibration", "PipelineOptions", {"embeddings", "labels"}),
    "ComparisonOptions": ("start_comparison", "", {"embeddings", "labels"}),
    "GalleryOptions": ("put_gallery", "", set[str]()),
    "ReindexOptions": ("reindex_gallery", "", set[str]()),
}
_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_HEAD = '''"""{says}

Made from `openapi.json` by `client/generate.py`.
"""

from __future__ import annotations

{imports}
__all__ = [
{names}
]
'''


def generated(document: Schema) -> dict[str, str]:
    """Text of each generated module by its name."""
    return {"models.py": _models(document), "options.py": _options(document)}


def _models(document: Schema) -> str:
    schemas = document["components"]["schemas"]
    done: dict[str, str] = {}

    def make(schema: str) -> None:
        name = MODELS[schema]
        if name in done:
            return
        members = schemas[schema]["properties"]
        typed = {one: members[one] for one in members if one not in UNTYPED.get(name, ())}
        for needed in [*_schemas_in(typed), *(one for one in MODELS if MODELS[one] == BASES.get(name))]:
            make(needed)
        base = BASES.get(name, "Model")
        own = {one: typed[one] for one in typed if f"    {one}: " not in done.get(base, "")}
        required, older = schemas[schema].get("required", ()), OLDER.get(name, {})
        defaults = {one: _default(own[one], one in required, older.get(one)) for one in own}
        lines = [f"    {one}: {_read(own[one], defaults[one])}{defaults[one]}" for one in own]
        done[name] = _class(name, base, schemas[schema], own, lines)

    for schema in MODELS:
        make(schema)
    says = "Answers of the server as frozen models; what they do not type is kept in `model_extra`."
    imports = (
        "from datetime import datetime\nfrom typing import Any\n\nfrom pydantic import Field\n\n"
        "from vicinal_client.bases import Ending, Model\n"
    )
    return _module(says, imports, done)


def _options(document: Schema) -> str:
    done, members_of = dict[str, str](), dict[str, Schema]()
    for name, (call, base, others) in OPTIONS.items():
        known = members_of.get(base, {})
        members = {one: schema for one, schema in _given_to(document, call) if one not in others}
        members_of[name] = members
        own = {one: members[one] for one in members if one not in known}
        lines = [f"    {one}: {_sent(own[one])} | None" for one in own]
        schema = {"description": f"Options of `{call}`."}
        done[name] = _class(name, f"{base or 'TypedDict'}, total=False", schema, own, lines)
    says = "Options of calls; one that is left out, or None, is the server's to choose."
    imports = "from collections.abc import Mapping, Sequence\nfrom typing import Any, Literal, TypedDict\n"
    return _module(says, imports, done)


def _given_to(document: Schema, call: str) -> Iterator[tuple[str, Schema]]:
    """Query parameters of a call, and members of its body of JSON."""
    (found,) = (
        one for path in document["paths"].values() for one in path.values() if one["operationId"] == call
    )
    yield from ((one["name"], one["schema"]) for one in found.get("parameters", ()) if one["in"] == "query")
    if "requestBody" in found:
        body = found["requestBody"]["content"]["application/json"]["schema"]
        known = document["components"]["schemas"]
        yield from known[_named(body)]["properties"].items() if "$ref" in body else body["properties"].items()


def _module(says: str, imports: str, classes: Mapping[str, str]) -> str:
    names = "\n".join(f'    "{name}",' for name in sorted(classes))
    head = _HEAD.format(says=says, imports=imports, names=names)
    return "\n\n".join([head, *classes.values()])


def _class(name: str, base: str, schema: Schema, members: Mapping[str, Schema], lines: list[str]) -> str:
    said, _, attributes = schema.get("description", "").partition("\n\nAttributes:\n")
    told = dict(re.findall(r"^    (\w+): (.*(?:\n        .*)*)", attributes, re.MULTILINE))
    notes = {one: members[one].get("description") or told.get(one) for one in members}
    choices = {one: _choices(members[one]) for one in members} if base.endswith(("Model", "Item")) else {}
    doc = _wrapped(said, "    ", "    ", first='"""')
    described = [
        line
        for one in members
        if (note := _note(notes[one] or "", choices.get(one, ())))
        for line in _wrapped(f"{one}: {note}", "        ", "            ")
    ]
    if described:
        doc += ["", "    Attributes:", *described, '    """']
    else:
        doc[-1] += '"""'
    return "\n".join([f"class {name}({base}):", *doc, *([""] if lines else []), *lines]) + "\n"


def _wrapped(text: str, indent: str, further: str, first: str = "") -> list[str]:
    return textwrap.wrap(
        " ".join(text.split()), 110, initial_indent=indent + first, subsequent_indent=further
    )


def _choices(schema: Schema) -> list[str]:
    return [f"`{value}`" for one in [schema, *schema.get("anyOf", ())] for value in one.get("enum", ())]


def _note(said: str, choices: Sequence[str]) -> str:
    """Description of a member, with the texts that it may be where that does not name them."""
    is_told = all(one in said for one in choices)
    return said if is_told else f"{said} One of {', '.join(choices)}.".lstrip()


def _read(schema: Schema, default: str) -> str:
    """The type that a member of an answer is read as."""
    kind = _type(schema, list_of="list", map_of="dict", models=MODELS)
    return f"{kind} | None" if default == " = None" and not kind.endswith("None") else kind


def _sent(schema: Schema) -> str:
    """The type that an option is given as, without None."""
    return _type(schema, list_of="Sequence", map_of="Mapping", models={}).removesuffix(" | None")


def _type(schema: Schema, *, list_of: str, map_of: str, models: Mapping[str, str]) -> str:
    def inner(part: Schema) -> str:
        return _type(part, list_of=list_of, map_of=map_of, models=models) if part else "Any"

    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(inner(one) for one in schema["anyOf"]))
    if "$ref" in schema:
        return models.get(_named(schema), f"{map_of}[str, Any]")
    if "enum" in schema and map_of == "Mapping":
        return f"Literal[{', '.join(json.dumps(one) for one in schema['enum'])}]"
    if schema.get("format") == "date-time":
        return "datetime"
    if schema["type"] == "array":
        return f"{list_of}[{inner(schema.get('items', {}))}]"
    if schema["type"] == "object":
        values = schema.get("additionalProperties")
        return f"{map_of}[str, {inner(values) if isinstance(values, dict) else 'Any'}]"
    return _TYPES[schema["type"]]


def _default(schema: Schema, required: bool, older: str | None) -> str:
    """Value that stands for a member of an answer that is not sent."""
    if older is not None or required:
        return "" if older is None else f" = {older}"
    if "$ref" in schema:
        return f" = {MODELS[_named(schema)]}()"
    made = {"array": "list", "object": "dict"}.get(schema.get("type", ""))
    return f" = Field(default_factory={made})" if made else f" = {schema.get('default')!r}"


def _schemas_in(part: Any) -> Iterator[str]:
    """Schemas with a model that a part of the document refers to."""
    if isinstance(part, dict):
        if "$ref" in part and _named(part) in MODELS:
            yield _named(part)
        part = list(part.values())
    if isinstance(part, list):
        for one in part:
            yield from _schemas_in(one)


def _named(schema: Schema) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def main() -> None:
    """Write the modules that are not there as they should be; several processes may do so at a time."""
    document = json.loads((ROOT / "openapi.json").read_text(encoding="utf-8"))
    for name, text in generated(document).items():
        path = PACKAGE / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            written = path.with_suffix(f".{os.getpid()}")
            written.write_text(text, encoding="utf-8")
            written.replace(path)


if __name__ == "__main__":
    main()
