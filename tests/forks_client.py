"""The interpreter's stand-in of `tests.forks`: hands on what it was started with, and ends as that ends."""

import json
import os
import signal
import socket
import sys
import threading
from contextlib import suppress

# A signal waits until it is known whom it is for, and for the thread that hands it on: one that came just
# before a read would be noticed after it.
signals = (signal.SIGTERM, signal.SIGINT)
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    message = json.dumps([sys.argv[2:], dict(os.environ), os.getcwd()]).encode() + b"\n"  # noqa: PTH109
    sent = socket.send_fds(connection, [message], [0, 1, 2])
    connection.sendall(message[sent:])
    with connection.makefile("r") as answer:
        process = int(answer.readline())

        def hand_on() -> None:
            while True:
                number = signal.sigwait(signals)
                with suppress(ProcessLookupError):
                    os.kill(process, number)

        threading.Thread(target=hand_on, daemon=True).start()
        status = int(answer.readline() or 70)
# That of a process which a signal ended, as a shell gives it.
sys.exit(status if status >= 0 else 128 - status)
