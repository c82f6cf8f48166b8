"""`vicinal compare` and `vicinal use`."""

from __future__ import annotations

from pathlib import Path

from tests.service.types import Fail


def test_a_comparison_that_makes_no_sense_is_one_line(fail: Fail, data_dir: Path) -> None:
    assert "name a target" in fail("compare", "-g", "shoes")
    told = fail("compare", "-g", "shoes", "--target", "fpir")
    assert "option target: Value error, 'fpir' is no target" in told
    assert "not both" in fail("use", "-g", "shoes", "some", "--reset")
    assert "has no comparison 'some'" in fail("use", "-g", "shoes", "some")
