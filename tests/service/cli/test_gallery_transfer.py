"""`vicinal gallery export`, `import`, `copy`, `rename` and `alias` as a user meets them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.forks import forked_python
from tests.service.kept_searches import keep_searches
from tests.service.types import Calibrate, Fail, Run, View
from vicinal.indexer.gallery import Gallery
from vicinal.service.measuring.matcher import Matcher


def in_process(*words: str) -> list[str]:
    """`vicinal gallery` as a process of its own."""
    return [*forked_python(), "-m", "vicinal", "gallery", *words]


@pytest.fixture
def root(data_dir: Path, calibrate: Calibrate) -> Path:
    """Folder of the galleries, of which `shoes` is calibrated."""
    calibrate(Gallery(data_dir / "galleries" / "shoes"))
    return data_dir / "galleries"


@pytest.fixture
def archive(run: Run, root: Path, tmp_path: Path) -> Path:
    run("gallery", "export", "shoes", "-o", tmp_path / "shoes.tar")
    return tmp_path / "shoes.tar"


def test_a_gallery_goes_to_another_machine_with_its_threshold(
    run: Run, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = run("gallery", "show", "shoes").stdout.splitlines()
    monkeypatch.setenv("VICINAL_DATA_DIR", str(tmp_path / "other machine"))
    lines = run("gallery", "import", "shoes", archive).stdout.splitlines()
    assert lines == before
    assert "Threshold" in "\n".join(lines)
    again = run("gallery", "import", "boots", archive).stdout.splitlines()
    assert again[0].startswith("Gallery boots: 60 ")
    assert again[1:] == before[1:]


def test_an_export_says_what_it_leaves_out(run: Run, root: Path, matcher: Matcher, view: View) -> None:
    keep_searches(matcher, view, n=2)
    assert "Without 2 kept searches" in run("gallery", "export", "shoes", "-o", "shoes.tar").stdout
    assert "Without" not in run("gallery", "export", "shoes", "--searches", "-o", "all.tar").stdout
    run("gallery", "import", "boots", "shoes.tar")
    assert not (root / "boots/searches").exists()


@pytest.mark.slow
def test_an_archive_passes_a_pipe(run: Run, root: Path) -> None:
    with subprocess.Popen(
        in_process("export", "shoes", "-o", "-"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as export:
        imported = subprocess.run(
            in_process("import", "boots", "-"),
            stdin=export.stdout,
            capture_output=True,
            check=False,
        )
        said = export.stderr.read()
    assert (export.returncode, imported.returncode, imported.stderr) == (0, 0, b"")
    assert said == b"Exported gallery shoes: 60 items, version 1\n"
    assert imported.stdout.startswith(b"Gallery boots: 60 ")


def test_nothing_is_written_over(run: Run, fail: Fail, archive: Path) -> None:
    content = archive.read_bytes()
    assert fail("gallery", "export", "shoes", "-o", archive) == (
        f"vicinal: '{archive}' exists: choose another file, or remove it"
    )
    assert archive.read_bytes() == content
    assert (
        fail("gallery", "import", "shoes", archive) == "vicinal: gallery 'shoes' exists: choose another name"
    )
