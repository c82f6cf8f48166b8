"""ONNX Runtime sessions, and which device they really run on."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from vicinal.models.errors import BundleError, MissingPackageError

if TYPE_CHECKING:
    import onnxruntime as ort

__all__ = ["CPU", "Device", "offers_cuda", "open_session", "session_provider"]

Device = Literal["auto", "cpu", "cuda"]
_CUDA = "CUDAExecutionProvider"
CPU = "CPUExecutionProvider"
logger = logging.getLogger(__name__)


def open_session(
    path: Path, sha256: str, *, device: Device = "auto", threads: int = 0
) -> ort.InferenceSession:
    """Open an ONNX file; ONNX Runtime sees its bytes only after they were compared with their checksum.

    Args:
        path: The ONNX file.
        sha256: Hexadecimal SHA-256 that it must have.
        device: `cuda` asks for the GPU, `auto` takes it where there is one.
        threads: Threads inside one operator; 0 leaves it to ONNX Runtime (one a physical core).

    Raises:
        MissingPackageError: ONNX Runtime is not installed.
        BundleError: The file is missing, damaged or cannot be loaded, or `cuda` was asked for and is not to
            be had.
    """
    ort = _import_onnxruntime()
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Without VNNI, processors cut sums of products of 8 bits off at 16 bits, and an image gets another
    # embedding than elsewhere. This computes them whole there, more slowly, and changes nothing on others.
    options.add_session_config_entry("session.x64quantprecision", "1")
    # Weights beside the file are looked for there, though it is given as bytes.
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(path.parent))
    wants_cuda = device == "cuda" or (device == "auto" and offers_cuda())
    try:
        session = ort.InferenceSession(
            _checked_bytes(path, sha256), options, providers=[_CUDA, CPU] if wants_cuda else [CPU]
        )
    except BundleError:
        raise
    except Exception as error:  # ONNX Runtime raises classes of its own that share no public base
        raise BundleError(f"ONNX Runtime cannot load '{path}': {error}") from error
    _report_fallback(session_provider(session), device, wants_cuda)
    return session


def offers_cuda() -> bool:
    """Whether ONNX Runtime is built with CUDA; whether that works is seen when a session is opened.

    Raises:
        MissingPackageError: ONNX Runtime is not installed.
    """
    return _CUDA in _import_onnxruntime().get_available_providers()


def session_provider(session: ort.InferenceSession) -> str:
    """Name of the execution provider that a session really uses, such as `CPUExecutionProvider`."""
    return str(session.get_providers()[0])


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


def _report_fallback(provider: str, device: Device, wants_cuda: bool) -> None:
    if not wants_cuda or provider == _CUDA:
        return
    if device == "cuda":
        raise BundleError(
            f"device 'cuda' was asked for, but ONNX Runtime runs on {provider}: "
            "install 'vicinal[gpu]' and its CUDA libraries, or set device to 'auto'"
        )
    logger.warning("ONNX Runtime offers CUDA but fell back to %s", provider)
