"""Grammar of filters: a text becomes an expression, or an error that says where it is wrong.

    label = 'shoe' AND (metadata.price < 50 OR metadata."on sale" = true) AND NOT id LIKE 'old/%'

The parser is LALR(1), so its time is linear in a text whose length is bounded, and it uses no recursion.
"""

from __future__ import annotations

import difflib
import math
import re
from datetime import date
from functools import cache
from typing import Any, NamedTuple

from lark import Lark, Token, Transformer, UnexpectedInput, UnexpectedToken
from lark.exceptions import VisitError

from vicinal.indexer.errors import FilterError
from vicinal.indexer.filters.expressions import (
    And,
    Expression,
    Field,
    Like,
    Literal,
    Missing,
    Not,
    OneOf,
    Or,
    Ordered,
)

MOST_CHARACTERS = 4096
_MOST_TERMS = 64
_DEEPEST = 16
_MOST_KEYS = 16
_LONGEST_PATTERN = 256
_MOST_PERCENTS = 32
# Each doubles the states of a pattern that `%` stands before.
_MOST_UNDERSCORES = 10

ALLOWED = (
    "a filter compares `id`, `label` and `metadata.NAME` by = != < <= > >=, IN, LIKE, BETWEEN or IS NULL, "
    "with 'texts', numbers, true, false or DATE '2026-01-31', joined by AND, OR, NOT and parentheses"
)

_GRAMMAR = r"""
?start: disjunction
?disjunction: conjunction (_OR conjunction)*
?conjunction: negation (_AND negation)*
?negation: _NOT negation -> opposite
    | "(" disjunction ")" -> group
    | field OPERATOR value -> comparison
    | field _IN "(" value ("," value)* ")" -> one_of
    | field _NOT _IN "(" value ("," value)* ")" -> none_of
    | field _LIKE TEXT -> like
    | field _NOT _LIKE TEXT -> unlike
    | field _BETWEEN value _AND value -> between
    | field _NOT _BETWEEN value _AND value -> outside
    | field _IS _NULL -> missing
    | field _IS _NOT _NULL -> present
field: NAME ("." (KEY | QUOTED))*
value: TEXT | NUMBER | TRUE | FALSE | DATE TEXT

OPERATOR: "<=" | ">=" | "<>" | "!=" | "=" | "<" | ">"
_AND.2: /and\b/i
_OR.2: /or\b/i
_NOT.2: /not\b/i
_IN.2: /in\b/i
_LIKE.2: /like\b/i
_BETWEEN.2: /between\b/i
_IS.2: /is\b/i
_NULL.2: /null\b/i
TRUE.2: /true\b/i
FALSE.2: /false\b/i
DATE.2: /date\b/i
NAME: /[^\W\d]\w*/
KEY: /\w+/
QUOTED: /"(?:[^"]|"")+"/
TEXT: /'(?:[^']|'')*'/
NUMBER: /[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?!\w)/
%ignore /\s+/
"""

# What people call the parts of a filter, by the names of the grammar.
_WORDS = {
    "NAME": "a field",
    "_NOT": "NOT",
    "LPAR": "(",
    "RPAR": ")",
    "OPERATOR": "a comparison such as = or <",
    "_IN": "IN",
    "_LIKE": "LIKE",
    "_BETWEEN": "BETWEEN",
    "_IS": "IS NULL",
    "_NULL": "NULL",
    "_AND": "AND",
    "_OR": "OR",
    "TEXT": "a 'text'",
    "NUMBER": "a number",
    "TRUE": "true",
    "FALSE": "false",
    "DATE": "a date",
    "COMMA": "a comma",
    "KEY": "the name of a metadata field",
    "QUOTED": 'a "name" of a metadata field',
    "DOT": "a dot",
    "$END": "the end",
}


def parse(text: str) -> Expression:
    """Parse a filter of at most `MOST_CHARACTERS`."""
    # Before anything else looks at it.
    if len(text) > MOST_CHARACTERS:
        raise FilterError(text, f"it has {len(text):,} characters, at most {MOST_CHARACTERS:,} are taken")
    if (odd := re.search("[\0\ud800-\udfff]", text)) is not None:
        raise FilterError(text, f"character {odd.start() + 1} is no character of a text")
    if not text.strip():
        raise FilterError(text, f"it is empty; {ALLOWED}")
    try:
        read: Any = _parser().parse(text)
        for sign, most in (("%", _MOST_PERCENTS), ("_", _MOST_UNDERSCORES)):
            if read.patterns.count(sign) > most:
                raise _RefusedError(f"its texts for LIKE have more than {most} signs {sign} in all")
        return read.expression
    except UnexpectedInput as error:
        position = _position(text, error)
        raise FilterError(text, f"{_place(text, position)}: {_misread(text, position, error)}") from error
    except (_RefusedError, VisitError) as error:
        refusal: Any = error.orig_exc if isinstance(error, VisitError) else error
        where = "" if refusal.position is None else f"{_place(text, refusal.position)}: "
        raise FilterError(text, f"{where}{refusal}") from error


class _RefusedError(ValueError):
    """Text that follows the grammar and is no filter all the same."""

    def __init__(self, reason: str, position: int | None = None) -> None:
        super().__init__(reason)
        self.position = position


class _Part(NamedTuple):
    """A part of a filter, and what is counted of it."""

    expression: Expression
    depth: int = 0
    n_terms: int = 1
    patterns: str = ""

    def within(self, expression: Expression | None = None) -> _Part:
        """The part one level deeper."""
        if self.depth == _DEEPEST:
            raise _RefusedError(f"it is nested more than {_DEEPEST} deep")
        return self._replace(expression=expression or self.expression, depth=self.depth + 1)


class _Builder(Transformer[Token, Any]):
    """Makes expressions of what the parser finds, while it finds it: from the inside out."""

    def disjunction(self, parts: list[_Part]) -> _Part:
        return _joined(Or, parts)

    def conjunction(self, parts: list[_Part]) -> _Part:
        return _joined(And, parts)

    def opposite(self, parts: list[_Part]) -> _Part:
        return parts[0].within(Not(parts[0].expression))

    def group(self, parts: list[_Part]) -> _Part:
        return parts[0].within()

    def comparison(self, parts: list[Any]) -> _Part:
        field, operator, value = parts
        if operator in ("=", "!=", "<>"):
            equal = OneOf(field, (_fitting(field, value),))
            return _Part(equal if operator == "=" else Not(equal))
        return _Part(_ordered(field, str(operator), value))

    def one_of(self, parts: list[Any]) -> _Part:
        field, *values = parts
        return _Part(OneOf(field, tuple(_fitting(field, value) for value in values)))

    def none_of(self, parts: list[Any]) -> _Part:
        return _Part(Not(self.one_of(parts).expression))

    def like(self, parts: list[Any]) -> _Part:
        field, pattern = parts[0], _pattern(parts[1])
        return _Part(Like(field, pattern), patterns=re.sub(r"\\.", "", pattern))

    def unlike(self, parts: list[Any]) -> _Part:
        part = self.like(parts)
        return part._replace(expression=Not(part.expression))

    def between(self, parts: list[Any]) -> _Part:
        field, low, high = parts
        return _Part(And((_ordered(field, ">=", low), _ordered(field, "<=", high))), n_terms=2)

    def outside(self, parts: list[Any]) -> _Part:
        return _Part(Not(self.between(parts).expression), n_terms=2)

    def missing(self, parts: list[Field]) -> _Part:
        return _Part(Missing(parts[0]))

    def present(self, parts: list[Field]) -> _Part:
        return _Part(Not(Missing(parts[0])))

    def field(self, names: list[Token]) -> Field:
        first, keys = names[0], [_unquoted(name, '"') if name[0] == '"' else str(name) for name in names[1:]]
        if first in ("id", "label"):
            if keys:
                raise _RefusedError(f"`{first}` is a text, it has no fields of its own", first.start_pos)
            return Field((str(first),))
        if first != "metadata":
            raise _RefusedError(_unknown_field(first, names), first.start_pos)
        if not keys:
            raise _RefusedError("name a field of the metadata, such as `metadata.price`", first.start_pos)
        if len(keys) > _MOST_KEYS:
            raise _RefusedError(f"it leads more than {_MOST_KEYS} fields deep", first.start_pos)
        return Field(("metadata", *keys))

    def value(self, tokens: list[Token]) -> _Value:
        *kind, token = tokens
        return _Value(_literal(token, is_date=bool(kind)), token)


class _Value(NamedTuple):
    """A value and where it stands."""

    literal: Literal
    token: Token


@cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", maybe_placeholders=False, transformer=_Builder())


def _joined(kind: type[And | Or], parts: list[_Part]) -> _Part:
    n_terms = sum(part.n_terms for part in parts)
    if n_terms > _MOST_TERMS:
        raise _RefusedError(
            f"it has more than {_MOST_TERMS} comparisons; `IN` compares with many values at once"
        )
    joined = kind(tuple(part.expression for part in parts))
    patterns = "".join(part.patterns for part in parts)
    return _Part(joined, max(part.depth for part in parts), n_terms, patterns)


def _ordered(field: Field, operator: str, value: _Value) -> Ordered:
    literal = _fitting(field, value)
    if isinstance(literal, bool):
        raise _RefusedError("true and false have no order, compare them by = or !=", value.token.start_pos)
    return Ordered(field, operator, literal)


def _fitting(field: Field, value: _Value) -> Literal:
    """A value that the field can have."""
    if not field.keys and not isinstance(value.literal, str):
        name, token = field.path[0], value.token
        hint = "" if isinstance(value.literal, date) else f": write '{token}'"
        raise _RefusedError(f"`{name}` is compared with texts{hint}", token.start_pos)
    return value.literal


def _literal(token: Token, *, is_date: bool) -> Literal:
    if token.type == "NUMBER":
        value = float(token)
        if not math.isfinite(value):
            raise _RefusedError("the number is too large", token.start_pos)
        return int(token) if re.fullmatch("[+-]?[0-9]+", token) else value
    if token.type in ("TRUE", "FALSE"):
        return token.type == "TRUE"
    text = _unquoted(token, "'")
    if not is_date:
        return text
    try:
        return date.fromisoformat(text if re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text) else "")
    except ValueError:
        raise _RefusedError("a date is written as in DATE '2026-01-31'", token.start_pos) from None


def _unquoted(token: str, quote: str) -> str:
    return str(token[1:-1]).replace(2 * quote, quote)


def _pattern(token: Token) -> str:
    pattern, start = _unquoted(token, "'"), token.start_pos
    if len(pattern) > _LONGEST_PATTERN:
        raise _RefusedError(f"a text for LIKE has at most {_LONGEST_PATTERN} characters", start)
    plain = re.sub(r"\\[%_\\]", "", pattern)
    if "\\" in plain:
        raise _RefusedError(
            r"a backslash in a text for LIKE stands before %, _ or another \, as in '50\%'", start
        )
    return pattern


def _unknown_field(first: Token, names: list[Token]) -> str:
    near = difflib.get_close_matches(first.lower(), ["id", "label", "metadata"], n=1, cutoff=0.6)
    meant = [str(near[0] if near else f"metadata.{first}"), *map(str, names[1:])]
    return (
        f"there is no field `{first}`, did you mean `{'.'.join(meant)}`? {ALLOWED[0].upper() + ALLOWED[1:]}"
    )


def _position(text: str, error: UnexpectedInput) -> int:
    is_end = isinstance(error, UnexpectedToken) and error.token.type == "$END"
    return len(text) if is_end or error.pos_in_stream is None else error.pos_in_stream


def _place(text: str, position: int) -> str:
    if position >= len(text):
        return "at its end"
    shown = text[position : position + 20]
    return f"at character {position + 1}, `{shown}{'…' if position + 20 < len(text) else ''}`"


def _misread(text: str, position: int, error: UnexpectedInput) -> str:
    """Tell what stood there in place of what could, and what was probably meant."""
    expected = getattr(error, "expected", None) or getattr(error, "allowed", None) or ()
    names = [word for name, word in _WORDS.items() if name in expected]
    hint = _hint(text[:position], text[position:])
    # A function and the like: no other sign in its place would help.
    if hint.startswith("there"):
        return f"{hint}; {ALLOWED}"
    wanted = f"expected {', '.join(names)}" if names else "this is no part of a filter"
    return f"{wanted}; {hint or ALLOWED}"


def _hint(before: str, rest: str) -> str:
    name = re.search(r"(\w+)\s*\Z", before)
    if rest.startswith("(") and name is not None:
        looked_into = re.match(r"""\(\s*metadata\s*,\s*['"](?:\$\.)?(\w+)""", rest)
        if name[1].lower().startswith("json") and looked_into is not None:
            return f"there are no functions, write `metadata.{looked_into[1]}`"
        return f"there are no functions such as `{name[1][:40]}`"
    if rest.startswith(("[", "->")) and name is not None and name[1] == "metadata":
        return "fields are written `metadata.price`"
    for pattern, hint in _HINTS:
        if re.match(pattern, rest, re.IGNORECASE):
            return hint
    word = re.match(r'"([^"]*)"|(\w+)', rest)
    if word is not None and re.search(r"(?:[=<>,]|\bLIKE|\bIN\s*\()\s*\Z", before, re.IGNORECASE):
        return f"texts stand in single quotes: '{(word[1] or word[2] or '')[:40]}'"
    return ""


# What other languages write, and what it is here.
_HINTS = (
    (r"=", "equality is written ="),
    (r"&", "write AND"),
    (r"\|", "write OR"),
    (r"!", "write NOT, or != between a field and a value"),
    (r"null\b", "whether there is a value is asked by IS NULL or IS NOT NULL"),
    (r"ilike\b|similar\b|regexp?\b|~", "texts are compared by LIKE, with % for any characters and _ for one"),
    (r"case\b|cast\b|select\b|exists\b", "there are no functions and no queries"),
    (r"[-+*/%^]", 'there is no arithmetic; names with such signs are quoted, as in `metadata."list-price"`'),
    (r"'", "a text ends with a single quote, and one inside of it is written twice"),
)
