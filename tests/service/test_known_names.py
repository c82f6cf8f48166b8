"""Names that are no settings are refused with the right one, and no secret is shown."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from docs.tables import settings_table
from tests.service.types import Fail
from vicinal.service.errors import RequestError
from vicinal.service.known_names import check_file, check_variables
from vicinal.service.settings import Settings

SECRET = "hunter2"


def refused(variable: str, value: str = SECRET) -> str:
    with pytest.raises(RequestError) as caught:
        check_variables(Settings, {variable: value}, "VICINAL_")
    return str(caught.value)


def test_a_setting_that_went_says_what_to_do_instead() -> None:
    assert refused("VICINAL_PIPELINE__RERANK__LAM").endswith(
        "is not a setting any more: k-reciprocal re-ranking is no more: choose contextual or off"
    )


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("VICINAL_BUNDEL", "VICINAL_BUNDLE"),
        ("vicinal_prot", "VICINAL_PORT"),
        ("VICINAL_PIPELINE__RERANK__KK", "VICINAL_PIPELINE__RERANK__K"),
        ("VICINAL_RETENTION_DAYS", "VICINAL_RETENTION__DAYS"),
        ("VICINAL_REDIS", "VICINAL_REDIS_URL"),
    ],
)
def test_a_misspelled_variable_is_refused_with_the_right_one(variable: str, meant: str) -> None:
    assert refused(variable) == f"{variable.upper()} is not a setting: did you mean {meant}?"


def test_a_setting_that_is_no_more_says_what_to_do_instead() -> None:
    assert "is not a setting any more: fetch what is on the web" in refused("VICINAL_ALLOW_URLS")
    assert "index with --index milvus or auto" in refused("VICINAL_POSTGRES_URL")


@pytest.mark.parametrize("variable", ["VICINAL_REDIS_ULR", "VICINAL_APIKEY", f"VICINAL_APIKEYS__{SECRET}"])
def test_neither_the_value_nor_a_key_is_shown(variable: str) -> None:
    assert SECRET not in refused(variable).lower()


def test_every_documented_setting_is_known() -> None:
    rows = [line.split("|")[1:3] for line in settings_table().splitlines()[2:]]
    variables = {variable.strip(" `"): "1" for _, variable in rows}
    assert len(variables) > 30
    check_variables(Settings, variables, "VICINAL_")
    for key, _ in rows:
        check_file(Settings, nested(key.strip(" `")), "vicinal.toml")


def nested(key: str) -> dict[str, object]:
    """A file with one dotted key."""
    first, _, rest = key.partition(".")
    return {first: nested(rest) if rest else 1}


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("ports", "port"),
        ("pipeline.rerank.kk", "pipeline.rerank.k"),
        ("pipelin.rerank", "pipeline"),
        ("retention.day", "retention.days"),
    ],
)
def test_a_misspelled_key_of_the_file_is_refused_with_the_right_one(key: str, meant: str) -> None:
    with pytest.raises(RequestError, match=rf"is not a setting: did you mean '{meant}'\?$"):
        check_file(Settings, nested(key), "vicinal.toml")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        (f"VICINAL_API_KEYS__{SECRET}", '["fly"]'),
        ("VICINAL_API_KEYS", f'{{"{SECRET}": ["fly"]}}'),
        ("VICINAL_API_KEYS", f"{SECRET}: fly"),
        (f"VICINAL_API_KEY__{SECRET}", '["search"]'),
    ],
)
def test_a_command_shows_no_key(
    fail: Fail, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    line = fail("gallery", "list")
    assert "api_key" in line.lower()
    assert SECRET not in line.lower()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["VICINAL_SOURCES_DIR", "VICINAL_PORT", "VICINAL_API_KEYS", "VICINAL_PROT"])
def test_settings_of_the_shell_reach_no_test(name: str) -> None:
    code = "import os, tests.conftest; print(*sorted(n for n in os.environ if n.startswith('VICINAL_')))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env={**os.environ, name: "nowhere", "VICINAL_TEST_DATA": "kept"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["VICINAL_TEST_DATA"]
