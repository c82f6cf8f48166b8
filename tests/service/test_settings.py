"""Settings: where they come from, which come first, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from vicinal.service.errors import RequestError
from vicinal.service.settings import Settings


def test_the_defaults_listen_on_loopback_without_keys() -> None:
    settings = Settings()
    assert (settings.host, settings.api_keys) == ("127.0.0.1", {})


def test_arguments_win_over_the_environment_and_it_over_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "vicinal.toml").write_text("port = 1\nmax_batch = 1\nmax_limit = 1\n", encoding="utf-8")
    monkeypatch.setenv("VICINAL_PORT", "2")
    monkeypatch.setenv("VICINAL_MAX_BATCH", "2")
    settings = Settings(port=3)
    assert (settings.port, settings.max_batch, settings.max_limit) == (3, 2, 1)


@pytest.mark.parametrize(
    "fields",
    [
        {"port": 70_000},
        {"threads": -1},
        {"max_batch": 0},
        {"device": "tpu"},
        {"api_keys": {"key": ["everything"]}},
        {"api_keys": {"": ["search"]}},
        {"pipeline": {"rerank": {"k": 1}}},
        {"unknown": 1},
    ],
)
def test_values_that_cannot_work_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate(fields)


def test_keys_are_not_shown() -> None:
    assert "hunter2" not in repr(Settings(api_keys={"hunter2": ("search",)}))


@pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user, which root may")
@pytest.mark.parametrize(
    ("mode", "owner", "is_link", "obeyed"),
    [
        (0o1777, 12_345, False, False),
        (0o777, 12_345, False, False),
        (0o773, 12_345, False, False),
        (0o1777, 12_345, True, False),
        (0o755, 12_345, False, True),
        (0o775, 12_345, False, True),
        (0o1777, 0, False, True),
        (0o1777, 0, True, True),
    ],
)
def test_a_file_of_another_user_where_anybody_writes_is_not_obeyed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, owner: int, is_link: bool, obeyed: bool
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(mode)
    file = folder / "vicinal.toml"
    if is_link:
        (tmp_path / "mine.toml").write_text("port = 1\n")
        file.symlink_to(tmp_path / "mine.toml")
    else:
        file.write_text("port = 1\n")
    os.chown(file, owner, owner, follow_symlinks=False)
    monkeypatch.chdir(folder)
    if obeyed:
        assert Settings().port == 1
    else:
        with pytest.raises(RequestError, match="is of another user"):
            Settings()
