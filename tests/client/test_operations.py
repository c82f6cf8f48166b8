"""Every call is an operation of the API document, sent as it says; what the client leaves out is named."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_type_hints

import httpx
import pytest

from tests.client.conftest import Either, Form
from tests.client.openapi import FORM, JSON, Operation, example, operations
from vicinal_client import Client, NewEmbedding, NewItem
from vicinal_client.operations.calls import operation

IMAGE = b"any bytes"
CALIBRATION = {"target": "fpir=5%", "activate": False, "group_by": "label", "max_queries": 100}
PIPELINE = {"refine": "off", "steps": 2, "rerank": "off", "group_by": "label"}
SEARCH = {"limit": 3, "threshold": 0.5, "filter": "label = 'a'", "include_candidates": True, "explain": True}
# One or several ways to call each method.
CASES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("livez", (), {}),
    ("readyz", (), {}),
    ("get_rights", (), {}),
    ("list_galleries", (), {}),
    ("get_gallery", ("shop",), {}),
    ("get_storage", ("shop",), {}),
    ("put_gallery", ("shop",), {"space": "clip", "dim": 4}),
    ("delete_gallery", ("shop",), {}),
    ("list_aliases", (), {}),
    ("put_alias", ("shop", "shop-2"), {}),
    ("delete_alias", ("shop",), {}),
    ("list_versions", ("shop",), {}),
    ("activate_version", ("shop", 7), {"as_built": True}),
    ("begin_compaction", ("shop",), {}),
    ("get_compaction", ("shop",), {}),
    ("list_items", ("shop",), {"after": "5", "size": 10}),
    ("list_items", ("shop",), {"at": 7, "filter": "label = 'a'"}),
    ("get_item", ("shop", "shoe/1 50%.jpg"), {}),
    ("get_thumbnail", ("shop", "shoe/1.jpg"), {}),
    ("get_image", ("shop", "shoe/1.jpg"), {}),
    ("list_metadata_keys", ("shop",), {"values": 5}),
    ("add_items", ("shop", [NewItem(IMAGE, "a", "b", {"c": 1})]), {"on_conflict": "skip"}),
    ("add_items", ("shop", [NewEmbedding("a", [1.0], "b", {"c": 1}, "u")]), {"space": "clip"}),
    ("patch_item", ("shop", "a/b"), {"label": None, "metadata": {"price": None}}),
    ("delete_item", ("shop", "a/b"), {}),
    ("delete_items", ("shop", ["a", "b"]), {}),
    ("set_items_aside", ("shop", ["a", "b"], "two things"), {"instead": {"a": "c"}}),
    ("bring_item_back", ("shop", "a/b"), {}),
    ("list_items_aside", ("shop",), {}),
    ("get_thumbnail_aside", ("shop", "a/b"), {}),
    ("add_searches", ("shop", ["s"]), {"a_label": 3}),
    ("remove_added_search", ("shop", "s"), {}),
    ("explain_wrong_match", ("shop", "s", "a/b"), {}),
    ("search", ("shop", IMAGE), SEARCH | PIPELINE),
    ("search", ("shop",), {"embedding": [1, 2], **SEARCH}),
    ("search", ("shop",), {"item_id": "a", **PIPELINE}),
    ("search_embedding", ("shop", [1.0, 2.0]), SEARCH | PIPELINE),
    ("search_embedding", ("shop", b"\0\0\x80\x3f"), {}),
    ("search", ("shop",), {"search_id": "0a", "sort_by": "label"}),
    ("get_kept_picture", ("shop", "0a"), {}),
    ("search_batch", ("shop", [IMAGE, IMAGE]), SEARCH | PIPELINE),
    ("search_batch", ("shop",), {"embeddings": [[1.0], [2.0]]}),
    ("search_batch", ("shop",), {"item_ids": ["a", "b"]}),
    ("delete_searches", ("shop", ["0a", "0b"]), {}),
    ("delete_searches", ("shop",), {"before": datetime(2026, 1, 2, tzinfo=UTC)}),
    (
        "start_calibration",
        ("shop",),
        {"queries": "q", "visits_by": "none", "absent": 0.2, **CALIBRATION},
    ),
    ("start_calibration", ("shop",), {"images": [IMAGE], "labels": ["a"], **CALIBRATION}),
    ("start_calibration", ("shop",), {"embeddings": [[1.0]], "labels": ["a"]}),
    ("list_calibrations", ("shop",), {}),
    ("get_calibration", ("shop", "c"), {}),
    ("activate_calibration", ("shop", "c"), {}),
    ("roll_back", ("shop",), PIPELINE),
    ("put_threshold", ("shop", 0.5), PIPELINE),
    (
        "start_comparison",
        ("shop",),
        {"versions": [1], "pipelines": True, "target": "fpir=5%", "seed": 1},
    ),
    ("start_comparison", ("shop",), {"embeddings": [[1.0]], "labels": ["a"]}),
    ("get_comparison", ("shop", "c"), {}),
    ("activate_variant", ("shop", "c", 1), {}),
    ("get_pipeline", ("shop",), {}),
    ("reset_pipeline", ("shop",), {}),
    ("reindex_gallery", ("shop",), {"source": "photos", "bundle": "b", "index": "Flat", "max_failures": 3}),
    ("answer_search", ("shop", "s"), {"label": "shoe"}),
    ("answer_search", ("shop", "s"), {"absent": True, "unsure": False, "item_id": "a", "wrong": "b"}),
    ("answer_searches", ("shop", [{"search_id": "s", "label": "shoe"}]), {}),
    ("take_back_search_answer", ("shop", 3), {}),
    ("get_search_answers", ("shop",), {}),
    ("next_searches", ("shop", 3), {}),
    ("list_searches", ("shop",), {"shown": "unsure", "after": "1/a", "size": 5}),
    ("get_search", ("shop", "s"), {}),
    ("list_labels", ("shop",), {"like": "sho", "size": 5}),
    ("list_jobs", (), {"gallery": "shop", "state": "running", "size": 5}),
    ("get_job", ("7",), {}),
    ("cancel_job", ("7",), {}),
    ("resume_job", ("7",), {}),
]
# Made of other calls.
COMPOSED = {"add_embeddings", "add_item", "add_images", "compact", "wait_for_job"}
LEFT_OUT = {
    "add_answer",
    "call_no_copies",
    "dry_run",
    "finish_labelling",
    "follow_job",
    "get_duplicates",
    "get_job_failures",
    "get_job_log",
    "get_labelling",
    "get_points",
    "get_report",
    "list_comparisons",
    "list_copy_verdicts",
    "list_duplicates",
    "metrics",
    "start_check",
    "start_duplicates",
    "start_labelling",
    "take_back_answers_of",
    "take_back_answer",
    "take_back_copy_verdict",
}


class Documented:
    """Answers as the API document says, and refuses a request that it does not allow."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        found = next(one for one in operations() if one.takes(request.method, request.url.path))
        self.called.append(found.name)
        assert set(request.url.params) <= found.parameters
        self._check_body(found, request)
        status, schema = found.answer
        return (
            httpx.Response(status, json=example(schema)) if schema else httpx.Response(status, content=IMAGE)
        )

    def _check_body(self, found: Operation, request: httpx.Request) -> None:
        kind = request.headers.get("content-type", "").partition(";")[0]
        if not kind:
            assert not request.read()
            assert not found.schema.get("requestBody", {}).get("required")
            return
        schema = found.body(kind)
        if schema.get("format") == "binary":
            assert len(request.read()) % 4 == 0
            return
        sent = Form(request).members if kind == FORM else set(json.loads(request.read()))
        assert kind in (FORM, JSON)
        assert sent <= set(schema["properties"])
        assert set(schema.get("required", ())) <= sent


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "args", "given"), CASES, ids=lambda one: one if isinstance(one, str) else ""
)
def test_a_call_is_sent_as_the_document_says(
    name: str, args: tuple[Any, ...], given: dict[str, Any], connect: Callable[..., Either]
) -> None:
    server = Documented()
    getattr(connect(server), name)(*args, **given)
    assert server.called == [name]


def methods() -> Iterator[str]:
    return (name for name in dir(Client) if isinstance(getattr(Client, name), operation))


def test_every_method_is_tried() -> None:
    assert set(methods()) - COMPOSED == {name for name, *_ in CASES}


def test_what_the_client_leaves_out_is_named() -> None:
    assert {one.name for one in operations()} - set(methods()) - LEFT_OUT == set()
    assert set(methods()) & LEFT_OUT == set()


@pytest.mark.parametrize(
    "request_",
    [
        httpx.Request("GET", "http://x/v1/jobs", params={"color": "red"}),
        httpx.Request("POST", "http://x/v1/galleries/shop/search", json={"item": "a"}),
        httpx.Request("POST", "http://x/v1/galleries/shop/items/delete", json={}),
        httpx.Request("POST", "http://x/v1/galleries/shop/search"),
        httpx.Request("POST", "http://x/v1/galleries/shop/items", data={"id": "a"}, files={"picture": IMAGE}),
    ],
)
def test_the_check_of_the_calls_sees_a_wrong_one(request_: httpx.Request) -> None:
    """Negative controls."""
    with pytest.raises(AssertionError):
        Documented()(request_)


# Arguments by other names, and what a call sends by itself.
OTHERWISE = {"confirm", "image_base64", "items", "item_id", "id", "queries"}


def accepted(name: str) -> set[str]:
    """Names that a call takes."""
    hints = get_type_hints(getattr(Client, name).__wrapped__)
    options = hints.get("options")
    return set(hints) | (set(get_type_hints(options.__args__[0])) if options else set())


def test_what_the_document_lets_choose_can_be_chosen() -> None:
    own = {one.name: one for one in operations() if one.name not in LEFT_OUT}
    sent = {name: one.parameters | one.members(JSON) for name, one in own.items()}
    assert {name: found for name in sent if (found := sent[name] - accepted(name) - OTHERWISE)} == {}


@pytest.mark.parametrize(
    "given", [{}, {"image": IMAGE, "item_id": "a"}, {"embedding": [1.0], "item_id": "a"}]
)
def test_a_search_is_for_exactly_one_thing(given: dict[str, Any], connect: Callable[..., Either]) -> None:
    client = connect(Documented())
    with pytest.raises(ValueError, match="exactly one of: image, embedding, item id, id of a kept"):
        client.search("shop", **given)
    several = {f"{name}s": [one] for name, one in given.items()}
    with pytest.raises(ValueError, match="exactly one of: image, embedding, item id, id of a kept"):
        client.search_batch("shop", **several)


def test_a_label_is_kept_removed_or_changed(connect: Callable[..., Either]) -> None:
    bodies: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.read()))
        return Documented()(request)

    client = connect(answer)
    client.patch_item("shop", "a", metadata={"price": 3})
    client.patch_item("shop", "a", label=None)
    client.patch_item("shop", "a", label="b")
    assert bodies == [{"metadata": {"price": 3}}, {"label": None}, {"label": "b"}]


@pytest.mark.parametrize("kind", ["bytes", "str", "path"])
def test_an_image_is_bytes_or_a_path(kind: str, tmp_path: Path, connect: Callable[..., Either]) -> None:
    path = tmp_path / "größe 42.png"
    path.write_bytes(IMAGE)
    image = {"bytes": IMAGE, "str": str(path), "path": path}[kind]
    forms: list[Form] = []

    def answer(request: httpx.Request) -> httpx.Response:
        forms.append(Form(request))
        return Documented()(request)

    connect(answer).search("shop", image)
    assert forms[0].images == [IMAGE]
