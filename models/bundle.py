"""Model bundle: one directory that holds a backbone and all that belongs to it.

bundle.json      what it is, how images are prepared, what it was trained on, what it can do
backbone.onnx    images (B, 3, S, S) float32 -> embeddings (B, d) float32
MODEL_CARD.md    for people; not checked
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from models.errors import BundleError
from models.preprocessing import Preprocessing

__all__ = ["BACKBONE_FILE", "BundleManifest", "ModelBundle", "default_bundle_path", "sha256_of"]

MANIFEST_FILE = "bundle.json"
BACKBONE_FILE = "backbone.onnx"
_CHUNK = 2**20


def sha256_of(path: Path) -> str:
    """Hexadecimal SHA-256 of a file, read in chunks."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def default_bundle_path() -> Path:
    """Directory of the small bundle that ships with the package."""
    return Path(str(files("models"))) / "bundled" / "vicinal-small"


class BundleManifest(BaseModel):
    """Content of `bundle.json`.

    Attributes:
        name: Short name, used in file names and answers.
        version: Version of the weights, for people.
        backbone: Name of the architecture.
        dim: Length d of the embeddings.
        preprocessing: How an image becomes the backbone's input.
        training: Data sets, labels and recipe, for people.
        labels_sha256: SHA-256 of the sorted training labels, one a line; empty when unknown. A
            calibration on training classes flatters, and this is how it is noticed.
        metrics: Results by the name of the test they were measured on.
        licence: Licence of the weights.
        files: SHA-256 by file name; a bundle is opened only if all fit.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")
    version: str = "1"
    backbone: str
    dim: int = Field(ge=1)
    preprocessing: Preprocessing
    training: dict[str, Any] = Field(default_factory=dict)
    labels_sha256: str = ""
    metrics: dict[str, dict[str, float]] = Field(default_factory=dict)
    licence: str = "unknown"
    files: dict[str, str]

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that change when an embedding could change, and only then."""
        parts = {"dim": self.dim, "files": self.files, "preprocessing": self.preprocessing.model_dump()}
        canonical = json.dumps(parts, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]


class ModelBundle:
    """An opened bundle whose checksums fit.

    Args:
        path: Directory of the bundle.
        manifest: Its checked `bundle.json`.
    """

    def __init__(self, path: Path, manifest: BundleManifest) -> None:
        self.path = path
        self.manifest = manifest

    @property
    def name(self) -> str:
        """Short name of the bundle."""
        return self.manifest.name

    @property
    def dim(self) -> int:
        """Length of the embeddings."""
        return self.manifest.dim

    @property
    def fingerprint(self) -> str:
        """Identity of everything that an embedding depends on."""
        return self.manifest.fingerprint

    @property
    def backbone_path(self) -> Path:
        """Path of the ONNX file."""
        return self.path / BACKBONE_FILE

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Open a bundle and check every file in it.

        Raises:
            BundleError: The directory or a file is missing, `bundle.json` is not of this form, or a
                checksum does not fit.
        """
        path = Path(path)
        manifest = _read_manifest(path / MANIFEST_FILE)
        if BACKBONE_FILE not in manifest.files:
            raise BundleError(f"bundle '{path}' names no {BACKBONE_FILE}: export it again")
        for name, expected in manifest.files.items():
            _check_file(path, name, expected)
        return cls(path, manifest)

    @classmethod
    def write(cls, path: Path, fields: Mapping[str, Any]) -> Self:
        """Write `bundle.json` over the model files that already lie in `path`, and open the result.

        Args:
            path: Directory that holds `backbone.onnx`.
            fields: Fields of `BundleManifest` other than `files`.

        Raises:
            BundleError: The fields do not make a manifest, or there is no `backbone.onnx`.
        """
        checksums = {file.name: sha256_of(file) for file in sorted(path.glob("*.onnx"))}
        try:
            manifest = BundleManifest.model_validate({**fields, "files": checksums})
        except ValidationError as error:
            raise _invalid_manifest(path / MANIFEST_FILE, error) from error
        (path / MANIFEST_FILE).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
        return cls.open(path)


def _read_manifest(path: Path) -> BundleManifest:
    try:
        return BundleManifest.model_validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise BundleError(
            f"'{path.parent}' is no model bundle: it has no {path.name}; make one with `vicinal export`"
        ) from error
    except ValidationError as error:
        raise _invalid_manifest(path, error) from error


def _invalid_manifest(path: Path, error: ValidationError) -> BundleError:
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"]) or "file"
    return BundleError(f"'{path}' is not valid: {field}: {first['msg']}")


def _check_file(bundle: Path, name: str, expected: str) -> None:
    path = bundle / name
    if path.resolve().parent != bundle.resolve():
        raise BundleError(f"bundle file '{path}' lies outside of its bundle")
    if not path.is_file():
        raise BundleError(f"bundle file '{path}' is missing: copy the bundle again")
    actual = sha256_of(path)
    if actual != expected:
        raise BundleError(
            f"bundle file '{path}' is damaged or was changed: its SHA-256 is {actual[:12]}…, "
            f"bundle.json says {expected[:12]}…; copy the bundle again"
        )
