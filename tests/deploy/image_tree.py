"""A container image without an engine: the steps of a Dockerfile, done in a folder.

`COPY` takes what `.dockerignore` leaves of the repository, and `RUN` runs its commands with the folders of
the image mapped into a folder of the test. The base image is a fresh virtual environment, as `python` and
`pip` are what is asked of it. Users and owners are not made: those commands are in `SKIPPED`, and are named
in `ImageTree.skipped`. A step that is not known here is an error.

What was built runs as the image's user, who may write to its volumes and to `tmp` alone: by the user's number
where the tests run as root, and otherwise by the modes of the files.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from dockerfile_parse import DockerfileParser

from tests.networks import outer_network

__all__ = ["SKIPPED", "ImageTree", "base_python", "ignored", "steps_of"]

SKIPPED = ("apt-get", "groupadd", "useradd", "chown")
# Top folders that are the image's own; all others of the machine are used as they are.
_OWN = ("src", "opt", "data", "keys", "shared")
_OWN_PATH = re.compile(rf"(?<![\w./-])/(?=(?:{'|'.join(_OWN)})(?![\w.-]))")
_NO_STEPS = ("ARG", "LABEL", "EXPOSE")
_PATH = "/usr/local/bin:/usr/bin:/bin"


def steps_of(dockerfile: Path) -> list[tuple[str, str]]:
    """Instructions of a Dockerfile with what follows each."""
    # The parser would write to a path.
    found = DockerfileParser(fileobj=BytesIO(dockerfile.read_bytes())).structure
    return [(one["instruction"], one["value"]) for one in found if one["instruction"] != "COMMENT"]


def ignored(path: str, patterns: Sequence[str]) -> bool:
    """Whether `.dockerignore` keeps a file out: the last pattern that names it, or a folder of it, decides.

    Args:
        path: From the root of the context.
        patterns: Its lines: a name, a name after `!`, or a name after `**/`, with `*` for anything.
    """
    parts = path.split("/")
    found = False
    for pattern in patterns:
        name = pattern.removeprefix("!")
        anywhere = name.startswith("**/")
        places = parts if anywhere else ["/".join(parts[: n + 1]) for n in range(len(parts))]
        if any(fnmatch(place, name.removeprefix("**/")) for place in places):
            found = not pattern.startswith("!")
    return found


def base_python(as_user: Mapping[str, Any]) -> str:
    """An interpreter that the image's user can start and that makes virtual environments.

    Args:
        as_user: Arguments of `subprocess.run` that make a process the user's.
    """
    here = (sys._base_executable, *(f"{folder}/python3" for folder in _PATH.split(":")))
    code = "import ensurepip, sys; sys.exit(sys.version_info < (3, 11))"
    for python in here:
        try:
            done = subprocess.run([python, "-c", code], capture_output=True, check=False, **as_user)
        except OSError:
            continue
        if done.returncode == 0:
            return str(python)
    pytest.skip(f"no Python among {', '.join(here)} can be started by another user and has ensurepip")


class ImageTree:
    """The last stage of a Dockerfile in a folder.

    Args:
        dockerfile: The Dockerfile.
        context: What it is built from: the root of the repository.
        folder: Where it is built; others must be able to enter it.

    Attributes:
        environment: Variables of `ENV`, by name, mapped.
        volumes: Folders of `VOLUME`, mapped.
        skipped: Commands that were not run.
    """

    def __init__(self, dockerfile: Path, context: Path, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.tmp = folder / "tmp"
        self.skipped: list[str] = []
        self._context = context
        self._steps = steps_of(dockerfile)
        self._patterns = (context / ".dockerignore").read_text(encoding="utf-8").split("\n")
        self._patterns = [line for line in self._patterns if line and not line.startswith("#")]
        self._stage = ""
        self._begin("")

    def build(self) -> None:
        """Do the steps, and shut the tree for all but its volumes.

        Raises:
            AssertionError: A step fails or is not known.
        """
        self._make_base()
        self.do_steps()
        self.tmp.mkdir()
        if self.as_user:
            for path in (*self.volumes, self.map_path("/keys"), self.tmp):
                os.chown(path, self.as_user["user"], self.as_user["group"])
        else:
            self._shut()

    def do_steps(self) -> None:
        """Do the steps, without a base image and without shutting the tree."""
        for instruction, value in self._steps:
            if instruction not in _NO_STEPS:
                self._do[instruction](value)

    @property
    def as_user(self) -> dict[str, Any]:
        """Arguments of `subprocess` for what runs in the container; none where the tests are no root's."""
        if os.getuid() != 0:
            return {}
        user, _, group = self._single["USER"].partition(":")
        return {"user": int(user), "group": int(group), "extra_groups": []}

    def start(self, command: Sequence[str], **variables: str) -> subprocess.Popen[str]:
        """Start a command as a container would, with the image's environment and nothing else.

        Args:
            command: Program and arguments.
            variables: Added to the environment.
        """
        return subprocess.Popen(
            [self.map_text(word) for word in command],
            # A bare name is looked for in the image.
            executable=shutil.which(command[0], path=self.environment["PATH"]),
            cwd=self.cwd,
            env={"HOME": "/nonexistent", "TMPDIR": str(self.tmp), **self.environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **self.as_user,
        )

    def run(self, command: Sequence[str], **variables: str) -> tuple[int, str]:
        """Run a command in the same way to its end: exit status, and all that it printed."""
        with self.start(command, **variables) as process:
            printed, _ = process.communicate(timeout=300)
        return process.returncode, printed

    def words(self, instruction: str) -> list[str]:
        """ENTRYPOINT, CMD or the command of HEALTHCHECK; these must be in the form of a list."""
        words: list[str] = json.loads(self._single[instruction][self._single[instruction].index("[") :])
        return words

    def map_text(self, text: str) -> str:
        """A text with the image's paths as they are on this machine."""
        return _OWN_PATH.sub(f"{self.root}/", text)

    def map_path(self, path: str) -> Path:
        """One path of the image, from the working folder unless it is absolute."""
        return self.cwd / self.map_text(path)

    def state(self) -> dict[str, tuple[int, int]]:
        """Size and time of every file and folder outside of the volumes and `tmp`, by path."""
        own = [path for path in self.root.rglob("*") if not any(map(path.is_relative_to, self.volumes))]
        return {
            path.relative_to(self.root).as_posix(): (path.lstat().st_size, path.lstat().st_mtime_ns)
            for path in own
        }

    @property
    def _do(self) -> dict[str, Callable[[str], None]]:
        keep = {name: self._keep(name) for name in ("USER", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD")}
        return {
            "FROM": self._from,
            "ENV": self._env,
            "WORKDIR": self._workdir,
            "COPY": self._copy,
            "RUN": self._run,
            "VOLUME": self._volume,
            **keep,
        }

    def _begin(self, stage: str) -> None:
        if self._stage:
            # Its paths are those of the next stage, so that what was installed there runs here.
            self.root.rename(self.folder / self._stage)
        self._stage = stage
        self.root.mkdir(exist_ok=True)
        self.cwd = self.root
        self.volumes: list[Path] = []
        self.environment = {"PATH": f"{self.folder}/base/bin:{_PATH}"}
        self._single: dict[str, str] = {"USER": "0:0"}

    def _make_base(self) -> None:
        user = next(value for name, value in reversed(self._steps) if name == "USER")
        self._single["USER"] = user
        subprocess.run([base_python(self.as_user), "-m", "venv", self.folder / "base"], check=True)

    def _from(self, value: str) -> None:
        _, _, stage = value.partition(" AS ")
        self._begin(stage)

    def _env(self, value: str) -> None:
        for word in shlex.split(value):
            name, _, text = word.partition("=")
            # What is the base image's is that of the virtual environment.
            text = text.replace("/usr/local/bin", f"{self.folder}/base/bin") if name == "PATH" else text
            self.environment[name] = self.map_text(text)

    def _workdir(self, value: str) -> None:
        self.cwd = self.map_path(value)
        self.cwd.mkdir(parents=True, exist_ok=True)

    def _copy(self, value: str) -> None:
        *sources, target = shlex.split(value)
        if sources[0].startswith("--from="):
            stage = self.folder / sources.pop(0).removeprefix("--from=")
            places = [stage / one.removeprefix("/") for one in sources]
        else:
            places = [self._context / one for one in sources]
            shut_out = [one for one in sources if ignored(one, self._patterns)]
            assert not shut_out, f".dockerignore keeps out {shut_out}"
        for place in places:
            # A folder's content is copied, a file goes into a folder or under the name.
            to = self.map_path(target) / (place.name if target.endswith("/") and place.is_file() else "")
            if place.is_dir():
                shutil.copytree(place, to, symlinks=True, dirs_exist_ok=True, ignore=self._left_out)
            else:
                shutil.copy2(place, to)

    def _left_out(self, folder: str, names: list[str]) -> list[str]:
        if not Path(folder).is_relative_to(self._context):
            return []
        inside = Path(folder).relative_to(self._context)
        return [name for name in names if ignored((inside / name).as_posix(), self._patterns)]

    def _run(self, value: str) -> None:
        for command in value.split(" && "):
            if command.split()[0] in SKIPPED:
                self.skipped.append(command.strip())
                continue
            with outer_network():
                done = subprocess.run(
                    ["sh", "-ec", self.map_text(command)],
                    cwd=self.cwd,
                    env={**_outer_environment(), **self.environment},
                    capture_output=True,
                    text=True,
                    check=False,
                )
            assert done.returncode == 0, f"RUN {command}\n{done.stdout}{done.stderr}"

    def _volume(self, value: str) -> None:
        self.volumes += [self.map_path(one) for one in shlex.split(value)]

    def _keep(self, name: str) -> Callable[[str], None]:
        return lambda value: self._single.update({name: value})

    def _shut(self) -> None:
        for path in (self.root, *self.root.rglob("*")):
            if not path.is_symlink() and not any(map(path.is_relative_to, self.volumes)):
                path.chmod(path.stat().st_mode & ~0o222)


def _outer_environment() -> dict[str, str]:
    """What says where packages come from on this machine, without what says how Python runs."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VICINAL_"))}
