"""Model bundle: one directory that holds a backbone and all that belongs to it.

bundle.json      what it is, how images are prepared, what it was trained on, what it can do
backbone.onnx    images (B, 3, S, S) float32 -> embeddings (B, d) float32
refiner.onnx     optional; query (B, d), context (B, k, d), mask (B, k) -> steps (B, T, d), attention
                 (B, T, k)
refiner.npy      the weights of refiner.onnx, which reads them from there
MODEL_CARD.md    for people; not checked
NOTICE           optional; licence and source of the weights, where they ask to be named; not checked
probe.npz        optional; pictures, and what the network made of them where the bundle was made; not checked

A *space* is a bundle without a backbone: the name of embeddings that others make. It has no `backbone.onnx`,
and may have a refiner.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from PIL import Image, ImageOps
from pydantic import Field, ValidationError, model_validator

from vicinal.calibration.advice import advise
from vicinal.calibration.arrays import FloatArray
from vicinal.calibration.frozen import Frozen
from vicinal.models.configs.sealed_json import BrokenSealError, unsealed_if_sealed
from vicinal.models.errors import BundleError
from vicinal.models.refiner_manifest import REFINER_FILE, REFINER_WEIGHTS_FILE, RefinerManifest

Fit = Literal["crop", "squash", "pad", "pad_black"]


class Preprocessing(Frozen):
    """Way from an image to a tensor; stored in the bundle, so that it travels with the weights.

    Attributes:
        input_size: Height and width of the tensor in pixels.
        fit: `crop` scales the shorter side to `input_size / crop_fraction` and cuts the center out;
            `squash` scales both sides and ignores the aspect ratio; `pad` keeps the whole image on white,
            `pad_black` on black, the zero padding of many papers.
        crop_fraction: Share of the scaled image that the center crop keeps, in (0, 1].
        interpolation: Pillow's resampling filter, always with antialiasing.
        mean: Mean of each RGB channel, for values in [0, 1].
        std: Standard deviation of each RGB channel, for values in [0, 1].
    """

    input_size: int = Field(224, ge=16, le=2048)
    fit: Fit = "crop"
    crop_fraction: float = Field(1.0, gt=0.0, le=1.0)
    interpolation: Literal["bilinear", "bicubic", "lanczos"] = "bicubic"
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)

    @property
    def decode_side(self) -> int:
        """Pixels a side below which decoding at a reduced size would be seen in the tensor."""
        return 2 * round(self.input_size / self.crop_fraction)

    def resize(self, image: Image.Image) -> Image.Image:
        """Scale and fit an RGB image to `input_size` x `input_size`."""
        side = self.input_size
        resampling = Image.Resampling[self.interpolation.upper()]
        if self.fit == "squash":
            return image.resize((side, side), resampling)
        if self.fit != "crop":
            ground = "white" if self.fit == "pad" else "black"
            return ImageOps.pad(image, (side, side), resampling, color=ground)
        bleed = (1.0 - self.crop_fraction) / 2.0
        return ImageOps.fit(image, (side, side), resampling, bleed=bleed)

    def to_tensor(self, image: Image.Image) -> FloatArray:
        """Resize and standardize one RGB image to (3, input_size, input_size) float32."""
        scale = np.float32(1.0 / 255.0) / np.asarray(self.std, np.float32)
        offset = np.divide(self.mean, self.std, dtype=np.float32)
        # Rearranged as bytes and scaled where they lie: eight times as fast as the other way round.
        planes = np.ascontiguousarray(np.asarray(self.resize(image)).transpose(2, 0, 1))
        tensor = planes.astype(np.float32)
        tensor *= scale[:, None, None]
        tensor -= offset[:, None, None]
        return tensor


MANIFEST_FILE = "bundle.json"
BACKBONE_FILE = "backbone.onnx"
NOTICE_FILE = "NOTICE"
Precision = Literal["float32", "float16", "int8"]
Noun = Literal["photo", "item"]
_SPACE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._/-]{0,63})(?:@([A-Za-z0-9][A-Za-z0-9._-]{0,63}))?")


def sha256_of(path: Path) -> str:
    """Hexadecimal SHA-256 of a file, read in chunks."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def default_bundle_path() -> Path:
    """Directory of the bundle that ships with the package."""
    return Path(str(files("vicinal.models"))) / "bundled" / "vicinal-photos"


class BundleManifest(Frozen):
    """Content of `bundle.json`."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")
    version: str = "1"  # Of the weights, for people; of a space, a part of what it is
    space: str = ""  # Name of the embeddings that others make; empty where the bundle makes them
    backbone: str  # Name of the architecture; empty for a space
    dim: int = Field(ge=1)  # Length d of the embeddings
    preprocessing: Preprocessing | None = None  # None for a space
    training: dict[str, Any] = Field(default_factory=dict)  # Data sets, labels and recipe, for people
    # SHA-256 of the sorted training labels, one a line; empty when unknown. A calibration on training classes
    # flatters, and this is how it is noticed
    labels_sha256: str = ""
    # Results by the name of the test they were measured on
    metrics: dict[str, dict[str, float]] = Field(default_factory=dict)
    # float32; float16 weights, computed in float32; or int8. None where a ready file was imported, which is
    # as it is
    precision: Precision | None = "float32"
    # Speed and agreement by the form they were measured in, on the machine that made the bundle
    forms: dict[str, dict[str, float]] = Field(default_factory=dict)
    licence: str = "unknown"
    source: str = ""  # Where the weights come from, for people
    files: dict[str, str]  # SHA-256 by file name; a bundle is opened only if all fit
    refiner: RefinerManifest | None = None

    @model_validator(mode="after")
    def _makes_embeddings_or_names_them(self) -> Self:
        if bool(self.space) == (self.preprocessing is not None):
            raise ValueError("a bundle says how images are prepared, and a space does not")
        return self

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that change when an embedding could change, and only then.

        The checksum of the network's file is a part of it, and so is the form: the same network in float32
        and in int8 embeds otherwise, and their embeddings are never compared. Of a space it is its name,
        its version and the length of its embeddings.
        """
        parts: dict[str, Any] = {"dim": self.dim, "space": self.space, "version": self.version}
        if self.preprocessing is not None:
            parts = {"dim": self.dim, "files": self.files, "preprocessing": self.preprocessing.model_dump()}
        canonical = json.dumps(parts, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    @property
    def noun(self) -> Noun:
        """Noun for a query: of ready embeddings nobody knows whether they are of photos."""
        return "item" if self.space else "photo"

    @property
    def in_words(self) -> str:
        """Content of a gallery of it, for people."""
        if not self.space:
            return f"images embedded by bundle '{self.name}'"
        return f"ready {self.dim}-d embeddings of '{self.space}@{self.version}'"


class ModelBundle:
    """An opened bundle whose checksums fit; its refiner may lie in another folder, `refiner_path`."""

    def __init__(self, path: Path, manifest: BundleManifest, *, refiner_path: Path | None = None) -> None:
        self.path = path
        self.manifest = manifest
        self.refiner_path = refiner_path or path

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
    def preprocessing(self) -> Preprocessing:
        """Way from an image to the backbone's input."""
        if self.manifest.preprocessing is None:
            raise BundleError(f"'{self.manifest.space}' is a space of ready embeddings: it embeds no images")
        return self.manifest.preprocessing

    @property
    def backbone_path(self) -> Path:
        """Path of the ONNX file."""
        _ = self.preprocessing
        return self.path / BACKBONE_FILE

    @property
    def refiner_fingerprint(self) -> str:
        """Identity of the refiner; empty without one."""
        refiner = self.manifest.refiner
        return "" if refiner is None else refiner.fingerprint

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Open a bundle and check every file in it."""
        if not isinstance(path, Path | str):
            raise BundleError(f"a bundle is opened by the path of its folder, got {type(path).__name__}")
        path = Path(path)
        manifest = read_manifest(path)
        if not manifest.space and BACKBONE_FILE not in manifest.files:
            raise BundleError(f"bundle '{path}' names no {BACKBONE_FILE}: export it again")
        refiner_files = {} if manifest.refiner is None else manifest.refiner.files
        for name, expected in {**manifest.files, **refiner_files}.items():
            _check_file(path, name, expected)
        return cls(path, manifest)

    @classmethod
    def write(cls, path: Path, fields: Mapping[str, Any]) -> Self:
        """Write `bundle.json` over the model files that already lie in `path`, and open the result.

        The fields are those of `BundleManifest` other than `files` and `refiner`: what is written anew has no
        refiner yet. A space needs nothing but its manifest.
        """
        found = (file for file in sorted(path.glob("*.onnx")) if file.name != REFINER_FILE)
        checksums = {file.name: sha256_of(file) for file in found}
        _write_manifest(path, {**fields, "files": checksums, "refiner": None})
        return cls.open(path)

    def with_refiner(self, fields: Mapping[str, Any]) -> Self:
        """Name the refiner whose files already lie in the bundle, and open the result.

        The fields are those of `RefinerManifest` other than `files` and `backbone_fingerprint`.
        """
        checksums = {}
        for name in (REFINER_FILE, REFINER_WEIGHTS_FILE):
            if not (self.path / name).is_file():
                raise BundleError(f"bundle '{self.path}' has no {name}: ", advise("run {train_refiner()}"))
            checksums[name] = sha256_of(self.path / name)
        section = {**fields, "files": checksums, "backbone_fingerprint": self.fingerprint}
        _write_manifest(self.path, {**self.manifest.model_dump(), "refiner": section})
        return self.open(self.path)

    def refined_by(self, folder: Path) -> Self:
        """The same bundle with the refiner of the manifest in another folder, whose files are checked."""
        kept = read_manifest(folder)
        if kept.refiner is None or kept.fingerprint != self.fingerprint:
            raise BundleError(f"'{folder}' holds no refiner of bundle '{self.name}': index again")
        for name, expected in kept.refiner.files.items():
            _check_file(folder, name, expected)
        refined = self.manifest.model_copy(update={"refiner": kept.refiner})
        return type(self)(self.path, refined, refiner_path=folder)

    def without_refiner(self) -> Self:
        """Take the refiner out of `bundle.json`, its files staying where they are, and open the result."""
        _write_manifest(self.path, {**self.manifest.model_dump(), "refiner": None})
        return self.open(self.path)


def read_fingerprint(path: Path) -> str | None:
    """Fingerprint that a directory's `bundle.json` names, its files unchecked; None where it is no bundle."""
    try:
        return read_manifest(path).fingerprint
    except BundleError:
        return None


def read_manifest(path: Path) -> BundleManifest:
    """Checked `bundle.json` of a directory; the files that it names are not looked at."""
    file = path / MANIFEST_FILE
    try:
        # A gallery seals the manifests that it keeps.
        return BundleManifest.model_validate_json(unsealed_if_sealed(file.read_bytes()))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise BundleError(
            f"'{path}' is no model bundle: it has no {MANIFEST_FILE}; ", advise("make one with {export()}")
        ) from error
    except ValidationError as error:
        raise _invalid_manifest(file, error) from error
    except BrokenSealError as error:
        raise BundleError(f"'{file}' is damaged: bring it back from a backup, or index again") from error


def space_manifest(text: str, dim: int) -> BundleManifest:
    """Manifest of a space without a refiner, `NAME` or `NAME@VERSION` (1 without), as `clip-vit-b32@2`."""
    found = _SPACE.fullmatch(text)
    if found is None:
        raise BundleError(
            f"'{text}' is no name of a space: use up to 64 letters, digits, . _ - and /, and after an @ the "
            "version, such as clip-vit-b32@2"
        )
    space, version = found.groups()
    name = space.lower().replace("/", "-")
    return BundleManifest(name=name, version=version or "1", space=space, backbone="", dim=dim, files={})


def _write_manifest(path: Path, fields: Mapping[str, Any]) -> None:
    try:
        manifest = BundleManifest.model_validate(fields)
    except ValidationError as error:
        raise _invalid_manifest(path / MANIFEST_FILE, error) from error
    left_out = {"refiner"} if manifest.refiner is None else None
    text = manifest.model_dump_json(indent=2, exclude=left_out) + "\n"
    (path / MANIFEST_FILE).write_text(text, encoding="utf-8")


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
