"""Sources of ready embeddings: what is written is read, and what cannot be used is named by its row."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer import EmbeddingSource
from vicinal.indexer.errors import ItemRefusedError, SourceError
from vicinal.indexer.item_rules import checked_label
from vicinal.indexer.sources import SourceOptions
from vicinal.indexer.sources.embedding_files import ReadyRows
from vicinal.indexer.sources.embeddings import holds_embeddings
from vicinal.models.similarity import normalize

DIM = 4
# Whatever JSON, Arrow and file names can hold: quotes, commas, line ends, letters of all scripts.
TEXTS = st.text(
    st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="\u2028\u2029"), max_size=12
)
IDS = TEXTS.filter(lambda text: text and set(text) - set("./\\"))
# In one form, as labels are kept.
_LABEL = TEXTS.map(lambda text: checked_label(text, "x")).filter(bool)
LABELS = st.lists(st.none() | _LABEL, min_size=40, max_size=40)


def embeddings(n: int, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).normal(size=(n, DIM)).astype(np.float32)


def ids(n: int) -> list[str]:
    return [f"sku {i}" for i in range(n)]


def table(file: Path, vectors: Any, kind: pa.DataType | None = None, **columns: Any) -> Path:
    """A Parquet file of embeddings, with the ids `sku 0`, `sku 1` and so on unless others are given."""
    lists = pa.array(list(vectors), kind or pa.list_(pa.float32()))
    parquet.write_table(pa.table({"id": ids(len(vectors)), **columns, "embedding": lists}), file)
    return file


def read(source: EmbeddingSource, n_rows: int = 7) -> ReadyRows:
    """All rows at once."""
    parts = list(source.batches(n_rows))
    assert all(len(one.ids) <= n_rows for one in parts)
    names = ("ids", "labels", "uris", "metadata")
    texts = (pa.concat_arrays([getattr(one, name) for one in parts]) for name in names)
    return ReadyRows(*texts, np.concatenate([one.embeddings for one in parts]))


def problems(path: Path, **options: Any) -> dict[str, str]:
    """Rows that cannot be used, by id, after all others were read."""
    source = EmbeddingSource.open(path, **options)
    n_read = sum(len(one.ids) for one in source.batches(7))
    assert n_read + len(source.problems) == len(source)
    return {one.id: str(one.problem) for one in source.problems}


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(SourceError) as refused:
        read(EmbeddingSource.open(path, **options))
    return str(refused.value)


@pytest.mark.slow
@settings(max_examples=40)
@given(
    names=st.lists(IDS, unique=True, min_size=1, max_size=40),
    labels=LABELS,
    n_rows=st.integers(1, 50),
    seed=st.integers(0, 5),
)
def test_what_is_read_from_parquet_is_what_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    names: list[str],
    labels: list[str | None],
    n_rows: int,
    seed: int,
) -> None:
    vectors, labels = embeddings(len(names), seed), labels[: len(names)]
    path = table(tmp_path_factory.mktemp("source") / "a.parquet", vectors, id=names, label=labels)
    source = EmbeddingSource.open(path)
    found = read(source, n_rows)
    assert (len(source), source.dim) == (len(names), DIM)
    assert (found.ids.to_pylist(), found.labels.to_pylist()) == (names, labels)
    np.testing.assert_array_equal(found.embeddings, normalize(vectors))


@pytest.mark.slow
@settings(max_examples=20)
@given(names=st.lists(IDS, unique=True, min_size=1, max_size=20), labels=LABELS)
def test_what_is_read_from_arrays_is_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], labels: list[str | None]
) -> None:
    """Numpy drops zeros at the end of a text and knows no None: an empty label is none."""
    vectors, labels = embeddings(len(names)), labels[: len(names)]
    path = tmp_path_factory.mktemp("source") / "a.npz"
    np.savez(path, embeddings=vectors, ids=names, labels=[label or "" for label in labels])
    found = read(EmbeddingSource.open(path))
    assert (found.ids.to_pylist(), found.labels.to_pylist()) == (names, labels)
    np.testing.assert_array_equal(found.embeddings, normalize(vectors))


@pytest.mark.parametrize("prefix", ["", "..", "a/../b"])
def test_ids_that_shorten_an_address_are_refused(tmp_path: Path, prefix: str) -> None:
    named = ids(3) if prefix else ["sku 0", "../sku 1", "sku 2"]
    np.savez(tmp_path / "a.npz", ids=named, embeddings=embeddings(3))
    if prefix:
        with pytest.raises(SourceError, match=r"none of the 3 rows of .* holds the segment"):
            EmbeddingSource.open(tmp_path / "a.npz", SourceOptions(prefix))
    else:
        (problem,) = problems(tmp_path / "a.npz").items()
        assert problem[0] == "row 2"
        assert problem[1].startswith("row 2 of 'a.npz' cannot be kept: id '../sku 1' holds the segment '..'")


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_an_array_is_read_with_the_lines_of_the_csv_beside_it(tmp_path: Path, delimiter: str) -> None:
    np.save(tmp_path / "a.npy", embeddings(3))
    with (tmp_path / "a.csv").open("w", encoding="utf-8", newline="") as stream:
        rows = [("id", "label", "price"), ("007", "größe 42", 3), ("a, b", "", 4), ('the "x"', "鞋", 5)]
        csv.writer(stream, delimiter=delimiter).writerows(rows)
    found = read(EmbeddingSource.open(tmp_path / "a.npy"), 2)
    assert found.ids.to_pylist() == ["007", "a, b", 'the "x"']
    assert found.labels.to_pylist() == ["größe 42", None, "鞋"]
    assert [json.loads(one) for one in found.metadata.to_pylist()] == [{"price": i} for i in (3, 4, 5)]
    np.testing.assert_array_equal(found.embeddings, normalize(embeddings(3)))


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float32()),
        pa.list_(pa.float64()),
        pa.large_list(pa.float32()),
        pa.list_(pa.float32(), DIM),
        pa.list_(pa.int64()),
    ],
    ids=str,
)
def test_all_kinds_of_lists_are_read(tmp_path: Path, kind: pa.DataType) -> None:
    vectors = np.random.default_rng(0).integers(-9, 9, (20, DIM)) + 10
    path = table(tmp_path / "a.parquet", vectors.tolist(), kind)
    np.testing.assert_array_equal(read(EmbeddingSource.open(path)).embeddings, normalize(vectors))


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8"])
def test_all_kinds_of_numbers_are_read(tmp_path: Path, dtype: str) -> None:
    vectors = (10 * embeddings(20) + 1).astype(dtype)
    np.savez(tmp_path / "a.npz", embeddings=vectors, ids=np.arange(20))
    found = read(EmbeddingSource.open(tmp_path / "a.npz"))
    assert found.ids.to_pylist() == [str(i) for i in range(20)]
    np.testing.assert_array_equal(found.embeddings, normalize(vectors))


def test_other_columns_become_metadata_and_the_path_a_uri(tmp_path: Path) -> None:
    columns = {"price": [1.5, math.nan], "color": ["red", None], "path": ["a.jpg", None]}
    path = table(tmp_path / "a.parquet", embeddings(2), **columns)
    found = read(EmbeddingSource.open(path))
    assert [json.loads(one) for one in found.metadata.to_pylist()] == [
        {"price": 1.5, "color": "red"},
        {"price": None},
    ]
    assert found.uris.to_pylist() == ["a.jpg", ""]


def test_a_label_may_be_a_category_or_a_number(tmp_path: Path) -> None:
    categories = pa.array(["b", "a", None]).dictionary_encode()
    path = table(tmp_path / "a.parquet", embeddings(3), label=categories)
    assert read(EmbeddingSource.open(path)).labels.to_pylist() == ["b", "a", None]
    path = table(tmp_path / "b.parquet", embeddings(3), label=[3, 4, None])
    assert read(EmbeddingSource.open(path)).labels.to_pylist() == ["3", "4", None]


def test_columns_can_have_other_names(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"sku": [7, 8], "id": ["x", "x"], "vec": embeddings(2).tolist()}), path)
    found = read(EmbeddingSource.open(path, SourceOptions(embedding_column="vec", id_column="sku")))
    assert found.ids.to_pylist() == ["7", "8"]
    assert json.loads(found.metadata[0].as_py()) == {"id": "x"}


def test_some_rows_keep_what_belongs_to_them(tmp_path: Path) -> None:
    path = table(tmp_path / "a.parquet", embeddings(5), label=list("abcde"))
    taken = read(EmbeddingSource.open(path)).take(np.array([1, 4]))
    assert (taken.ids.to_pylist(), taken.labels.to_pylist()) == (["sku 1", "sku 4"], ["b", "e"])
    np.testing.assert_array_equal(taken.embeddings, normalize(embeddings(5))[[1, 4]])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "what"),
    [
        ([0.0] * DIM, "that is zero: embed it again, or leave the row out"),
        ([1.0, math.nan, 0, 0], "that holds NaN or infinity: embed it again, or leave the row out"),
        ([1.0, math.inf, 0, 0], "that holds NaN or infinity: embed it again, or leave the row out"),
        ([1.0, None, 0, 0], "that holds NaN or infinity: embed it again, or leave the row out"),
        (None, ""),
        ([], ""),
    ],
)
@pytest.mark.parametrize("place", [0, 16, 19])
def test_an_embedding_that_cannot_be_used_is_named_by_its_row_and_takes_no_other_with_it(
    tmp_path: Path, row: list[float] | None, what: str, place: int
) -> None:
    vectors: list[Any] = embeddings(20).tolist()
    vectors[place] = row
    path = table(tmp_path / "a.parquet", vectors)
    said = f"has an embedding {what}" if what else "has no embedding"
    assert problems(path) == {f"sku {place}": f"row {place + 1} of 'a.parquet' {said}"}
    left = [i for i in range(20) if i != place]
    found = read(EmbeddingSource.open(path))
    assert found.ids.to_pylist() == [f"sku {i}" for i in left]
    np.testing.assert_array_equal(found.embeddings, normalize(embeddings(20)[left]))


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float16(), DIM)]
)
def test_missing_embeddings_of_every_kind_of_list_fail_alone(tmp_path: Path, kind: pa.DataType) -> None:
    vectors: list[Any] = [one.astype(np.float16) for one in embeddings(9)]
    vectors[0] = vectors[8] = None
    path = table(tmp_path / "a.parquet", vectors, kind)
    assert [*problems(path)] == ["sku 0", "sku 8"]
    expected = normalize(embeddings(9).astype(np.float16)[1:8])
    np.testing.assert_array_equal(read(EmbeddingSource.open(path)).embeddings, expected)


def test_an_embedding_of_another_length_refuses_the_file(tmp_path: Path) -> None:
    vectors: list[Any] = embeddings(20).tolist()
    vectors[16] = [1.0, 2.0]
    said = "row 17 of 'a.parquet' has an embedding of 2 numbers, the first one has 4: all must have the same"
    assert refusal(table(tmp_path / "a.parquet", vectors)).startswith(said)


def test_a_file_without_any_embedding_or_id_is_refused(tmp_path: Path) -> None:
    lists = pa.list_(pa.float32())
    assert refusal(table(tmp_path / "a.parquet", [None, []], lists)) == (
        "'a.parquet' holds no embedding in any of its 2 rows"
    )
    path = table(tmp_path / "b.parquet", embeddings(2), id=pa.array(["", None]))
    assert refusal(path).startswith("none of the 2 rows of 'b.parquet' can be used, the first because row 1")


def test_rows_of_arrays_are_named_too(tmp_path: Path) -> None:
    vectors = embeddings(20)
    vectors[16, 2] = np.nan
    vectors[3] = 0
    np.savez(tmp_path / "a.npz", embeddings=vectors, ids=ids(20))
    assert [one.split(": ")[0] for one in problems(tmp_path / "a.npz").values()] == [
        "row 4 of 'a.npz' has an embedding that is zero",
        "row 17 of 'a.npz' has an embedding that holds NaN or infinity",
    ]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a", "b", "", "c", "d"], {2: "has no id: give every row one, each another"}),
        ([None, "b", "x", "", "c"], dict.fromkeys((0, 3), "has no id: give every row one, each another")),
        (
            ["a", "b\n", "c", "d", "x" * 1025],
            {1: "cannot be kept: id 'b", 4: "cannot be kept: an id has 1,025"},
        ),
    ],
)
def test_an_id_that_cannot_be_used_is_named_by_its_row(
    tmp_path: Path, names: list[str | None], expected: dict[int, str]
) -> None:
    path = table(tmp_path / "a.parquet", embeddings(5), id=names)
    found = problems(path)
    assert [*found] == [f"row {row + 1}" for row in expected]
    for row, what in expected.items():
        assert found[f"row {row + 1}"].startswith(f"row {row + 1} of 'a.parquet' {what}")
    with pytest.raises(SourceError, match="nobody knows what is gone, and nothing was deleted"):
        EmbeddingSource.open(path).require_whole()


def test_rows_without_an_id_are_numbered_where_ids_may_be_missing(tmp_path: Path) -> None:
    path = table(tmp_path / "a.parquet", embeddings(3), id=["a", None, ""])
    source = EmbeddingSource.open(path, needs_ids=False)
    assert read(source).ids.to_pylist() == ["a", "a.parquet 1", "a.parquet 2"]
    assert source.problems == []


def test_ids_that_are_there_twice_refuse_the_file_also_beside_missing_ones(tmp_path: Path) -> None:
    for names, later, earlier in ((["a", "b", "c", "b", "c"], 4, 2), ([None, "b", "", None, "b"], 5, 2)):
        assert refusal(table(tmp_path / "a.parquet", embeddings(5), id=names)) == (
            f"row {later} of 'a.parquet' has the id 'b' of row {earlier}: leave one of them out"
        )


@pytest.mark.parametrize(
    ("column", "value", "what"),
    [
        ("label", "x" * 1025, "the label of 'sku 3' has 1,025 characters"),
        ("label", "two\nlines", "the label of 'sku 3', 'two\\nlines', holds the character U+000A"),
        ("path", "x" * 9000, "the uri of 'sku 3' has 9,000 characters"),
        ("note", "x" * 70_000, "the metadata of 'sku 3' are 70,0"),
    ],
)
@pytest.mark.parametrize("suffix", [".parquet", ".npz", ".npy"])
def test_what_cannot_be_kept_of_a_row_takes_no_other_with_it(
    tmp_path: Path, suffix: str, column: str, value: str, what: str
) -> None:
    values = ["good", "", "good", value, "last"]
    path = tmp_path / f"a{suffix}"
    if suffix == ".parquet":
        table(path, embeddings(5), **{column: values})
    elif suffix == ".npz":
        names = {"label": "labels", "path": "paths"}
        np.savez(path, ids=ids(5), embeddings=embeddings(5), **{names.get(column, column): values})
    else:
        np.save(path, embeddings(5))
        with path.with_suffix(".csv").open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream).writerows([("id", column), *zip(ids(5), values, strict=True)])
    ((item_id, problem),) = problems(path).items()
    assert (item_id, problem.startswith(f"row 4 of 'a{suffix}' cannot be kept: {what}")) == ("sku 3", True)
    assert read(EmbeddingSource.open(path)).ids.to_pylist() == ["sku 0", "sku 1", "sku 2", "sku 4"]
    assert EmbeddingSource.open(path).require_whole(), "its id is known"


def test_a_line_that_cannot_be_read_takes_its_row_of_the_array_alone(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", embeddings(4))
    (tmp_path / "a.csv").write_text("id,label\na,x\nb,x,9\nc,y\nd,y\n", encoding="utf-8")
    reason = "row 2 of 'a.npy' cannot be read in 'a.csv': line 3 has 3 values for 2 columns"
    assert problems(tmp_path / "a.npy") == {"row 2": reason}
    source = EmbeddingSource.open(tmp_path / "a.npy")
    found = read(source)
    assert (found.ids.to_pylist(), found.labels.to_pylist()) == (["a", "c", "d"], ["x", "y", "y"])
    np.testing.assert_array_equal(found.embeddings, normalize(embeddings(4)[[0, 2, 3]]))
    look = source.look()
    assert (look.n_items, look.n_unusable, look.unusable) == (3, 1, f"'row 2': {reason}")


@pytest.mark.parametrize("bad", ["vector", "label", "metadata"])
def test_arrays_of_a_program_are_taken_as_a_whole_or_not_at_all(bad: str) -> None:
    vectors = embeddings(3)
    if bad == "vector":
        vectors[1] = np.nan
    labels = ["x", "y" * 2000 if bad == "label" else "y", "z"]
    metadata = [{}, {"note": "x" * 70_000} if bad == "metadata" else {}, {}]
    source = EmbeddingSource.of_arrays(vectors, ids(3), labels=labels, metadata=metadata)
    with pytest.raises((SourceError, ItemRefusedError)):
        list(source.batches(2))
    assert source.problems == []


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ([pd.Timestamp("2026-01-31", tz="UTC"), pd.NaT], "2026-01-31T00:00:00+00:00"),
        ([pd.Timestamp("2026-01-31 10:30"), pd.NaT], "2026-01-31T10:30:00"),
        ([7, pd.NA], 7),
        ([1.5, None], 1.5),
    ],
)
def test_missing_metadata_of_pandas_are_none(values: list[Any], kept: Any) -> None:
    metadata = [{"x": one} for one in values]
    (rows,) = EmbeddingSource.of_arrays(embeddings(2), ids(2), metadata=metadata).batches(2)
    assert [json.loads(one) for one in rows.metadata.to_pylist()] == [{"x": kept}, {}]


@pytest.mark.slow
def test_many_bad_rows_are_found_in_one_pass(tmp_path: Path) -> None:
    """A million rows of zeros must not be normalized a million times."""
    vectors = embeddings(20_000)
    vectors[::2] = 0
    np.savez(tmp_path / "a.npz", embeddings=vectors, ids=ids(20_000))
    source = EmbeddingSource.open(tmp_path / "a.npz")
    assert sum(len(one.ids) for one in source.batches(20_000)) == len(source.problems) == 10_000


@pytest.mark.slow
@given(st.lists(st.integers(0, 6), min_size=1, max_size=12))
def test_the_first_repeated_id_is_the_one_that_a_plain_loop_finds(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[int]
) -> None:
    names = [f"id {number}" for number in numbers]
    again = next((i for i, name in enumerate(names) if name in names[:i]), None)
    path = table(tmp_path_factory.mktemp("source") / "a.parquet", embeddings(len(names)), id=names)
    if again is None:
        assert EmbeddingSource.open(path).ids.to_pylist() == names
    else:
        earlier = names.index(names[again])
        assert refusal(path).startswith(
            f"row {again + 1} of 'a.parquet' has the id '{names[again]}' of row {earlier + 1}"
        )


def without_ids(folder: Path) -> Path:
    parquet.write_table(pa.table({"sku": ["x"], "embedding": [[1.0, 2.0]]}), folder / "a.parquet")
    return folder / "a.parquet"


def of_texts(folder: Path) -> Path:
    parquet.write_table(pa.table({"id": ["x"], "embedding": ["1 2"]}), folder / "a.parquet")
    return folder / "a.parquet"


def of_other_names(folder: Path) -> Path:
    parquet.write_table(pa.table({"id": ["x"], "vec": [[1.0, 2.0]]}), folder / "a.parquet")
    return folder / "a.parquet"


def without_rows(folder: Path) -> Path:
    return table(folder / "a.parquet", [])


def with_pairs_as_ids(folder: Path) -> Path:
    return table(folder / "a.parquet", embeddings(2), id=[[1, 2], [3, 4]])


def damaged(folder: Path) -> Path:
    (folder / "a.parquet").write_bytes(b"PAR1 and then nothing")
    return folder / "a.parquet"


def alone(folder: Path) -> Path:
    np.save(folder / "a.npy", embeddings(3))
    return folder / "a.npy"


def with_a_line_too_few(folder: Path) -> Path:
    (folder / "a.csv").write_text("id\nx\ny\n", encoding="utf-8")
    return alone(folder)


def of_one_dimension(folder: Path) -> Path:
    np.savez(folder / "a.npz", embeddings=np.ones(3), ids=ids(3))
    return folder / "a.npz"


def arrays_without_ids(folder: Path) -> Path:
    np.savez(folder / "a.npz", embeddings=embeddings(3))
    return folder / "a.npz"


def arrays_of_other_names(folder: Path) -> Path:
    np.savez(folder / "a.npz", vectors=embeddings(3), ids=ids(3))
    return folder / "a.npz"


def arrays_of_other_lengths(folder: Path) -> Path:
    np.savez(folder / "a.npz", embeddings=embeddings(3), ids=ids(3), labels=["a", "b"])
    return folder / "a.npz"


def arrays_of_objects(folder: Path) -> Path:
    np.savez(folder / "a.npz", embeddings=embeddings(3), ids=np.array(["a", None, 3], dtype=object))
    return folder / "a.npz"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda folder: folder / "a.parquet", "there is no source '"),
        (lambda folder: folder, "holds no ready embeddings: give a .parquet file, .lance folder"),
        (
            without_ids,
            "'a.parquet' has no ids: it has no 'id', only sku; name what holds them by ",
        ),
        (of_texts, "column 'embedding' of 'a.parquet' holds string, expected lists of numbers"),
        (of_other_names, "'a.parquet' has no column 'embedding', only id, vec: name the one with the embedd"),
        (without_rows, "'a.parquet' holds no rows"),
        (with_pairs_as_ids, "'id' of 'a.parquet' holds list<"),
        (damaged, "'a.parquet' cannot be read: "),
        (alone, "'a.npy' holds no ids: lay 'a.csv' beside it, with a column 'id' and a line for each row"),
        (with_a_line_too_few, "'a.csv' has 2 lines for the 3 rows of 'a.npy': give one each"),
        (of_one_dimension, "the embeddings of 'a.npz' are float64 of shape (3,), expected numbers in rows"),
        (arrays_without_ids, "'a.npz' has no ids: it has no 'ids', only embeddings; name what holds them"),
        (
            arrays_of_other_names,
            "'a.npz' has no array 'embeddings', only vectors, ids: name the one",
        ),
        (
            arrays_of_other_lengths,
            "array 'labels' of 'a.npz' has the shape (2,) beside 3 embeddings: ",
        ),
        (arrays_of_objects, "array 'ids' of 'a.npz' cannot be read: it holds objects of Python, which "),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(
    tmp_path: Path, make: Callable[[Path], Path], reason: str
) -> None:
    assert reason in refusal(make(tmp_path))


def test_row_numbers_are_never_taken_for_ids(tmp_path: Path) -> None:
    """An index that pandas kept is a column like any other: it has to be named."""
    path = tmp_path / "a.parquet"
    columns = {"__index_level_0__": [5, 6], "embedding": embeddings(2).tolist()}
    parquet.write_table(pa.table(columns), path)
    assert "has no ids" in refusal(path)
    assert EmbeddingSource.open(path, SourceOptions(id_column="__index_level_0__")).ids.to_pylist() == [
        "5",
        "6",
    ]


def test_whether_a_file_holds_embeddings_is_seen_by_its_columns(tmp_path: Path) -> None:
    plain = table(tmp_path / "plain.parquet", embeddings(2))
    both = table(tmp_path / "both.parquet", embeddings(2), path=["a.jpg", "b.jpg"])
    assert holds_embeddings(plain)
    assert holds_embeddings(both, SourceOptions(embedding_column="embedding"))
    assert not holds_embeddings(plain, SourceOptions(path_column="id"))
    assert not holds_embeddings(both)
    assert holds_embeddings(alone(tmp_path))
    (tmp_path / "a.csv").write_text("id,embedding\n", encoding="utf-8")
    assert not any(map(holds_embeddings, [tmp_path, tmp_path / "a.csv", tmp_path / "missing.npy"]))


def test_the_identity_changes_with_the_file_and_with_what_is_read(tmp_path: Path) -> None:
    path = table(tmp_path / "a.parquet", embeddings(3), sku=["x", "y", "z"])
    first = EmbeddingSource.open(path).identity()
    assert EmbeddingSource.open(path).identity() == first
    assert EmbeddingSource.open(path, SourceOptions(id_column="sku")).identity() != first
    table(path, embeddings(4), sku=["x", "y", "z", "0"])
    assert EmbeddingSource.open(path).identity() != first


def test_labels_and_paths_of_other_columns_and_a_prefix(tmp_path: Path) -> None:
    path = table(tmp_path / "a.parquet", embeddings(2), brand=["x", "y"], photo=["1.jpg", "2.jpg"])
    options = SourceOptions("june", path_column="photo", label_column="brand")
    (found,) = EmbeddingSource.open(path, options).batches(9)
    assert [one.split("/")[0] for one in found.ids.to_pylist()] == ["june", "june"]
    assert (found.labels.to_pylist(), found.uris.to_pylist()) == (["x", "y"], ["1.jpg", "2.jpg"])
    assert found.metadata.to_pylist() == ["{}", "{}"]


def test_labels_that_are_not_asked_for_stay_as_metadata(tmp_path: Path) -> None:
    path = table(tmp_path / "a.parquet", embeddings(2), label=["x", "y"])
    source = EmbeddingSource.open(path, SourceOptions(label_from="none"))
    (found,) = source.batches(9)
    assert (found.labels.to_pylist(), found.metadata.to_pylist()[0]) == ([None, None], '{"label": "x"}')
    assert source.look().n_labels == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (SourceOptions(label_column="lost"), "has no 'lost', only id: name what holds the labels"),
        (SourceOptions(path_column="lost"), "has no 'lost', only id: name what holds the paths"),
        (SourceOptions(label_from="folder"), "come from column or none"),
        (SourceOptions(label_from="regex:(x)"), "come from column or none"),
    ],
)
def test_columns_that_are_missing_are_refused(tmp_path: Path, options: SourceOptions, sentence: str) -> None:
    with pytest.raises(SourceError, match=sentence):
        EmbeddingSource.open(table(tmp_path / "a.parquet", embeddings(2)), options)


def test_a_look_counts_the_labels_of_every_kind_of_file(tmp_path: Path) -> None:
    path = table(tmp_path / "a.parquet", embeddings(3), label=["x", None, "x"])
    np.savez(tmp_path / "a.npz", embeddings=embeddings(3), ids=[1, 2, 3], labels=["x", "", "x"])
    for one in (path, tmp_path / "a.npz"):
        look = EmbeddingSource.open(one).look()
        assert (look.n_items, look.n_labels, look.n_unlabelled) == (3, 1, 1)
