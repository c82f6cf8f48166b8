"""ONNX Runtime sessions, which device they really run on, and how many processors there are to use."""

from __future__ import annotations

import hashlib
import logging
import math
import os
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from vicinal.calibration.arrays import FloatArray
from vicinal.models.errors import BundleError, MissingPackageError, install_command

if TYPE_CHECKING:
    import onnxruntime as ort

# One of `DEVICES`.
Device: TypeAlias = str
DEVICES = r"^(auto|cpu|cuda(:[0-9]{1,2})?)$"
_CUDA = "CUDAExecutionProvider"
# By default all convolutions are tried to find the fastest: 300 to 1,300 ms for every new shape. TF32 rounds
# products to 10 bits: they would differ from those of the processor by a thousandth.
_CUDA_OPTIONS = {"cudnn_conv_algo_search": "HEURISTIC", "use_tf32": "0"}
CPU = "CPUExecutionProvider"
# VNNI of 512 and of 256 bits, and AMX. Without one of them x86 has no such instruction.
_WHOLE_SUMS = ("avx512_vnni", "avx_vnni", "amx_int8")
_ROOT = Path("/")
logger = logging.getLogger(__name__)


def usable_processors(root: Path = _ROOT) -> int:
    """Threads that can run at once, by the processors that the process is bound to and by its quota."""
    # Python's own count is that of the machine.
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([bound, *map(math.ceil, _quotas(root))]))


def _quotas(root: Path) -> Iterator[float]:
    """Numbers of processors whose time the control groups of this process allow; none without a limit."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        # Microseconds of processor time, in a period of so many; no number where there is no limit.
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if controllers else ("cpu.max",)
        parts = path.strip("/").split("/")
        # Whatever a group above allows holds too. In a container the path may be one of the machine.
        for depth in range(len(parts) + 1):
            group = root.joinpath("sys/fs/cgroup", controllers, *parts[:depth])
            with suppress(OSError, ValueError, ZeroDivisionError):
                quota, period = map(int, " ".join((group / name).read_text() for name in names).split())
                if quota > 0:
                    yield quota / period


@cache
def sums_whole(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Tell if the processor says that it adds up products of 8 bits without cutting them off."""
    try:
        flags = cpuinfo.read_text()
    except OSError:
        return False
    return any(name in flags for name in _WHOLE_SUMS)


def open_session(
    path: Path, sha256: str, *, device: Device = "auto", threads: int = 0
) -> ort.InferenceSession:
    """Open an ONNX file; ONNX Runtime sees its bytes only after they were compared with their checksum."""
    ort = _import_onnxruntime()
    options = ort.SessionOptions()
    # Its own count is that of the machine, whatever a quota leaves of it.
    usable = usable_processors()
    options.intra_op_num_threads = threads or (usable if usable < (os.cpu_count() or 1) else 0)
    options.log_severity_level = 3
    # Of builds for CUDA 13, it warns at every session that CUDA is no plugin.
    ort.set_default_logger_severity(3)
    if not sums_whole():
        # Sums of products of 8 bits would be cut off at 16 bits, and an image get another embedding than
        # elsewhere. Where they are not, int8 would take twice the time for the same numbers.
        options.add_session_config_entry("session.x64quantprecision", "1")
    # Weights beside the file are looked for there, though it is given as bytes.
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(path.parent))
    wants_cuda = device.startswith("cuda") or (device == "auto" and offers_cuda())
    if wants_cuda and hasattr(ort, "preload_dlls"):
        # It does not look for CUDA among packages by itself. What it misses it prints, and says again below.
        with redirect_stdout(sys.stderr):
            ort.preload_dlls()
    on_cuda = (_CUDA, {"device_id": device.partition(":")[2] or "0", **_CUDA_OPTIONS})
    providers, encoded = [on_cuda, CPU] if wants_cuda else [CPU], _checked_bytes(path, sha256)
    try:
        session = ort.InferenceSession(encoded, options, providers=providers)
    except Exception as error:  # ONNX Runtime raises classes of its own that share no public base
        raise BundleError(f"ONNX Runtime cannot load '{path}': {error}") from error
    provider = session_provider(session)
    if wants_cuda and provider != _CUDA:
        if device.startswith("cuda"):
            raise BundleError(
                f"device '{device}' was asked for, but ONNX Runtime runs on {provider}: "
                f"{install_command('gpu')}, with a driver for its CUDA, or set device to 'auto'"
            )
        logger.warning("ONNX Runtime offers CUDA but fell back to %s", provider)
    return session


def offers_cuda() -> bool:
    """Tell if ONNX Runtime is built with CUDA; whether that works is seen when a session is opened."""
    return _CUDA in _import_onnxruntime().get_available_providers()


def session_provider(session: ort.InferenceSession) -> str:
    """Name of the execution provider that a session really uses, such as `CPUExecutionProvider`."""
    return str(session.get_providers()[0])


def session_device(session: ort.InferenceSession) -> str:
    """Device that a session really runs on: `cpu`, or a GPU such as `cuda:0`."""
    options = session.get_provider_options().get(session_provider(session), {})
    return f"cuda:{options['device_id']}" if "device_id" in options else "cpu"


def run_network(session: ort.InferenceSession, batch: FloatArray) -> FloatArray:
    """Run a batch through a network with one input.

    On a GPU input and output are bound, so that the batch is copied there once, before the network runs, and
    its first output alone comes back.
    """
    name = session.get_inputs()[0].name
    if session_provider(session) == CPU:
        return np.asarray(session.run(None, {name: batch})[0], dtype=np.float32)
    binding = session.io_binding()
    binding.bind_cpu_input(name, batch)
    binding.bind_output(session.get_outputs()[0].name)
    session.run_with_iobinding(binding)
    return np.asarray(binding.copy_outputs_to_cpu()[0], dtype=np.float32)


def _import_onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingPackageError("onnxruntime", "cpu", "embedding an image") from error
    return onnxruntime


def _checked_bytes(path: Path, sha256: str) -> bytes:
    try:
        encoded = path.read_bytes()
    except OSError as error:
        raise BundleError(f"ONNX Runtime cannot load '{path}': {error}") from error
    if hashlib.sha256(encoded).hexdigest() != sha256:
        raise BundleError(f"ONNX Runtime cannot load '{path}': it is damaged or was changed")
    return encoded
