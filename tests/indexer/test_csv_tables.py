"""Tables of text are read as whatever wrote them meant them, and one bad row takes no other with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vicinal.indexer.csv_tables import CsvTable, read_csv
from vicinal.indexer.errors import SourceError
from vicinal.indexer.sources import Source

WANTED = ("path", "label", "id")


def read(folder: Path, text: str | bytes) -> CsvTable:
    (folder / "a.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_csv(folder / "a.csv", WANTED, texts=["path"])


def column(folder: Path, *values: str) -> list[Any]:
    return read(folder, "path,x\n" + "".join(f"p,{one}\n" for one in values)).table["x"].to_pylist()


@pytest.mark.parametrize(
    "text",
    [
        *("00123", "+4930123", "1" * 23, "1e5", "1.10", "-0", " 7", "0x10", "1_000", "٣", "inf", "1,5", ".5"),
        *("5.", "2026-01-31T00:30+02:00", "2026-01-31", "10:30", "yes", "tRUE", "9007199254740993", "NULL"),
    ],
)
def test_what_would_not_come_back_stays_text(tmp_path: Path, text: str) -> None:
    assert column(tmp_path, f'"{text}"', '"b 1"') == [text, "b 1"]
    assert column(tmp_path, f'"{text}"') == [text]


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["0", "-7", "12"], [0, -7, 12]),
        (["1.5", "", "7.25"], [1.5, None, 7.25]),
        (["1.5", "2"], [1.5, 2.0]),
        (["1.5", "nan"], [1.5, float("nan")]),
        (["true", "", "false"], [True, None, False]),
        (["True", "False"], [True, False]),
        (["TRUE", "TRUE"], [True, True]),
    ],
)
def test_numbers_and_booleans_are_those_that_come_back(
    tmp_path: Path, texts: list[str], values: list[Any]
) -> None:
    assert [str(one) for one in column(tmp_path, *texts)] == [str(one) for one in values]


@pytest.mark.parametrize(
    ("price", "is_named"),
    [
        *(("12,50", True), ("1.234,00", True), ("5%", True), ("-5,5 %", True), ("1'000,5", True)),
        *(("12.50", False), ("007", False), ("31.01.2026", False), ("a,b", False), ("7", False)),
    ],
)
def test_numbers_that_filters_take_for_texts_are_named(tmp_path: Path, price: str, is_named: bool) -> None:
    (tmp_path / "a.csv").write_text(f"path;price\n1.jpg;{price}\n2.jpg;07\n")
    source = Source.open(tmp_path / "a.csv")
    assert [one.metadata for one in source.items] == [{"price": price}, {"price": "07"}]
    said = f"filters do not compare column 'price' with numbers, as '{price}' is a text"
    assert (said in str(source.remark)) == is_named


TEXT = 'path;label;price, EUR\n1.jpg;Café;"1,99"\n2.jpg;tea;\n'
BOTH = [{"path": "1.jpg", "label": "Café", "price, EUR": "1,99"}]
BOTH += [{"path": "2.jpg", "label": "tea", "price, EUR": None}]


@pytest.mark.parametrize("mark", ["", "sep=;\r\n", '"sep=;"\n'])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_what_spreadsheets_write(tmp_path: Path, mark: str, encoding: str, end: str) -> None:
    text = (mark + TEXT).replace("\r\n", "\n").replace("\n", end)
    assert read(tmp_path, text.encode(encoding)).table.to_pylist() == BOTH


@pytest.mark.parametrize("sign", [",", ";", "\t", "|"])
def test_the_sign_between_columns_is_the_one_that_the_wanted_columns_have(tmp_path: Path, sign: str) -> None:
    others = [one for one in ",;\t|" if one != sign]
    text = sign.join(["path", f'"{"".join(others)}"', "label"]) + "\n" + sign.join(["1.jpg", "x", "a"]) + "\n"
    assert read(tmp_path, text).table["label"].to_pylist() == ["a"]


@pytest.mark.parametrize(
    "above",
    [
        "# exported by a tool\n# on 2026-01-31, 10:30\n",
        "My shop,,\n,,\n",
        "Inventory\n\nof January; all rooms\n",
        '"Title, quoted",\n',
        "sep=,\n# comment\n",
    ],
)
def test_titles_and_comments_above_the_names_of_columns_are_passed_over(tmp_path: Path, above: str) -> None:
    found = read(tmp_path, above + "path,label,price\n1.jpg,a,3\n2.jpg,b,4\n")
    assert found.table.to_pylist() == [
        {"path": "1.jpg", "label": "a", "price": 3},
        {"path": "2.jpg", "label": "b", "price": 4},
    ]


def test_no_row_is_taken_for_the_names_where_these_are_on_the_first_line(tmp_path: Path) -> None:
    """Negative control: a value may be called as a column is."""
    found = read(tmp_path, "path,x\n1.jpg,a\npath,label\nid,label\n")
    assert found.table["path"].to_pylist() == ["1.jpg", "path", "id"]


@pytest.mark.parametrize("text", ["path,label,\n1.jpg,a,note\n", "path,label,,\n1.jpg,a,,\n2.jpg,b,note,\n"])
def test_the_last_columns_may_have_values_and_no_name(tmp_path: Path, text: str) -> None:
    found = read(tmp_path, text)
    assert found.bad_rows == {}
    assert found.table["column 3"].to_pylist()[-1] == "note"
    assert found.table.column_names == ["path", "label", "column 3"]


@pytest.mark.parametrize("size", [20, 2**20 + 7])
@pytest.mark.parametrize("filling", ["x", "line\r\n", 'say ""no"", '])
def test_rows_may_be_long_and_have_line_breaks(tmp_path: Path, size: int, filling: str) -> None:
    long = filling * (size // len(filling))
    found = read(tmp_path, f'path,words,label\n1.jpg,"{long}",a\n2.jpg,,b\n')
    assert found.table["label"].to_pylist() == ["a", "b"]
    assert found.table["words"].to_pylist() == [long.replace('""', '"'), None]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("2.jpg", "line 3 has 1 values for 3 columns"),
        ("2.jpg,b,c,d", "line 3 has 4 values for 3 columns"),
        ('2.jpg,"b,c', "line 3 has quotes that are not closed"),
        ('2.jpg,"b"b,c', "line 3 has quotes that are not closed, or not written twice"),
        ('2.jpg,"b\n2b,c', "line 3 has quotes"),
        (b"2.jpg,caf\xe9,c", "line 3 is not UTF-8"),
    ],
    ids=["short", "long", "open", "inner", "open over two lines", "Latin-1"],
)
def test_a_bad_row_fails_alone(tmp_path: Path, line: str | bytes, reason: str) -> None:
    encoded = line if isinstance(line, bytes) else line.encode()
    rows = [b"path,label,x", "1.jpg,é,y".encode(), encoded, b'3.jpg,"a, b","q"', b"4.jpg,b,z"]
    found = read(tmp_path, b"\n".join(rows))
    assert found.table["path"].to_pylist() == ["1.jpg", "3.jpg", "4.jpg"]
    assert found.bad_rows[2].startswith(reason)


def test_many_open_quotes_do_not_take_for_ever(tmp_path: Path) -> None:
    text = "path,label\n1.jpg,a\n" + '2.jpg,"b\n' * 20_001
    assert read(tmp_path, text).table["path"].to_pylist() == ["1.jpg"]


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        ("path,label\n1.jpg,caf\xe9\n".encode("latin-1"), "line 2 is not UTF-8; save it as UTF-8"),
        ("path,l\xe4bel\n1.jpg,café\n".encode("cp1252"), "line 1 is not UTF-8"),
        (b"path,l\xe4bel\n1.jpg,caf\xc3\xa9\n", "the names of its columns are not UTF-8"),
        (b"", "it is empty"),
        (b"\n\n", "it is empty"),
        (b"path,label\n1.jpg\n", "none of its rows can, the first because line 2 has 1 values for 2 columns"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused_with_a_reason(
    tmp_path: Path, encoded: bytes, reason: str
) -> None:
    with pytest.raises(SourceError, match=reason):
        read(tmp_path, encoded)
