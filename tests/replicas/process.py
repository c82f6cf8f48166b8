"""`vicinal` on a host of its own, to be run by `tests.forks`: it moves to its host's network first.

    process.py NAMESPACE|- FILE WORD…

FILE gets the number of the process. SIGUSR1 arms a fuse: so many steps on the disk, in the home and in the
database later as FILE.fuse says, the process is killed, which moments drawn by a clock hardly ever hit.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from tests.crash.children import Fuse
from tests.replicas.hosts import enter_namespace
from vicinal.indexer.state import Database
from vicinal.indexer.storage.home.stores import BucketStore
from vicinal.service.cli.main import main

_NEVER = 10**9


def _run(namespace: str, file: Path, words: list[str]) -> None:
    if namespace != "-":
        enter_namespace(namespace)
    fuse = Fuse(_NEVER)
    fuse.install((BucketStore, ("fetch", "put")), (Database, ("changing",)), (os, ("link",)))

    def arm(*_: object) -> None:
        fuse.left = int(file.with_suffix(".fuse").read_text())

    signal.signal(signal.SIGUSR1, arm)
    # A group of its own, so that what it starts ends with it.
    os.setpgrp()
    file.write_text(str(os.getpid()))
    sys.argv = ["vicinal", *words]
    main()


if __name__ == "__main__":
    _run(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
