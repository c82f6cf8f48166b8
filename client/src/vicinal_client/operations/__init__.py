"""The calls of the API, each written once: what is sent, and how the answer is read.

Methods are named as the operations of the API (`openapi.json`); options that are left out (None) are the
server's to choose.
"""

from __future__ import annotations

from vicinal_client.operations.answers import AnswerCalls
from vicinal_client.operations.calibrations import CalibrationCalls
from vicinal_client.operations.galleries import GalleryCalls
from vicinal_client.operations.items import ItemCalls
from vicinal_client.operations.jobs import JobCalls
from vicinal_client.operations.search import SearchCalls

__all__ = ["Operations"]


class Operations(GalleryCalls, ItemCalls, SearchCalls, AnswerCalls, CalibrationCalls, JobCalls):
    """All calls; `Client` and `AsyncClient` have the same."""
