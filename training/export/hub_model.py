"""A bundle from a model of the hub of Hugging Face: the ONNX file that it has there, without torch (onnx)."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from vicinal.calibration.advice import advise
from vicinal.models.bundle import ModelBundle, sha256_of
from vicinal.models.errors import BundleError, ConfigError, HubError, MissingPackageError
from vicinal.models.hub import HUB_SCHEME, REPOSITORY, HubListing, HubRepository
from vicinal.training.export.hub_preprocessing import CONFIG_FILE, PROCESSOR_FILES, hub_preprocessing
from vicinal.training.export.ready import import_onnx

# Repositories with ONNX files that anybody may fetch, by the names that people know the models by.
HUB_MODELS = {
    "clip-vit-b16": "Xenova/clip-vit-base-patch16",
    "clip-vit-b32": "Xenova/clip-vit-base-patch32",
    "clip-vit-l14": "Xenova/clip-vit-large-patch14",
    "dinov2-base": "onnx-community/dinov2-base",
    "dinov2-large": "onnx-community/dinov2-large",
    "dinov2-small": "onnx-community/dinov2-small",
    "dinov3-base": "onnx-community/dinov3-vitb16-pretrain-lvd1689m-ONNX",
    "dinov3-small": "onnx-community/dinov3-vits16-pretrain-lvd1689m-ONNX",
    "mobilenetv4-medium": "onnx-community/mobilenetv4_conv_medium.e500_r256_in1k",
    "mobilenetv4-small": "onnx-community/mobilenetv4_conv_small.e2400_r224_in1k",
    "siglip-base": "Xenova/siglip-base-patch16-224",
    "siglip2-base": "onnx-community/siglip2-base-patch16-224-ONNX",
    "siglip2-base-256": "onnx-community/siglip2-base-patch16-256-ONNX",
}
_ADDRESS = re.compile(f"{HUB_SCHEME}{REPOSITORY}", re.ASCII)
# Of a model with two towers that of its images, and of each the file in float32.
_NETWORKS = ("onnx/vision_model.onnx", "onnx/model.onnx", "vision_model.onnx", "model.onnx")
# Of one ONNX file with its weights, and of the configurations, which are read whole.
_MOST_BYTES, _MOST_CONFIG_BYTES = 2**31, 2**24


def hub_model(name: str) -> HubRepository:
    """Repository of a model by its short name, or by `hf:owner/name` with maybe `@revision`."""
    found = _ADDRESS.fullmatch(f"{HUB_SCHEME}{HUB_MODELS[name]}" if name in HUB_MODELS else name)
    if found is None:
        raise ConfigError(
            f"'{name}' names no model: give {HUB_SCHEME}owner/name, {HUB_SCHEME}owner/name@revision, or "
            f"one of {', '.join(HUB_MODELS)}"
        )
    return HubRepository("model", found["name"], found["revision"])


@dataclass(frozen=True)
class _Model:
    """A state of a model of the hub."""

    repository: HubRepository
    listing: HubListing

    def __str__(self) -> str:
        return f"model '{self.repository}'"

    def fetch(self, names: list[str], most: int = _MOST_BYTES) -> dict[str, Path]:
        """Files by their paths, of so many bytes together, with the content that the hub says they have."""
        n_bytes = sum(self.listing.files[one].n_bytes for one in names)
        if n_bytes > most:
            raise BundleError(
                f"{self} has {n_bytes / 1e6:,.0f} MB in {names[0]}, at most {most / 1e6:,.0f} are taken: ",
                advise("name a smaller file with {file}"),
            )
        paths = self.repository.fetch(self.listing, names)
        for name, path in paths.items():
            said = self.listing.files[name].sha256
            if said is not None and (found := sha256_of(path)) != said:
                # Kept, it would be taken for the right one.
                path.resolve().unlink()
                raise HubError(
                    f"{self} has changed on its way: the SHA-256 of {name} is {found[:12]}…, the hub says "
                    f"{said[:12]}…; it was deleted, fetch it again"
                )
        return paths

    def network(self, asked: str | None) -> str:
        """Name of the ONNX file to take."""
        files = self.listing.files
        there = sorted(one for one in files if one.endswith(".onnx"))
        if asked is not None and asked not in there:
            raise BundleError(f"{self} has no ONNX file '{asked}', only {', '.join(there) or 'none'}")
        if not there:
            raise BundleError(
                f"{self} has no ONNX file: ",
                advise("write one from its weights with {export()}, or find a repository that has one"),
            )
        known = (asked, *(one for one in _NETWORKS if one in files), *(there if len(there) == 1 else ()))
        chosen = next((one for one in known if one), None)
        if chosen is None:
            raise BundleError(
                f"{self} has {len(there)} ONNX files: ",
                advise("name one with {file}: {names}", names=", ".join(there)),
            )
        return chosen

    def configs(self) -> dict[str, Mapping[str, Any]]:
        """Fields of its configurations, by their names."""
        there = [one for one in (CONFIG_FILE, *PROCESSOR_FILES) if one in self.listing.files]
        found = {}
        for name, path in self.fetch(there, _MOST_CONFIG_BYTES).items():
            try:
                found[name] = json.loads(path.read_bytes())
            except ValueError as error:
                raise BundleError(f"{self} has a {name} that is no JSON: {error}") from error
            if not isinstance(found[name], dict):
                raise BundleError(f"{self} has a {name} that holds no fields")
        return found

    def weights(self, network: str, named: set[str]) -> dict[str, str]:
        """Paths of the files beside a network by the names that it calls them by."""
        folder, found = PurePosixPath(network).parent, {}
        for name in sorted(named):
            beside = PurePosixPath(name)
            if (
                beside.is_absolute()
                or ".." in beside.parts
                or (folder / beside).as_posix() not in self.listing.files
            ):
                raise BundleError(
                    f"{self} keeps weights of {network} in '{name}', which is no file beside it"
                )
            found[name] = (folder / beside).as_posix()
        return found

    @property
    def licence(self) -> str:
        """Its licence, or that of the model that it was made of where it does not say its own."""
        card = self.listing.card
        base = card.get("base_model")
        base = base[0] if isinstance(base, list) and base else base
        if not card.get("license") and isinstance(base, str) and _ADDRESS.fullmatch(f"{HUB_SCHEME}{base}"):
            with suppress(HubError):
                card = HubRepository("model", base).look().card
        said = card.get("license") or "unknown"
        said = ", ".join(map(str, said)) if isinstance(said, list) else str(said)
        named = card.get("license_name") if said == "other" else None
        link = f" ({card['license_link']})" if card.get("license_link") else ""
        return f"{named or said}{link}"


def bundle_from_hub(
    repository: HubRepository,
    path: Path,
    name: str,
    *,
    file: str | None = None,
    on_note: Callable[[str], None] = lambda _note: None,
) -> ModelBundle:
    """Make a bundle from the ONNX file of a model, as its configuration says; see `import_onnx`.

    The commit of the repository and the SHA-256 of each file that was taken stand in `training` of its
    manifest.

    Args:
        repository: The model; see `hub_model`.
        path: Folder of the bundle.
        name: Name of the bundle.
        file: Its ONNX file; the one in float32 that sees images when None.
        on_note: Is told what is taken, with its licence.

    Raises:
        HubError: The hub does not give it.
        BundleError: It has no ONNX file that gives an embedding, or does not say how it wants its images.
    """
    try:
        from vicinal.training.export.embedding_output import external_files, write_embedding_network
    except ImportError as error:
        raise MissingPackageError("onnx", "hub", "a model of the hub") from error

    model = _Model(repository, repository.look())
    listing = model.listing
    if listing.name != repository.name:
        on_note(f"'{repository.name}' is called '{listing.name}' now")
    network, configs = model.network(file), model.configs()
    try:
        preprocessing = hub_preprocessing(configs)
    except BundleError as error:
        raise BundleError(
            f"{model} cannot be taken: {error}; ", advise("give its ONNX file to {import_onnx()}")
        ) from error
    # Weights beside it begin with its name.
    n_bytes = sum(one.n_bytes for path, one in listing.files.items() if path.startswith(network))
    what, licence = f"{network}, {n_bytes / 1e6:,.1f} MB", model.licence
    on_note(f"{listing.name} at {listing.commit[:12]}: {what}, licence {licence}")
    called = f"{network} of {model}"
    with tempfile.TemporaryDirectory() as folder:
        files = model.fetch([network])
        source = files[network]
        if beside := model.weights(network, external_files(source)):
            files = model.fetch([network, *beside.values()])
            source = _laid_out(Path(folder), files, network, beside)
        target = Path(folder) / "embedding.onnx"
        architecture = str(configs.get(CONFIG_FILE, {}).get("model_type", ""))
        output = write_embedding_network(source, target, architecture, called)
        on_note(f"The embedding is {output}")
        kept = {"repository": listing.name, "revision": listing.commit, "output": output}
        fields = {
            "name": name,
            "backbone": architecture or listing.name,
            "licence": licence,
            "source": f"{listing.name} of the hub of Hugging Face, commit {listing.commit}",
            "training": {"hub": {**kept, "files": {one: sha256_of(each) for one, each in files.items()}}},
        }
        return import_onnx(target, path, preprocessing, fields, called=called)


def _laid_out(folder: Path, taken: Mapping[str, Path], network: str, beside: Mapping[str, str]) -> Path:
    """Network with its weights beside it, as files: the library's cache has links, which are refused."""
    for name, source in {"network.onnx": network, **beside}.items():
        target = folder / "fetched" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(taken[source], target)
    return folder / "fetched" / "network.onnx"
