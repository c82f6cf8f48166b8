"""Self-hosted image search that knows when there is no match.

What a program needs stands here and is loaded when it is first named, so that importing `vicinal` is cheap:

    Settings     where galleries and bundles are, and how searches work
    create_app   the HTTP service, as an ASGI application
    Matcher      searches one gallery; gives an Answer with Candidates
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vicinal.service import Answer, Candidate, Matcher, Settings, create_app

__all__ = ["Answer", "Candidate", "Matcher", "Settings", "create_app"]


def __getattr__(name: str) -> object:
    if name in __all__:
        return getattr(import_module("vicinal.service"), name)
    raise AttributeError(f"module 'vicinal' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
