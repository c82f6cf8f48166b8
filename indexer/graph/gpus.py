"""GPUs of this machine, as the driver of NVIDIA tells of them."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, replace

from vicinal.indexer.errors import IndexDeviceError

_ASKED = "--query-gpu=index,uuid,name,memory.total,memory.free,driver_version"
_SECONDS = 10.0


@dataclass(frozen=True)
class Gpu:
    """One GPU.

    Attributes:
        number: As CUDA counts it with `CUDA_DEVICE_ORDER=PCI_BUS_ID`.
        uuid: Names it on every machine.
        name: The model.
        total: Bytes of its memory.
        free: Bytes that nobody holds.
        driver: Version of the driver.
    """

    number: int
    uuid: str
    name: str
    total: int
    free: int
    driver: str


def gpus() -> list[Gpu]:
    """Those that CUDA may use (`CUDA_VISIBLE_DEVICES`); none where no driver is installed."""
    try:
        told = subprocess.run(
            ["nvidia-smi", _ASKED, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            check=True,
            timeout=_SECONDS,
        ).stdout
        return _visible([_gpu(line) for line in told.splitlines()])
    except FileNotFoundError:
        return []
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        reason = " ".join(str(error).split())
        raise IndexDeviceError(f"the driver of NVIDIA does not answer: {reason}") from error


def _gpu(line: str) -> Gpu:
    number, uuid, name, total, free, driver = (one.strip() for one in line.split(","))
    return Gpu(int(number), uuid, name, int(total) * 2**20, int(free) * 2**20, driver)


def _visible(there: list[Gpu]) -> list[Gpu]:
    """Those that the environment does not hide, counted anew."""
    asked = os.environ.get("CUDA_VISIBLE_DEVICES")
    if asked is None:
        return there
    seen: list[Gpu] = []
    for one in map(str.strip, asked.split(",")):
        known = [gpu for gpu in there if one and (one == str(gpu.number) or gpu.uuid.startswith(one))]
        # CUDA hides all that follow one that it does not know.
        if not known:
            break
        seen.append(replace(known[0], number=len(seen)))
    return seen
