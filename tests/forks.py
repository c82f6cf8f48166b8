"""Commands without the wait for what they import: a process that has imported Vicinal forks for each.

    subprocess.run([*forked_python(), "-m", "vicinal", "calibration", "list"])
    subprocess.run([*forked_python(), "-"], input="import vicinal")
    subprocess.run([*forked_python(), "examples/own_photos.py", "photos"])

Each is a process of its own with the folder, the variables and the streams that it was started with. How long
Vicinal takes to load, and that a command loads no more than it needs, other tests say.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import json
import os
import pkgutil
import runpy
import select
import socket
import subprocess
import sys
import tempfile
from contextlib import nullcontext, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from vicinal import service

__all__ = ["forked_python"]

_CLIENT = Path(__file__).with_name("forks_client.py")
_CHUNK = 1 << 16


@cache
def forked_python(*absent: str) -> tuple[str, ...]:
    """What stands in for the interpreter in a command; the process that forks ends with this one.

    Args:
        absent: Packages that cannot be imported there.
    """
    folder = tempfile.TemporaryDirectory(prefix="forks-")
    path = f"{folder.name}/socket"
    ours, theirs = os.pipe()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        # It listens already: who comes before everything is imported waits.
        command = [sys.executable, "-m", "tests.forks", str(listener.fileno()), str(ours), *absent]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        process = subprocess.Popen(command, pass_fds=(listener.fileno(), ours), env=environment)
    os.close(ours)

    def stop() -> None:
        os.close(theirs)
        process.wait()
        folder.cleanup()

    atexit.register(stop)
    return sys.executable, "-ISE", str(_CLIENT), path


def _import_all(absent: list[str]) -> None:
    sys.modules.update(dict.fromkeys(absent))
    for module in pkgutil.walk_packages(service.__path__, f"{service.__name__}."):
        with suppress(ImportError) if absent else nullcontext():
            import_module(module.name)
    # What is here already is not looked through, nor copied, by those that are forked.
    gc.collect()
    gc.freeze()


def _listen(listener: socket.socket, end: int) -> None:
    """Fork for each that connects, until the other side of a pipe is closed."""
    while end not in select.select([listener, end], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            os.close(end)
            _attend(connection)
        connection.close()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass


def _attend(connection: socket.socket) -> NoReturn:
    """Run what is asked for in a process of its own, and say how that ends."""
    message, streams, *_ = socket.recv_fds(connection, _CHUNK, 3)
    while not message.endswith(b"\n"):
        message += connection.recv(_CHUNK)
    process = os.fork()
    if process == 0:
        connection.close()
        _run(*json.loads(message), streams)
    for stream in streams:
        os.close(stream)
    connection.sendall(b"%d\n" % process)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    connection.sendall(b"%d\n" % status)
    os._exit(0)


def _run(words: list[str], variables: dict[str, str], folder: str, streams: list[int]) -> NoReturn:
    for stream, place in zip(streams, range(3), strict=True):
        os.dup2(stream, place)
        os.close(stream)
    # Those that the first process was started with are of another kind than these may be.
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    # A crash that says nothing itself is told by where its threads were.
    faulthandler.enable()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    sys.path.insert(0, "")
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] != "-":
        sys.path[0] = str(Path(words[0]).parent)
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")
    else:
        sys.argv = words
        exec(compile(sys.stdin.read(), "<stdin>", "exec"), {"__name__": "__main__"})
    sys.exit()


if __name__ == "__main__":
    _import_all(sys.argv[3:])
    _listen(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
