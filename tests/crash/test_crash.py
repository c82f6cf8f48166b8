"""Crashes: writers are killed, and nothing that they answered for is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.driver import CrashDriver
from vicinal.models.bundle import ModelBundle

pytestmark = pytest.mark.slow


def test_nothing_is_lost(tmp_path: Path, tiny_bundle: ModelBundle) -> None:
    driver = CrashDriver(tmp_path, tiny_bundle, seed=5)
    report = driver.run(5)
    driver.close()
    assert len(report.kills) >= 5
    assert report.n_versions_checked > 0
