"""Sealed JSON: an object whose last key is the SHA-256 of all that stands before it.

It stays JSON that anybody can read, and one changed byte is told from what was written:

    {"version": 3,
      "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    }
"""

from __future__ import annotations

import hashlib
import re

_SEAL = re.compile(rb'\n  "sha256": "([0-9a-f]{64})"\n}\n')
_LENGTH = len(b'\n  "sha256": ""\n}\n') + 64


class BrokenSealError(ValueError):
    """Something is not what was sealed."""


def sealed(text: str) -> bytes:
    """A JSON object, without a key `sha256`, with its seal."""
    body = text.strip()
    if not (body.startswith("{") and body.endswith("}")):
        raise ValueError(f"only an object can be sealed, not '{body[:20]}'")
    content = body[:-1].rstrip()
    stored = (content if content == "{" else content + ",").encode()
    return stored + b'\n  "sha256": "%s"\n}\n' % hashlib.sha256(stored).hexdigest().encode()


def unsealed(stored: bytes) -> bytes:
    """The JSON object that was sealed."""
    found = _SEAL.fullmatch(stored[-_LENGTH:])
    if found is None or hashlib.sha256(stored[:-_LENGTH]).hexdigest().encode() != found[1]:
        raise BrokenSealError("it is not what was written")
    return stored[:-_LENGTH].removesuffix(b",") + b"}"


def unsealed_if_sealed(stored: bytes) -> bytes:
    """The same of what may never have been sealed; whoever reads it has to refuse a key `sha256`."""
    return unsealed(stored) if _SEAL.fullmatch(stored[-_LENGTH:]) else stored
