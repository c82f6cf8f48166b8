"""What tests that say nothing else wait for is waited for long."""

from __future__ import annotations

import httpx

from tests.patience import SECONDS


def test_requests_wait_for_a_machine_that_stands_still() -> None:
    with httpx.Client() as client:
        assert client.timeout == httpx.Timeout(SECONDS)
