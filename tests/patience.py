"""Patience with what answers late because its machine stands still: more than people are asked for."""

from __future__ import annotations

import pytest
from httpx._config import DEFAULT_TIMEOUT_CONFIG

from vicinal.indexer.engines import milvus, milvus_connection

__all__ = ["ENGINE_SECONDS", "SECONDS", "be_patient"]

SECONDS = 60.0
# Less, as the client of Milvus asks again and again until then where nobody listens.
ENGINE_SECONDS = 20


def be_patient() -> None:
    """Let requests that name no time, and questions to engines, wait for long in this process, for good.

    Tests of what does not answer set less.
    """
    lasting = pytest.MonkeyPatch()
    for limit in ("connect", "read", "write", "pool"):
        lasting.setattr(DEFAULT_TIMEOUT_CONFIG, limit, SECONDS)
    for module in (milvus_connection, milvus):
        lasting.setattr(module, "SEARCH_SECONDS", float(ENGINE_SECONDS))
    lasting.setattr(milvus_connection, "CONNECT_SECONDS", float(ENGINE_SECONDS))
