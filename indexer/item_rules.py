"""Rules of items: ids that can be read again, and labels, addresses and metadata that every answer can carry.

They are looked at before anything is written; what was stored earlier `views.snapshot` makes fit an answer.
"""

from __future__ import annotations

import json
import re
from typing import Any

from vicinal.indexer.errors import ItemRefusedError
from vicinal.models.configs.value_texts import label_in_one_form

LONGEST_ID = 1024
LONGEST_LABEL = 1024
_LONGEST_URI = 8192
DEEPEST_METADATA = 32
MOST_METADATA_BYTES = 64 * 1024
_ENCODER = json.JSONEncoder(allow_nan=False)
# Control characters, line and paragraph separators, and halves of surrogate pairs.
_UNREADABLE = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
# Segments that clients and proxies take out of a path, with the one before them; browsers also where a dot is
# spelled %2e, or a slash as a backslash.
_ENDS = r"[/\\]|%(?:25)*(?:2f|5c)"
_SHORTENING = re.compile(rf"(?:^|{_ENDS})((?:\.|%(?:25)*2e){{1,2}})(?={_ENDS}|$)", re.IGNORECASE)


def readable(text: str) -> str:
    r"""A name on one line, controls as Python escapes them, and bytes that are not UTF-8 as `\xe9`."""
    return _UNREADABLE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    # Python's form of a byte that is not UTF-8.
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else ascii(found[0])[1:-1]


def checked_id(item_id: str) -> str:
    """An id that can be written on one line and in an address."""
    if not item_id or len(item_id) > LONGEST_ID:
        raise ItemRefusedError(f"an id has {len(item_id):,} characters, expected 1 to {LONGEST_ID:,}")
    if (found := _UNREADABLE.search(item_id)) is not None:
        what = f"the character U+{ord(found[0]):04X}"
        raise ItemRefusedError(
            f"id {_shown(item_id)} holds {what}: ids have no line breaks and no other control characters"
        )
    if (found := _SHORTENING.search(item_id)) is not None:
        raise ItemRefusedError(
            f"id {_shown(item_id)} holds the segment '{found[1]}', which clients take out of an address: "
            "give it an id without"
        )
    return item_id


def checked_label(label: str | None, item_id: str) -> str | None:
    """A label that can be written on one line, in one form (`label_in_one_form`); None for an empty one."""
    if not label:
        return None
    label = label_in_one_form(label)
    _not_longer(label, LONGEST_LABEL, "label", item_id)
    if (found := _UNREADABLE.search(label)) is not None:
        raise ItemRefusedError(
            f"the label of {_shown(item_id)}, {_shown(label)}, holds the character U+{ord(found[0]):04X}: "
            "labels have no line breaks and no other control characters"
        )
    return label or None


def checked_uri(uri: str, item_id: str) -> str:
    """Path or address of an item that is not too long, and that a system would open; see `checked_label`."""
    if "\0" in uri:
        raise ItemRefusedError(f"the uri of {_shown(item_id)} holds the character NUL, which no path does")
    return _not_longer(uri, _LONGEST_URI, "uri", item_id)


def id_of_path(path: str) -> str:
    """The id of what has none of its own: its path, without segments `.` and `..`."""
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == ".." and kept:
            kept.pop()
        elif segment not in (".", ".."):
            kept.append(segment)
    return "/".join(kept) or path


def checked_metadata(metadata: Any, item_id: str) -> str:
    """Metadata as JSON, as they are stored."""
    try:
        text = _ENCODER.encode(metadata)
        # Escaped, it is never shorter than as UTF-8.
        is_bounded = len(text) <= MOST_METADATA_BYTES and "\\ud" not in text
        size = len(text) if is_bounded else len(json.dumps(metadata, ensure_ascii=False).encode())
        is_deep = may_be_deep(text) and is_deeper(metadata, DEEPEST_METADATA)
    except UnicodeEncodeError as error:
        raise ItemRefusedError(f"{_whose(item_id)} hold half of a character") from error
    except RecursionError:
        size, is_deep = 0, True
    except (TypeError, ValueError) as error:
        raise ItemRefusedError(f"{_whose(item_id)} are no JSON: {error}") from error
    if is_deep:
        raise ItemRefusedError(f"{_whose(item_id)} are nested more than {DEEPEST_METADATA} deep")
    if size > MOST_METADATA_BYTES:
        raise ItemRefusedError(
            f"{_whose(item_id)} are {size:,} bytes as JSON, at most {MOST_METADATA_BYTES:,} are kept"
        )
    if "\\u0000" in text and _holds_nul(metadata):
        raise ItemRefusedError(f"{_whose(item_id)} hold the character NUL")
    return text


def may_be_deep(text: str) -> bool:
    """Tell whether JSON has enough brackets to be nested too deep."""
    return text.count("{") + text.count("[") > DEEPEST_METADATA


def is_deeper(value: Any, levels: int) -> bool:
    """Tell whether objects and lists are nested in more than some levels; without recursion."""
    nested = [value] if isinstance(value, dict | list) else []
    while nested and levels:
        parts = (part for one in nested for part in (one.values() if isinstance(one, dict) else one))
        nested, levels = [part for part in parts if isinstance(part, dict | list)], levels - 1
    return bool(nested)


def _not_longer(text: str, most: int, what: str, item_id: str) -> str:
    if len(text) > most:
        raise ItemRefusedError(
            f"the {what} of {_shown(item_id)} has {len(text):,} characters, expected at most {most:,}"
        )
    return text


def _holds_nul(value: Any) -> bool:
    if isinstance(value, dict):
        return any("\0" in str(key) or _holds_nul(part) for key, part in value.items())
    if isinstance(value, list):
        return any(map(_holds_nul, value))
    return isinstance(value, str) and "\0" in value


def n_bytes(value: Any) -> int:
    """Length of a value as JSON in UTF-8."""
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def _whose(item_id: str) -> str:
    return f"the metadata of {_shown(item_id)}"


def _shown(item_id: str) -> str:
    shown = item_id if len(item_id) <= 100 else f"{item_id[:100]}…"
    return f"'{readable(shown)}'"
