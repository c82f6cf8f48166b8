"""Files that are vast and hold nothing: refused in one line, at once, without being read as a whole."""

from __future__ import annotations

import os
import re
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.types import Fail, Run

pytestmark = pytest.mark.slow

_VAST = 10 * 2**30


@pytest.fixture
def little_memory() -> Iterator[None]:
    """A process that gets 2 GiB more and not one byte beyond."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2 * 2**30, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def vast(path: Path, head: bytes = b"") -> Path:
    """A file of 10 GiB that takes no room on the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head)
    os.truncate(path, _VAST)
    return path


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    ("name", "head", "sentence"),
    [
        ("a.jpg", b"\xff\xd8\xff", "10,737,418,240 bytes, at most 33,554,432 are accepted"),
        ("folder/a.jpg", b"", "10,737,418,240 bytes, at most"),
        ("a.csv", b"", "'.*a.csv' cannot be read: it has 10,737,418,240 bytes"),
        ("a.csv", b"path,label\na.jpg,shoe\n", "'.*a.csv' cannot be read: it has 10,737,418,240 bytes"),
        ("a.parquet", b"PAR1", "'a.parquet' cannot be read"),
        ("folder/a.parquet", b"PAR1", "folder/a.parquet' cannot be read"),
        ("a.tar", b"", "holds no images"),
        ("a.tar.gz", b"\x1f\x8b", "is compressed"),
        ("a.npy", b"", "'a.npy' cannot be read: it does not begin as a .npy file of numpy does"),
        ("a.npy", b"\x93NUMPY\x01\x00\xff\xff", "'a.npy' cannot be read"),
        ("a.npz", b"", "'a.npz' cannot be read: it is no .npz file"),
        ("a.npz", b"PK\x03\x04", "'a.npz' cannot be read: it is no .npz file"),
        ("a.words", b"", "is neither a folder nor an image"),
    ],
)
def test_a_vast_file_of_nothing_is_one_line_at_once(
    run: Run, fail: Fail, tmp_path: Path, name: str, head: bytes, sentence: str
) -> None:
    vast(tmp_path / name, head)
    if name.endswith(".npy"):
        (tmp_path / "a.csv").write_text("id\n1\n")
    source = tmp_path / name
    began = time.process_time()
    line = fail("index", source.parent if "/" in name else source, "-g", "vast")
    assert time.process_time() - began < 20
    assert re.search(sentence, line)
    assert run("gallery", "list").stdout.startswith("No galleries")


def test_so_little_memory_would_not_hold_such_a_file(little_memory: None) -> None:
    with pytest.raises(MemoryError):
        bytearray(_VAST)
