"""Sources of ready embeddings: what is written is read, and what cannot be used is named by its row."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from vicinal.calibration.arrays import FloatArray
from vicinal.indexer import EmbeddingSource
from vicinal.indexer.errors import SourceError
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
@pytest.mark.parametrize("place", [0, 19])
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


def test_a_file_without_any_embedding_or_id_is_refused(tmp_path: Path) -> None:
    lists = pa.list_(pa.float32())
    assert refusal(table(tmp_path / "a.parquet", [None, []], lists)) == (
        "'a.parquet' holds no embedding in any of its 2 rows"
    )
    path = table(tmp_path / "b.parquet", embeddings(2), id=pa.array(["", None]))
    assert refusal(path).startswith("none of the 2 rows of 'b.parquet' can be used, the first because row 1")


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


def test_ids_that_are_there_twice_refuse_the_file_also_beside_missing_ones(tmp_path: Path) -> None:
    for names, later, earlier in ((["a", "b", "c", "b", "c"], 4, 2), ([None, "b", "", None, "b"], 5, 2)):
        assert refusal(table(tmp_path / "a.parquet", embeddings(5), id=names)) == (
            f"row {later} of 'a.parquet' has the id 'b' of row {earlier}: leave one of them out"
        )


@pytest.mark.parametrize(
    ("suffix", "column", "value", "what"),
    [
        (".npy", "label", "x" * 1025, "the label of 'sku 3' has 1,025 characters"),
        (".npz", "label", "two\nlines", "the label of 'sku 3', 'two\\nlines', holds the character U+000A"),
        (".parquet", "path", "x" * 9000, "the uri of 'sku 3' has 9,000 characters"),
        (".parquet", "note", "x" * 70_000, "the metadata of 'sku 3' are 70,0"),
    ],
)
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


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"sku": ["x"], "embedding": [[1.0, 2.0]]}, "has no ids: it has no 'id', only sku; name what holds"),
        (
            {"id": ["x"], "embedding": ["1 2"]},
            "column 'embedding' of 'a.parquet' holds string, expected lists",
        ),
        ({"id": ["x"], "vec": [[1.0, 2.0]]}, "'a.parquet' has no column 'embedding', only id, vec: name the"),
        ({"id": [[1]], "embedding": [[1.0, 2.0]]}, "'id' of 'a.parquet' holds list<"),
        (
            {"id": pa.array([], pa.string()), "embedding": pa.array([], pa.list_(pa.float32()))},
            "holds no rows",
        ),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(tmp_path: Path, columns: Any, reason: str) -> None:
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    assert reason in refusal(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"embeddings": np.ones(3), "ids": ids(3)}, "are float64 of shape (3,), expected numbers in rows"),
        ({"embeddings": embeddings(3)}, "'a.npz' has no ids: it has no 'ids', only embeddings; name what"),
        ({"vectors": embeddings(3), "ids": ids(3)}, "'a.npz' has no array 'embeddings', only vectors, ids"),
        ({"embeddings": embeddings(3), "ids": ids(2)}, "array 'ids' of 'a.npz' has the shape (2,) beside 3"),
        ({"embeddings": embeddings(3), "ids": np.array(["a", None, 3], dtype=object)}, "objects of Python"),
        *(
            (
                {"embeddings": embeddings(3), "ids": ids(3), "when": np.arange(3).astype(kind)},
                f"array 'when' of 'a.npz' holds {np.dtype(kind)}, expected texts, numbers or",
            )
            for kind in ("c16", "m8[m]", "M8[m]", "g", [("x", "f4")])
        ),
        ({"embeddings": embeddings(3) * 1j, "ids": ids(3)}, "are complex64 of shape (3, 4)"),
    ],
)
def test_arrays_that_cannot_be_used_are_refused(tmp_path: Path, arrays: Any, reason: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    assert reason in refusal(tmp_path / "a.npz")


def test_arrays_of_another_byte_order_are_read_as_what_they_are(tmp_path: Path) -> None:
    found = []
    for order in "<>":
        arrays = {"embeddings": embeddings(3), "ids": np.arange(3), "labels": np.array(["a", "b", "a"])}
        arrays |= {"price": np.arange(3) / 2, "when": np.arange(3).astype("M8[s]")}
        ordered = {name: one.astype(one.dtype.newbyteorder(order)) for name, one in arrays.items()}
        np.savez(tmp_path / "a.npz", **ordered)
        rows = read(EmbeddingSource.open(tmp_path / "a.npz"), 2)
        found.append((*map(str, (rows.ids, rows.labels, rows.metadata)), rows.embeddings.tolist()))
    assert found[0] == found[1]


def test_a_file_that_is_damaged_or_lacks_what_stands_beside_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and then nothing")
    assert "'a.parquet' cannot be read: " in refusal(tmp_path / "a.parquet")
    np.save(tmp_path / "a.npy", embeddings(3))
    assert "'a.npy' holds no ids: lay 'a.csv' beside it" in refusal(tmp_path / "a.npy")
    (tmp_path / "a.csv").write_text("id\nx\ny\n", encoding="utf-8")
    assert "'a.csv' has 2 lines for the 3 rows of 'a.npy': give one each" in refusal(tmp_path / "a.npy")
    np.save(tmp_path / "a.npy", np.float32(1))
    assert "are float32 of shape (), expected numbers in rows" in refusal(tmp_path / "a.npy")


def alone(folder: Path) -> Path:
    np.save(folder / "a.npy", embeddings(3))
    return folder / "a.npy"


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


def test_a_look_counts_the_labels_of_every_kind_of_file(tmp_path: Path) -> None:
    path = table(tmp_path / "a.parquet", embeddings(3), label=["x", None, "x"])
    np.savez(tmp_path / "a.npz", embeddings=embeddings(3), ids=[1, 2, 3], labels=["x", "", "x"])
    for one in (path, tmp_path / "a.npz"):
        look = EmbeddingSource.open(one).look()
        assert (look.n_items, look.n_labels, look.n_unlabelled) == (3, 1, 1)
