"""Filters that nobody should send: what once ended or froze a process, and seeded variations."""

from __future__ import annotations

import random

__all__ = ["NO_FILTERS", "hostile_filters"]

# Each of these ended the process, froze it or took its memory while filters went to Lance as they were.
KILLERS = [
    "+".join(["1"] * 2000) + ">0",
    "length(repeat(id,1000000))>5",
    "CAST(" * 60 + "id" + " AS VARCHAR)" * 60 + "='a'",
    "levenshtein(repeat(id,100000),repeat(id,100000))>1",
    "array_length(range(sequence,1000000))>1",
    "NOT (" * 45 + "id='a'" + ")" * 45,
    "random() > 0.5",
    "now() > '2020-01-01'",
    "json_get_int(metadata, 'price') < 5",
    "regexp_like(id, '(a+)+$')",
]
# What follows no grammar, names what is not there, or leaves another language's traces.
NO_FILTERS = [
    *KILLERS,
    *("", " ", "\n\t", ";", "--", "/* */", "'", '"', "`", "\\", "()", "(", ")", "NOT", "AND", "id"),
    *("label", "1", "true", "null", "*", "id = ", "= 'a'", "id = 'a' AND", "OR id = 'a'", "id 'a'"),
    *("id = 'a' id = 'b'", "id IN", "id IN (", "id IN ()", "id IN ('a',)", "id IN ('a' 'b')", "id LIKE"),
    *("id LIKE 5", "id LIKE label", "id IS", "id IS NOT", "id IS 5", "id BETWEEN 'a'"),
    *("id BETWEEN 'a' OR 'b'", "id == 'a'", "id <=> 'a'", "id ~ 'a'", "id || 'a' = 'b'"),
    *("id = 'a' && id = 'b'", "!(id = 'a')", "id = NULL", "id = id", "'a' = 'a'", "1 = 1"),
    *("id = 'a'; DROP TABLE items", "id = 'a') OR (", "id IN (SELECT id FROM items)", "EXISTS (SELECT 1)"),
    *("CASE WHEN id = 'a' THEN true END", "id = 'a' UNION SELECT 1", "uri = 'x'", "embedding IS NULL"),
    *("thumbnail IS NOT NULL", "sequence > 0", "_rowid = 1", "_rowaddr = 1", "source = 'x'", "price < 50"),
    *("ID = 'a'", "labels = 'a'", "Metadata.a = 1", "metadata = 'x'", "metadata IS NULL", "metadata. = 1"),
    *("metadata..a = 1", "metadata.a. = 1", 'metadata."" = 1', 'metadata."a = 1', "metadata['a'] = 1"),
    *("metadata->'a' = 1", "metadata.a[0] = 1", "metadata.* = 1", "metadata.a = 1e999"),
    *("metadata.a = 0x10", "metadata.a = 1_000", "metadata.a = .", "metadata.a = 5a", "metadata.a = -"),
    *("metadata.a = +-1", "metadata.a = 1 + 1", "metadata.a % 2 = 0", "metadata.a = NaN"),
    *("metadata.a = Infinity", "metadata.a = DATE '2024-13-01'", "metadata.a = DATE 'now'"),
    *("metadata.a = DATE 5", "metadata.a = DATE", "id = DATE '2024-01-01'", "metadata.a < true"),
    *("label = 5", "label IN ('a', 5)", "label = true", "label.x = 'a'", "id.a.b = 'c'", "id LIKE 'a\\'"),
    *("id LIKE 'a\\b'", "id LIKE '" + "%a" * 40 + "'", "id LIKE '" + "_" * 100 + "'"),
    *("id LIKE '" + "a" * 300 + "'", "id = 'a\0b'", "id\0 = 'a'", "\0", "id = '\ud800'", "id = 'a"),
    *("id = ''' ", "metadata.a = " + "9" * 4000, "(" * 4000, ")" * 4000),
    *("(" * 2000 + "id='a'" + ")" * 2000, "NOT " * 1000 + "id='a'", "'" * 4001, '"' * 4001, "\\" * 4000),
    *("id='a' AND " * 300 + "id='b'", "id='a' OR " * 300 + "id='b'", "metadata" + ".a" * 2000 + " = 1"),
    *("id = '" + "x" * 100_000 + "'", "id IN (" + "'a'," * 900 + "'b'", "x" * 4096, "x" * 1_000_000),
    *("\u202e" * 50, "\ufeffid = 'a'", "\u0456\u0501 = 'a'", "id \uff1d 'a'"),
]
_PIECES = [
    *("id", "label", "metadata", "metadata.a", 'metadata."b c"', "price", "uri", "=", "!=", "<", ">="),
    *("<>", "==", "AND", "OR", "NOT", "IN", "LIKE", "BETWEEN", "IS", "NULL", "(", ")", "((", "))", ","),
    *("'a'", "'", "''", '"', "5", "-1e308", "1e999", "true", "DATE", "DATE '2024-01-01'", "length(id)"),
    *("repeat(id, 1000000)", "CAST(id AS INT)", "+", "*", "/", "%", ";", "--", "\\", "\0", "\n", "$", "{}"),
    *("[1]", "é", "鞋", "😀", "'%_%_%'", "random()", "json_get(metadata, 'a')", ".", ".."),
]


def hostile_filters(n: int = 300, seed: int = 0) -> list[str]:
    """`NO_FILTERS`, and random rows of pieces of filters, n in all; some of the latter happen to be right."""
    chosen = random.Random(seed)
    made = [" ".join(chosen.choices(_PIECES, k=chosen.randint(2, 60))) for _ in range(n - len(NO_FILTERS))]
    return [*NO_FILTERS, *made]
