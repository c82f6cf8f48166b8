"""Text of a value of a table, of an array or of JSON that is an id or a label: the same from every reader."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np

# Signs without a look of their own, and joiners after letters of alphabets that do not join any.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufe0e\ufeff]"
    "|(?<![\u0530-\u1dff\u2190-\U0010ffff])[\u200c\u200d]"
)
# Cyrillic and Greek letters that are drawn as Latin ones.
_DRAWN_AS = str.maketrans(
    "АВЕЅІЈКМНОРСТУХасеіјорѕхуһԁԛԝӏΑΒΕΖΗΙΚΜΝΟΡΤΥΧον",  # noqa: RUF001  look-alikes are what it is about
    "ABESIJKMHOPCTYXaceijopsxyhdqwlABEZHIKMNOPTYXov",
)
# Forms that look otherwise than what they stand for, such as the 2 of m².
_OWN_LOOK = ("<super>", "<sub>", "<circle>", "<fraction>", "<square>")


def value_as_text(value: Any) -> str | None:
    """Text of an id or a label, one for equal values; None for a missing one, such as NaN."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(value, str):
        return str(value) or None
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, int | np.integer):
        return str(int(value))
    if isinstance(value, np.datetime64):
        return None if np.isnat(value) else str(value)
    if isinstance(value, float | np.floating | Decimal):
        return _number_text(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise ValueError(f"a value of type {type(value).__name__}")


def label_in_one_form(label: str) -> str:
    """A label in Unicode's NFC without blanks at its ends: what one cannot see does not make two labels."""
    return unicodedata.normalize("NFC", label.strip().strip("\u200b\ufeff").strip())


def look_of(label: str) -> str:
    """Text that labels which look the same share: in Latin letters, without signs that one cannot see."""
    forms = (
        one if unicodedata.decomposition(one).startswith(_OWN_LOOK) else unicodedata.normalize("NFKD", one)
        for one in _INVISIBLE.sub("", label)
    )
    return "".join(forms).translate(_DRAWN_AS)


def visible(label: str, group: Sequence[str]) -> str:
    """A label in quotes, signs that one cannot see as escapes; and what it has of which others have none."""
    others = {character for one in group if one != label for character in one}
    names = [unicodedata.name(one, ascii(one)) for one in dict.fromkeys(label) if one not in others]
    shown = _INVISIBLE.sub(lambda found: ascii(found[0])[1:-1], label)
    return f"'{shown}'" + (f" ({', '.join(names)})" if names else "")


def _number_text(number: float | np.floating[Any] | Decimal) -> str | None:
    if isinstance(number, Decimal):
        if number.is_nan():
            return None
        if number.is_infinite():
            raise ValueError("infinity")
        whole = number.to_integral_value()
        return str(int(whole)) if number == whole else f"{number.normalize():f}"
    if np.isnan(number):
        return None
    if np.isinf(number):
        raise ValueError("infinity")
    # From here on floats do not hold all whole numbers: two ids may have become one.
    if abs(number) >= 2 ** (np.finfo(type(number)).nmant + 1):
        raise ValueError(f"the float {number}, whose last digits may be lost")
    return np.format_float_positional(number + 0.0, trim="-")
