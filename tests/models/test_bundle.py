"""Model bundle: opened only when every file is what it was, and known by a fingerprint."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from vicinal.models.bundle import BACKBONE_FILE, BundleManifest, ModelBundle, sha256_of, space_manifest
from vicinal.models.errors import BundleError

MANIFEST = "bundle.json"
FIELDS: dict[str, Any] = {"name": "sample", "backbone": "none", "dim": 4, "preprocessing": {"input_size": 32}}


@pytest.fixture
def copied(tiny_bundle: ModelBundle, tmp_path: Path) -> Path:
    """A copy of the tiny bundle that a test may damage."""
    return Path(shutil.copytree(tiny_bundle.path, tmp_path / "copied"))


@pytest.fixture
def edit(copied: Path) -> Callable[..., None]:
    def change(**fields: object) -> None:
        manifest = json.loads((copied / MANIFEST).read_text())
        (copied / MANIFEST).write_text(json.dumps({**manifest, **fields}))

    return change


def _manifest(**changes: object) -> BundleManifest:
    return BundleManifest.model_validate({**FIELDS, "files": {BACKBONE_FILE: "0" * 64}, **changes})


def test_written_bundle_opens_with_the_same_manifest(tiny_bundle: ModelBundle) -> None:
    opened = ModelBundle.open(str(tiny_bundle.path))
    assert opened.manifest == tiny_bundle.manifest
    assert (opened.name, opened.dim, opened.fingerprint) == ("tiny", 24, tiny_bundle.fingerprint)
    assert opened.backbone_path.is_file()


@pytest.mark.parametrize("n_bytes", [0, 2**20 + 1])
def test_sha256_of_a_file_read_in_chunks_is_that_of_its_bytes(tmp_path: Path, n_bytes: int) -> None:
    path = tmp_path / "weights"
    path.write_bytes(np.random.default_rng(0).bytes(n_bytes))
    assert sha256_of(path) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_every_changed_byte_is_detected(tmp_path: Path) -> None:
    """Each byte of a file in turn, in a file small enough to try them all."""
    content = np.random.default_rng(0).bytes(300)
    file = tmp_path / BACKBONE_FILE
    file.write_bytes(content)
    ModelBundle.write(tmp_path, FIELDS)
    for position in range(len(content)):
        file.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        with pytest.raises(BundleError, match="damaged or was changed"):
            ModelBundle.open(tmp_path)


@pytest.mark.parametrize("kept", [0, 100])
def test_cut_or_lengthened_network_is_detected(copied: Path, kept: int) -> None:
    content = (copied / BACKBONE_FILE).read_bytes()
    for changed in (content[:kept], content + bytes(1)):
        (copied / BACKBONE_FILE).write_bytes(changed)
        with pytest.raises(BundleError, match="SHA-256"):
            ModelBundle.open(copied)


def test_missing_network_is_named(copied: Path) -> None:
    (copied / BACKBONE_FILE).unlink()
    with pytest.raises(BundleError, match=r"backbone\.onnx' is missing"):
        ModelBundle.open(copied)


def test_missing_manifest_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="make one with `export`"):
        ModelBundle.open(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"null"])
def test_manifest_that_is_no_json_object_is_refused(copied: Path, content: bytes) -> None:
    (copied / MANIFEST).write_bytes(content)
    with pytest.raises(BundleError, match="is not valid"):
        ModelBundle.open(copied)


@pytest.mark.parametrize(
    ("field", "value"),
    [("colour", "red"), ("dim", 0), ("dim", "many"), ("name", "Has Spaces"), ("preprocessing", {"zoom": 1})],
)
def test_manifest_with_a_wrong_or_unknown_field_names_it(
    copied: Path, edit: Callable[..., None], field: str, value: object
) -> None:
    edit(**{field: value})
    with pytest.raises(BundleError, match=f"is not valid: {field}"):
        ModelBundle.open(copied)


def test_manifest_must_list_the_network(copied: Path, edit: Callable[..., None]) -> None:
    edit(files={})
    with pytest.raises(BundleError, match=r"names no backbone\.onnx"):
        ModelBundle.open(copied)


@pytest.mark.parametrize("name", ["../outside.onnx", "inner/../../outside.onnx", "{absolute}"])
def test_file_outside_of_the_bundle_is_refused(copied: Path, edit: Callable[..., None], name: str) -> None:
    """A manifest may not make the reader open other files, even ones whose checksum it knows."""
    outside = copied.parent / "outside.onnx"
    outside.write_bytes(b"secret")
    (copied / "inner").mkdir()
    name = name.format(absolute=outside)
    edit(files={BACKBONE_FILE: sha256_of(copied / BACKBONE_FILE), name: sha256_of(outside)})
    with pytest.raises(BundleError, match="outside of its bundle"):
        ModelBundle.open(copied)


def test_link_to_a_file_outside_is_refused(copied: Path) -> None:
    moved = copied.parent / "elsewhere.onnx"
    (copied / BACKBONE_FILE).rename(moved)
    (copied / BACKBONE_FILE).symlink_to(moved)
    with pytest.raises(BundleError, match="outside of its bundle"):
        ModelBundle.open(copied)


def test_writing_without_a_network_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"backbone\.onnx"):
        ModelBundle.write(tmp_path, FIELDS)


@pytest.mark.parametrize(
    "changes",
    [
        {"dim": 5},
        {"files": {BACKBONE_FILE: "1" * 64}},
        {"preprocessing": {"input_size": 32, "mean": (0.5, 0.5, 0.5)}},
    ],
)
def test_fingerprint_changes_with_what_an_embedding_depends_on(changes: dict[str, object]) -> None:
    assert _manifest(**changes).fingerprint != _manifest().fingerprint


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "renamed"},
        {"metrics": {"omniglot": {"hit_rate_1": 0.9}}},
        {"training": {"seed": 3}},
    ],
)
def test_fingerprint_does_not_change_with_words_about_the_bundle(changes: dict[str, object]) -> None:
    assert _manifest(**changes).fingerprint == _manifest().fingerprint


def write_space(path: Path, text: str = "clip-vit-b32", dim: int = 4) -> ModelBundle:
    path.mkdir()
    (path / MANIFEST).write_text(space_manifest(text, dim).model_dump_json())
    return ModelBundle.open(path)


@pytest.mark.parametrize("changes", [{}, {"version": "7", "precision": "int8"}])
def test_the_fingerprint_of_a_bundle_is_what_it_was_before_there_were_spaces(changes: dict[str, Any]) -> None:
    """Galleries name it: another one would have all of them indexed anew."""
    assert _manifest(**changes).fingerprint == "e4345912a7801935"


@pytest.mark.parametrize(
    ("text", "space", "version", "name"),
    [
        ("clip-vit-b32", "clip-vit-b32", "1", "clip-vit-b32"),
        ("openai/CLIP-ViT-B32@2", "openai/CLIP-ViT-B32", "2", "openai-clip-vit-b32"),
        ("x@2026-11.rc_1", "x", "2026-11.rc_1", "x"),
    ],
)
def test_a_space_is_a_bundle_without_a_backbone(
    tmp_path: Path, text: str, space: str, version: str, name: str
) -> None:
    opened = write_space(tmp_path / "space", text).manifest
    assert (opened.space, opened.version, opened.name, opened.dim) == (space, version, name, 4)
    assert opened.files == {}


@pytest.mark.parametrize("text", ["", "@1", "clip@", "CLIP B32", "/clip", "x" * 65])
def test_what_is_no_name_of_a_space_is_refused(text: str) -> None:
    with pytest.raises(BundleError, match="is no name of a space: use up to 64 letters"):
        space_manifest(text, 4)


def test_the_fingerprint_of_a_space_changes_with_name_version_and_dim() -> None:
    spaces = [("clip", 4), ("clip", 5), ("clip@2", 4), ("siglip", 4), ("CLIP", 4)]
    assert len({space_manifest(text, dim).fingerprint for text, dim in spaces}) == len(spaces)
    assert space_manifest("clip", 4).fingerprint == space_manifest("clip@1", 4).fingerprint


def test_a_space_keeps_its_fingerprint_with_a_refiner(
    tmp_path: Path, with_refiner: Callable[..., ModelBundle]
) -> None:
    space = write_space(tmp_path / "space", dim=24)
    donor = with_refiner()
    for name in donor.manifest.refiner.files:
        shutil.copy(donor.path / name, space.path / name)
    section = donor.manifest.refiner
    refined = space.with_refiner({"architecture": section.architecture, "sides": "both", "rerank": "off"})
    assert refined.manifest.refiner is not None
    assert refined.fingerprint == space.fingerprint


def test_a_refiner_has_a_fingerprint_and_nothing_has_none(
    tiny_bundle: ModelBundle, with_refiner: Callable[..., ModelBundle]
) -> None:
    first, second = with_refiner(), with_refiner(seed=1)
    assert tiny_bundle.refiner_fingerprint == ""
    assert first.refiner_fingerprint == first.manifest.refiner.fingerprint
    assert first.refiner_fingerprint != second.refiner_fingerprint


def test_a_space_has_no_preprocessing(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="is a space of ready embeddings: it embeds no images"):
        _ = write_space(tmp_path / "space").preprocessing


@pytest.mark.parametrize("changes", [{"space": "clip"}, {"preprocessing": None}], ids=["both", "neither"])
def test_a_manifest_names_embeddings_or_says_how_they_are_made(
    copied: Path, edit: Callable[..., None], changes: dict[str, Any]
) -> None:
    edit(**changes)
    with pytest.raises(BundleError, match="a bundle says how images are prepared, and a space does not"):
        ModelBundle.open(copied)


@pytest.mark.parametrize("given", [5, None])
def test_a_bundle_is_opened_by_a_path_alone(given: object) -> None:
    with pytest.raises(BundleError, match="opened by the path of its folder, got"):
        ModelBundle.open(given)
