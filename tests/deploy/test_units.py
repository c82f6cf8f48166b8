"""Units of systemd: read by systemd where it is installed, and by what an operator relies on."""

from __future__ import annotations

import configparser
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import program
from vicinal.service.http.serving import processes, server
from vicinal.service.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
UNITS = [ROOT / "deploy/vicinal.service", ROOT / "deploy/vicinal-worker.service"]
COMMAND = "/opt/vicinal/bin/vicinal"
# Of 10, as `systemd-analyze security` counts: 0 is nothing left to do harm with.
MOST_EXPOSED = 2.0
each = pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)


def section(unit: Path, name: str) -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(unit, encoding="utf-8")
    return dict(parser[name])


def systemd_analyze(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [program("systemd-analyze"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def startable(unit: Path, folder: Path, **changes: str) -> Path:
    """A copy of a unit whose command is there."""
    text = unit.read_text(encoding="utf-8").replace(COMMAND, sys.executable)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (folder / unit.name).write_text(text, encoding="utf-8")
    return folder / unit.name


@each
def test_systemd_accepts_a_unit(unit: Path, tmp_path: Path) -> None:
    done = systemd_analyze("verify", "--man=no", startable(unit, tmp_path))
    assert (done.returncode, done.stderr) == (0, "")


@each
def test_a_unit_leaves_little_to_do_harm_with(unit: Path, tmp_path: Path) -> None:
    review = ("security", "--offline=true", f"--threshold={MOST_EXPOSED * 10:.0f}", "--no-pager")
    done = systemd_analyze(*review, startable(unit, tmp_path))
    assert done.returncode == 0, done.stdout
    # Negative control.
    weaker = startable(unit, tmp_path, **{"NoNewPrivileges=yes": "", "SystemCallFilter=@system-service": ""})
    assert systemd_analyze(*review, weaker).returncode != 0


@each
def test_a_unit_has_what_operators_expect(unit: Path) -> None:
    service = section(unit, "Service")
    wanted = {
        "User": "vicinal",
        "StateDirectory": "vicinal",
        "StateDirectoryMode": "0700",
        "ProtectSystem": "strict",
        "ProtectHome": "yes",
        "NoNewPrivileges": "yes",
        "CapabilityBoundingSet": "",
        "Restart": "on-failure",
        "EnvironmentFile": "-/etc/vicinal/vicinal.env",
        "UMask": "0077",
    }
    assert {name: service.get(name) for name in wanted} == wanted
    assert "VICINAL_DATA_DIR=%S/vicinal" in service["Environment"].split()
    assert int(service["LimitNOFILE"]) > 2 * Settings().max_connections
    assert service["MemoryMax"].endswith("G")
    assert section(unit, "Install") == {"WantedBy": "multi-user.target"}


@each
def test_a_unit_gives_a_process_the_time_to_stop(unit: Path) -> None:
    settings = Settings()
    alone = server._DRAIN_SECONDS + settings.shutdown_seconds + server._END_SECONDS
    together = settings.shutdown_seconds + processes._KILL_SECONDS
    assert int(section(unit, "Service")["TimeoutStopSec"]) > max(alone, together)
