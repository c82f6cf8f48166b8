"""Calls from Python with arguments of another kind: each error names the argument, and what was expected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vicinal
from vicinal.indexer.errors import SourceError
from vicinal.service.errors import RequestError

N, DIM = 60, 8
VECTORS = np.random.default_rng(0).normal(size=(N, DIM))
IDS = [str(i) for i in range(N)]


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = vicinal.open_gallery("clips", data_dir=tmp_path_factory.mktemp("data"))
    made.index(
        vicinal.EmbeddingSource.of_arrays(VECTORS, IDS, labels=[f"l{i // 4}" for i in range(N)]), space="clip"
    )
    return made


REFUSED: dict[str, tuple[Callable[[Any], object], str]] = {
    "option of compare": (lambda g: g.compare(targt=1), "no option 'targt': did you mean 'target'?"),
    "range of compare": (lambda g: g.compare(max_queries=-1), "max_queries is -1, expected at least 1"),
    "list of versions": (lambda g: g.compare([2]), "versions is [2], expected a whole number"),
    "flag": (lambda g: g.compare(pipelines=5), "pipelines is 5, expected "),
    "option of calibrate": (lambda g: g.calibrate(group="x"), "no option 'group': did you mean 'group_by'?"),
    "choice": (lambda g: g.calibrate(rerank="foo"), "rerank is 'foo', expected 'auto', 'off' or "),
    "None": (lambda g: g.calibrate(group_by=None), "group_by is None, expected a text"),
    "array of queries": (lambda g: g.calibrate(queries=VECTORS), ", expected a path"),
    "option of search": (lambda g: g.search(VECTORS[0], top_k=3), "no option 'top_k': choose of limit, "),
    "limit": (lambda g: g.search(VECTORS[0], limit="3"), "limit is '3', expected a whole number"),
    "threshold": (lambda g: g.search(VECTORS[0], threshold="0.5"), "threshold is '0.5', expected a number"),
    "filter": (lambda g: g.search(VECTORS[0], filter={"a": 1}), "filter is {'a': 1}, expected a text"),
    "group": (lambda g: g.search(VECTORS[0], group_by=5), "group_by is 5, expected a text"),
    "item": (lambda g: g.search(item=3), "item is 3, expected a text"),
    "one query for many": (lambda g: g.search_many("a.jpg"), "not str: `search` takes one query"),
    "no queries": (lambda g: g.search_many(None), "not NoneType: `search` takes one query"),
    "array to index": (
        lambda g: g.index(VECTORS),
        "not ndarray: arrays become one by EmbeddingSource.of_arr",
    ),
    "option of index": (lambda g: g.index("x", labelfrom=1), "no option 'labelfrom': did you mean 'label_f"),
    "conflict": (lambda g: g.index("x", on_conflict="over"), "on_conflict is 'over', expected 'error', 'rep"),
    "conflict of add": (lambda g: g.add("x", on_conflict="over"), "on_conflict is 'over', expected 'error'"),
    "failures": (lambda g: g.index("x", max_failures=-1), "max_failures is -1, expected at least 0"),
    "workers": (lambda g: g.index("x", workers=0), "workers is 0, expected at least 1"),
    "kind of index": (lambda g: g.index("x", index=5), "index is 5, expected a text"),
    "label_from": (lambda g: g.index("x", label_from=5), "label_from is 5, expected a text"),
    "progress": (lambda g: g.index("x", on_progress=5), "on_progress is 5, expected a function"),
    "one id": (lambda g: g.remove("12"), "ids is '12', expected a list, and not a text of its own"),
    "numbers of items": (lambda g: g.remove([1]), "ids.0 is 1, expected a text"),
    "no comparison": (lambda g: g.use(None), "comparison is None, expected a Comparison"),
    "version": (lambda g: g.activate("first"), "version is 'first', expected a whole number"),
    "name": (lambda _: vicinal.open_gallery(5), "name is 5, expected a text"),  # type: ignore[arg-type]
    "setting": (
        lambda _: vicinal.open_gallery("g", datadir="x"),
        "no option 'datadir': did you mean 'data_d",
    ),
    "device": (lambda _: vicinal.open_gallery("g", device="gpu"), "device: expected a text of the form "),
    "app": (lambda _: vicinal.create_app({}), "settings are of dict, expected Settings("),  # type: ignore[arg-type]
}


@pytest.mark.slow
@pytest.mark.parametrize("what", REFUSED)
def test_what_is_wrong_is_said_of_the_argument(clips: vicinal.LocalGallery, what: str) -> None:
    call, expected = REFUSED[what]
    with pytest.raises(RequestError) as refused:
        call(clips)
    assert expected in str(refused.value)
    assert len(clips) == N
    assert "pydantic" not in str(refused.value)


def test_a_value_that_can_be_a_secret_is_not_repeated() -> None:
    with pytest.raises(RequestError, match="redis_url") as refused:
        vicinal.open_gallery("g", redis_url=["redis://:hunter2@host"])
    assert "hunter2" not in str(refused.value)


ARRAYS: dict[str, tuple[dict[str, Any], str]] = {
    "no ids": ({"ids": None}, "embeddings have no ids"),
    "one id": ({"ids": "abc"}, "id is one str, expected a value for each embedding"),
    "a number of ids": ({"ids": N}, "id is one int, expected a value for each embedding"),
    "one label": ({"labels": "cup"}, "label is one str, expected"),
    "one object": (
        {"metadata": {"a": 1}},
        "metadata of an embedding are 'a', expected values by their names",
    ),
    "numbers": ({"metadata": [0] * N}, "metadata of an embedding are 0, expected values"),
    "one vector": ({"embeddings": VECTORS[0]}, "embeddings have the shape (8,), expected numbers (n, d)"),
    "one number": ({"embeddings": 5}, "embeddings have the shape (), expected"),
    "ragged": ({"embeddings": [[1.0, 2.0], [1.0]]}, "row 2 has 1 numbers, the first one 2"),
}


@pytest.mark.parametrize("what", ARRAYS)
def test_arrays_of_another_form_are_refused_in_a_sentence(what: str) -> None:
    given, expected = ARRAYS[what]
    with pytest.raises(SourceError) as refused:
        vicinal.EmbeddingSource.of_arrays(**{"embeddings": VECTORS, "ids": IDS, **given})
    assert expected in str(refused.value)
