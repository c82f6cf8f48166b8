"""`vicinal gallery export`, `import`, `copy`, `rename` and `alias` as a user meets them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.forks import forked_python
from tests.service.types import Calibrate, Fail, Run
from tests.waiting import wait_until
from vicinal.indexer.gallery import Gallery

# An import that is killed while it writes: it stops after the first of the arrays.
SLOW_IMPORT = """
import sys, time
from pathlib import Path
from vicinal.indexer.transfer import archive

unpacked = archive._unpacked

def slowly(*arguments):
    if list(Path(sys.argv[1]).glob(".*.partial/boots/**/*.npy")):
        time.sleep(600)
    return unpacked(*arguments)

archive._unpacked = slowly
with Path(sys.argv[2]).open("rb") as stream:
    archive.import_gallery(Path(sys.argv[1]), stream, "boots")
"""


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


def shown(run: Run, name: str) -> dict[str, Any]:
    return dict(json.loads(run("gallery", "show", name, "--json").stdout))


@pytest.mark.slow
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


@pytest.mark.slow
def test_what_an_export_says(run: Run, root: Path, tmp_path: Path) -> None:
    done = run("gallery", "export", "shoes", "-o", tmp_path / "a.tar")
    assert done.stdout == "Exported gallery shoes: 60 items, version 1\n"
    done = run("gallery", "export", "shoes", "--parquet", "-o", tmp_path / "tables")
    assert done.stdout == f"Exported gallery shoes: 60 items into {tmp_path / 'tables'}\n"
    assert sorted(path.name for path in (tmp_path / "tables").iterdir()) == [
        "embeddings.parquet",
        "images",
        "items.parquet",
    ]


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


@pytest.mark.slow
def test_a_reader_that_goes_away_is_one_line(run: Run, root: Path) -> None:
    export = subprocess.Popen(
        in_process("export", "shoes", "-o", "-"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert export.stdout is not None
    export.stdout.close()
    _, said = export.communicate(timeout=60)
    assert export.returncode != 0
    assert b"Traceback" not in said
    assert [path.name for path in root.glob(".*")] == [".reserve"]


@pytest.mark.slow
def test_an_import_that_is_killed_leaves_no_gallery(archive: Path, root: Path, run: Run) -> None:
    process = subprocess.Popen([sys.executable, "-c", SLOW_IMPORT, str(root), str(archive)])
    try:
        wait_until(lambda: len(list(root.glob(".*.partial/boots/**/*.npy"))) > 0)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
    assert [one["name"] for one in json.loads(run("gallery", "list", "--json").stdout)] == ["shoes"]
    (left,) = root.glob(".*.partial")
    assert "Gallery boots: 60 " in run("gallery", "import", "boots", archive).stdout
    assert not left.exists()


@pytest.mark.slow
def test_nothing_is_written_over(run: Run, fail: Fail, archive: Path) -> None:
    content = archive.read_bytes()
    assert fail("gallery", "export", "shoes", "-o", archive) == (
        f"vicinal: '{archive}' exists: choose another file, or remove it"
    )
    assert archive.read_bytes() == content
    assert (
        fail("gallery", "import", "shoes", archive) == "vicinal: gallery 'shoes' exists: choose another name"
    )


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.5, 0.95])
def test_a_cut_file_is_one_line(fail: Fail, archive: Path, share: float, root: Path) -> None:
    archive.write_bytes(archive.read_bytes()[: int(archive.stat().st_size * share)])
    line = fail("gallery", "import", "boots", archive)
    assert "is no exported gallery" in line or "was cut" in line
    assert not (root / "boots").exists()


@pytest.mark.slow
def test_what_is_no_archive_says_what_takes_it(fail: Fail, run: Run, root: Path, tmp_path: Path) -> None:
    run("gallery", "export", "shoes", "--parquet", "-o", tmp_path / "tables")
    for source in (tmp_path / "tables", tmp_path / "tables" / "items.parquet"):
        assert fail("gallery", "import", "boots", source) == (
            f"vicinal: '{source}' is no archive: `vicinal index` takes folders and Parquet"
        )
    assert "cannot be read: No such file" in fail("gallery", "import", "boots", tmp_path / "none.tar")
    (tmp_path / "words.txt").write_text("words", encoding="utf-8")
    assert "is no exported gallery" in fail("gallery", "import", "boots", tmp_path / "words.txt")


@pytest.mark.slow
def test_tables_can_be_indexed_again(run: Run, root: Path, tmp_path: Path) -> None:
    run("gallery", "export", "shoes", "--parquet", "-o", tmp_path / "tables")
    run("index", tmp_path / "tables" / "items.parquet", "-g", "again", "--workers", 1)
    first, second = shown(run, "shoes"), shown(run, "again")
    assert (first["n_items"], first["n_labels"]) == (second["n_items"], second["n_labels"])


@pytest.mark.slow
def test_a_gallery_keeps_its_threshold_under_another_name(run: Run, fail: Fail, root: Path) -> None:
    before = run("gallery", "show", "shoes").stdout.splitlines()[1:]
    assert run("gallery", "copy", "shoes", "try").stdout.splitlines()[1:] == before
    assert run("gallery", "rename", "shoes", "sandals").stdout == "Gallery shoes is now sandals\n"
    assert run("gallery", "show", "sandals").stdout.splitlines()[1:] == before
    assert "there is no gallery 'shoes'" in fail("gallery", "show", "shoes")
    assert "gallery 'try' exists" in fail("gallery", "rename", "sandals", "try")


@pytest.mark.slow
def test_clients_keep_a_name(run: Run, fail: Fail, root: Path) -> None:
    run("gallery", "copy", "shoes", "boots")
    assert run("gallery", "alias", "shop", "shoes").stdout == "shop stands for gallery shoes\n"
    assert run("gallery", "alias", "shop", "boots").stdout == "shop stands for gallery boots\n"
    assert run("gallery", "show", "shop").stdout.startswith("Gallery boots, also known as shop: 60 ")
    found = {one["name"]: one["aliases"] for one in json.loads(run("gallery", "list", "--json").stdout)}
    assert found == {"boots": ["shop"], "shoes": []}
    assert "shop" in run("gallery", "list").stdout
    assert "clients know gallery 'boots' as 'shop'" in fail("gallery", "delete", "shop", "--yes")
    assert run("gallery", "alias", "shop", "--remove").stdout == "shop is no alias any more\n"
    run("gallery", "delete", "boots", "--yes")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("shop",), ("shop", "shoes", "--remove")])
def test_an_alias_needs_a_gallery_or_goes(fail: Fail, root: Path, arguments: tuple[str, ...]) -> None:
    expected = "vicinal: name the gallery that the alias stands for, or give --remove"
    assert fail("gallery", "alias", *arguments) == expected


@pytest.mark.slow
def test_commands_take_an_alias(run: Run, root: Path, tmp_path: Path, catalog: Path) -> None:
    run("gallery", "alias", "shop", "shoes")
    photo = next(catalog.rglob("*.png"))
    by_name, by_alias = (
        json.loads(run("search", photo, "-g", name, "--json").stdout) for name in ("shoes", "shop")
    )
    assert [one["id"] for one in by_alias["matches"]] == [one["id"] for one in by_name["matches"]] != []
    (tmp_path / "new.png").write_bytes(photo.read_bytes())
    run("gallery", "add", "shop", tmp_path / "new.png")
    assert shown(run, "shoes")["n_items"] == shown(run, "shop")["n_items"] == 61
    run("index", catalog, "-g", "shop", "--workers", 1)
    assert [one["name"] for one in json.loads(run("gallery", "list", "--json").stdout)] == ["shoes"]
    assert shown(run, "shoes")["n_items"] == 121
