"""Kills writers of a gallery, hundreds of times, and counts what is lost: nothing may be.

They are killed at random moments and at random steps of theirs on the disk; see `tests/crash/`, whose test
is the short form. Servers are killed by `benchmarks/attacks/replica_run.py`. The first loss ends the run, and
its folder stays.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from benchmarks.common.record import save_result
from tests.conftest import write_tiny_bundle
from tests.crash.driver import CrashDriver, LostError


def main() -> None:
    """Kill until something is lost or all kills are done; the exit status is 1 after a loss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=250)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-result", action="store_true", help="print only")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="crash-"))
    started = time.monotonic()
    driver = CrashDriver(
        folder,
        write_tiny_bundle(folder / "bundle"),
        seed=arguments.seed,
        say=lambda line: print(f"{time.monotonic() - started:7.1f} s {line}", flush=True),
    )
    lost = None
    try:
        driver.run(arguments.kills)
    except LostError as error:
        lost = str(error)
        print(f"LOST: {lost}; the gallery and the journal are in {folder}")
    finally:
        driver.close()
    if lost is None:
        shutil.rmtree(folder)
    result = {
        "seed": arguments.seed,
        "seconds": round(time.monotonic() - started, 1),
        "lost": lost,
        **driver.report.as_json(),
        "kills": [vars(one) for one in driver.report.kills],
    }
    if not arguments.no_result:
        print(save_result("crash_run", result))
    raise SystemExit(1 if lost else 0)


if __name__ == "__main__":
    main()
