"""Checks what would be published: both ways of building, and an installation where users have theirs.

Builds the source distribution and a wheel from it and another from the checkout, which must hold the same;
installs the wheel in a clean environment, outside of the checkout, in a folder that has a package `models` of
its own; runs the demo there, and a type checker over a user's program. The client's wheel is built and tried
in the same way, alone: with its own dependencies and nothing else.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "tests/packaging/user_program.py"
# One of each kind that is no Python file.
NEEDED = (
    "vicinal/py.typed",
    "vicinal/models/bundled/vicinal-photos/backbone.onnx",
    "vicinal/models/bundled/vicinal-photos/bundle.json",
    "vicinal/models/bundled/vicinal-photos/probe.npz",
)
MISTAKE = "\nnumber: int = create_app().title\n"
FOLDERS = ("calibration", "indexer", "models", "refine", "service", "training")
CLIENT_PROGRAM = ROOT / "tests/packaging/client_program.py"
CLIENT_MISTAKE = (
    '\nnumber: int = Client().search("shop", "a.jpg")\nClient().search("shop", "a.jpg", limits=3)\n'
)


def main() -> None:
    """Check, and say what was found; the exit status is 1 when anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", default=sys.executable, help="Has `build` and `mypy`.")
    python = parser.parse_args().tools
    with tempfile.TemporaryDirectory(prefix="package-") as temporary:
        folder = Path(temporary)
        wheel = check_wheels(python, folder)
        clean = check_installation(wheel, folder)
        check_types(python, clean, folder)
        check_client(python, folder)
    print("1 passed, 0 failed: the package")


def check_wheels(python: str, folder: Path) -> Path:
    """Build both wheels and compare them."""
    run(python, "-m", "build", "--outdir", folder / "sdist", ROOT)
    run(python, "-m", "build", "--wheel", "--outdir", folder / "checkout", ROOT)
    (wheel,) = (folder / "checkout").glob("*.whl")
    (other,) = (folder / "sdist").glob("*.whl")
    ours, theirs = contents(wheel), contents(other)
    different = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
    expect(not different, f"the wheel from the sdist differs in {different}")
    tops = {name.partition("/")[0] for name in ours if ".dist-info/" not in name}
    expect(tops == {"vicinal"}, f"the wheel has the top-level names {sorted(tops)}")
    sources = {f"vicinal/{path}" for path in tracked_files(*FOLDERS)}
    missing = sorted((sources | set(NEEDED)) - ours.keys())
    expect(not missing, f"the wheel lacks {missing}")
    print(f"{wheel.name}: {len(ours)} files, {wheel.stat().st_size / 1e6:.1f} MB, the same from the sdist")
    return wheel


def check_installation(wheel: Path, folder: Path) -> Path:
    """Install the wheel and run the demo beside a package named as one of our folders."""
    clean, outside = folder / "clean/bin/python", folder / "outside"
    run(sys.executable, "-m", "venv", folder / "clean")
    run(clean, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", f"{wheel}[cpu]")
    for name in ("models", "service"):
        (outside / name).mkdir(parents=True)
        (outside / name / "__init__.py").write_text("OURS = False\n")
    code = "import models, vicinal.models, vicinal.service; assert not models.OURS; print(vicinal.__file__)"
    place = run(clean, "-c", code, cwd=outside)
    expect(str(folder / "clean") in place, f"vicinal was imported from {place}")
    print(run(clean, "-m", "vicinal", "demo", "--check", cwd=outside))
    return clean


def check_types(python: str, clean: Path, folder: Path) -> None:
    """A type checker accepts a right program over the installed package, and finds a mistake in it."""
    outside = folder / "outside"
    right = PROGRAM.read_text(encoding="utf-8")
    (outside / "right.py").write_text(right, encoding="utf-8")
    (outside / "wrong.py").write_text(right + MISTAKE, encoding="utf-8")
    mypy = (python, "-m", "mypy", "--strict", "--config-file=", "--python-executable", clean)
    run(*mypy, "right.py", cwd=outside)
    found = run(*mypy, "wrong.py", cwd=outside, status=1)
    expect("[assignment]" in found and "Found 1 error" in found, f"mypy says of a mistake: {found}")
    print("mypy accepts a typed program, and finds the mistake in another")


def check_client(python: str, folder: Path) -> None:
    """Build the client's wheel, install it where nothing else is; run and type-check a program of a user."""
    clean, outside = folder / "client/bin/python", folder / "client-outside"
    for place in ("client-sdist", "client-checkout"):
        only = () if place == "client-sdist" else ("--wheel",)
        run(python, "-m", "build", *only, "--outdir", folder / place, ROOT / "client")
    (wheel,) = (folder / "client-checkout").glob("*.whl")
    (other,) = (folder / "client-sdist").glob("*.whl")
    expect(contents(wheel) == contents(other), "the client's wheel from the sdist differs")
    files = {name.removeprefix("src/") for name in tracked_files("src", root=ROOT / "client")}
    files |= {f"vicinal_client/{name}.py" for name in ("models", "options")}
    here = {name for name in contents(wheel) if ".dist-info/" not in name}
    expect(here == files, f"the client's wheel differs from its sources in {sorted(here ^ files)}")
    run(sys.executable, "-m", "venv", folder / "client")
    run(clean, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel)
    outside.mkdir()
    program = CLIENT_PROGRAM.read_text(encoding="utf-8")
    (outside / "right.py").write_text(program, encoding="utf-8")
    (outside / "wrong.py").write_text(program + CLIENT_MISTAKE, encoding="utf-8")
    print(run(clean, "right.py", cwd=outside))
    mypy = (python, "-m", "mypy", "--strict", "--config-file=", "--python-executable", clean)
    run(*mypy, "right.py", cwd=outside)
    found = run(*mypy, "wrong.py", cwd=outside, status=1)
    expect(found.count("error:") == 2 and "Found 2 errors" in found, f"mypy says of two mistakes: {found}")
    print(
        f"{wheel.name}: {len(here)} files, installed alone; mypy accepts a typed program, and finds mistakes"
    )


def contents(wheel: Path) -> dict[str, bytes]:
    """The bytes of every file by its name."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def tracked_files(*folders: str, root: Path = ROOT) -> list[str]:
    """What git has in some folders, by the path from the one that they are in."""
    return run("git", "ls-files", *folders, cwd=root).split("\n")


def run(*command: object, cwd: Path | None = None, status: int = 0) -> str:
    """Run a command without the checkout on its path, and give what it prints."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(one) for one in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    said = f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    expect(done.returncode == status, f"exit status {done.returncode} of {said}")
    return done.stdout.strip()


def expect(is_so: bool, otherwise: str) -> None:
    """End with a sentence unless something is so."""
    if not is_so:
        print(otherwise)
        raise SystemExit("0 passed, 1 failed: the package")


if __name__ == "__main__":
    main()
