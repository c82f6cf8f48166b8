"""Media types: which form of an answer a client would rather have (RFC 9110, section 12.5.1)."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["preferred_media_type"]


def preferred_media_type(accept: str | None, offered: Sequence[str]) -> str:
    """The offered media type that an `Accept` header prefers.

    Args:
        accept: The header; None when there is none.
        offered: Media types, the one first that is given when the client likes several as much, or none.
    """
    wanted = _wanted(accept or "*/*")
    return max(offered, key=lambda one: _quality(one, wanted))


def _wanted(accept: str) -> dict[str, float]:
    """Quality by media range."""
    found: dict[str, float] = {}
    for part in accept.split(","):
        media_range, *parameters = (one.strip().lower() for one in part.split(";"))
        weights = [one.removeprefix("q=") for one in parameters if one.startswith("q=")]
        found[media_range] = _number(weights[0]) if weights else 1.0
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _quality(offered: str, wanted: dict[str, float]) -> float:
    # The most specific range decides.
    ranges = (offered, offered.partition("/")[0] + "/*", "*/*")
    return next((wanted[one] for one in ranges if one in wanted), 0.0)
