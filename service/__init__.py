"""Online side: matcher, calibrator, HTTP application and command line, each loaded when first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vicinal.service.http.app import create_app
    from vicinal.service.measuring.matcher import Matcher
    from vicinal.service.search.answers import Answer, Candidate
    from vicinal.service.settings import Settings

__all__ = ["Answer", "Candidate", "Matcher", "Settings", "create_app"]

_MODULES = {
    "Answer": "search.answers",
    "Candidate": "search.answers",
    "Matcher": "measuring.matcher",
    "Settings": "settings",
    "create_app": "http.app",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(f"vicinal.service.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'vicinal.service' has no attribute '{name}'")
