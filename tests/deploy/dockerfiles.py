"""What a Dockerfile and `.dockerignore` say."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch
from io import BytesIO
from pathlib import Path

from dockerfile_parse import DockerfileParser


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
