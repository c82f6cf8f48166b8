"""Crashes: processes that change a gallery are killed, and nothing that they answered for is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.driver import CrashDriver
from vicinal.models.bundle import ModelBundle

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("process", "n_kills"), [("writer", 5), ("command", 2), ("server", 2)])
def test_nothing_is_lost(tmp_path: Path, tiny_bundle: ModelBundle, process: str, n_kills: int) -> None:
    driver = CrashDriver(tmp_path, tiny_bundle, seed=n_kills)
    report = driver.run(n_kills, (process,))
    driver.close()
    assert len(report.kills) >= n_kills
    assert report.n_versions_checked > 0
