"""`vicinal bundle`: fetch a model from the hub, and list, show and check the bundles at hand."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.table import Table

from vicinal.service.cli.bundles.making import (
    NoticeOption,
    finish,
    name_of,
    note,
    require_file,
    require_place,
)
from vicinal.service.cli.console import print_json, print_table, say
from vicinal.service.cli.options import DataHome, JsonOption
from vicinal.service.errors import RequestError
from vicinal.service.surfaces.command_line import Commands

if TYPE_CHECKING:
    from vicinal.models.bundle import BundleManifest
    from vicinal.service.settings import Settings

app = Commands(help="Fetch a model from the hub; list, show and check bundles.", no_args_is_help=True)

BundleArgument = Annotated[Path, typer.Argument(help="Its folder, or its name among those at hand.")]


@app.command()
def get(
    model: Annotated[
        str | None,
        typer.Argument(
            help="hf:OWNER/NAME, hf:OWNER/NAME@REVISION, or a short name; without it they are listed."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Directory of the bundle; bundles/NAME of the data folder by default."
        ),
    ] = None,
    file: Annotated[
        str | None, typer.Option(help="Its ONNX file; by default the one in float32 that sees images.")
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(help="Folder of photos that int8 is calibrated on and forms are compared on."),
    ] = None,
    precision: Annotated[
        Literal["float32", "float16", "int8", "auto"] | None,
        typer.Option(
            help="Form of the network; auto takes the fastest that answers as well. Default: auto with "
            "--images, else as it comes."
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the bundle; that of the model by default.")
    ] = None,
    notice: NoticeOption = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the bundle in --output.")] = False,
    *,
    home: DataHome,
    json_output: JsonOption = False,
) -> None:
    """Make a bundle of a model of the hub of Hugging Face, from the ONNX file that it has there."""
    from vicinal.models.bundle import ModelBundle
    from vicinal.service.training import HUB_MODELS, bundle_from_hub, folder_sample, give_form, hub_model

    if model is None:
        _print_names(HUB_MODELS, json_output=json_output)
        return
    require_file(notice)
    repository = hub_model(model)
    name = name or name_of(model if model in HUB_MODELS else repository.name)
    if name != name_of(name):
        raise RequestError(f"--name '{name}' is no name of a bundle: use small letters, digits, . _ and -")
    path = output or home.settings().fetched_path / name
    require_place(path, overwrite=overwrite)
    sample = folder_sample(images) if images else None
    form = precision or ("auto" if images else None)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Beside its place: nobody finds half a bundle, and one that is replaced stays until the other is there.
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as folder:
        bundle = bundle_from_hub(repository, Path(folder) / "made", name, file=file, on_note=note)
        if form is not None:
            note("Measuring its forms on this machine ...")
            bundle = give_form(bundle, form, sample, on_note=note)
        if path.exists():
            shutil.rmtree(path)
        bundle.path.rename(path)
    bundle = ModelBundle(path, bundle.manifest)
    finish(bundle, notice, json_output=json_output)


def _print_names(models: dict[str, str], *, json_output: bool) -> None:
    if json_output:
        print_json(models)
        return
    table = Table("name", "model of the hub", box=None)
    for name, repository in models.items():
        table.add_row(name, repository)
    print_table(table)


@app.command("list")
def list_bundles(home: DataHome, json_output: JsonOption = False) -> None:
    """Bundles at hand, and the galleries whose version in use was embedded with each."""
    settings = home.settings()
    used = _galleries_by_fingerprint(settings)
    rows = [_told(path, manifest, used) for path, manifest in _at_hand(settings)]
    if json_output:
        print_json(rows)
        return
    table = Table("name", "fingerprint", "numbers", "form", "licence", "galleries", "folder", box=None)
    for one in rows:
        table.add_row(
            one["name"],
            one["fingerprint"],
            f"{one['dim']:,}",
            one["precision"] or "as imported",
            one["licence"],
            ", ".join(one["galleries"]),
            one["path"],
        )
    print_table(table)


@app.command()
def show(bundle: BundleArgument, home: DataHome, json_output: JsonOption = False) -> None:
    """Describe a bundle: its way with images, source, licence, and the checksums of its files."""
    from vicinal.models.bundle import read_manifest

    settings = home.settings(bundle=bundle)
    path, manifest = settings.bundle, read_manifest(settings.bundle)
    told = _told(path, manifest, _galleries_by_fingerprint(settings))
    if json_output:
        print_json({**manifest.model_dump(mode="json"), **told})
        return
    table = Table("", "", show_header=False, box=None)
    taken = manifest.training.get("hub", {})
    prepared = manifest.preprocessing
    facts = {
        "fingerprint": manifest.fingerprint,
        "folder": str(path),
        "network": f"{manifest.backbone or 'none'}, {told['precision'] or 'as imported'}",
        "numbers": f"{manifest.dim:,}",
        "embedding": taken.get("output", ""),
        "images": ""
        if prepared is None
        else ", ".join(f"{key} {one}" for key, one in prepared.model_dump().items()),
        "licence": manifest.licence,
        "source": manifest.source,
        **{f"SHA-256 of {file}": one for file, one in {**taken.get("files", {}), **manifest.files}.items()},
        "galleries": ", ".join(told["galleries"]),
    }
    for title, value in facts.items():
        if value:
            table.add_row(title, value)
    say(f"Bundle {manifest.name}")
    print_table(table)


@app.command()
def check(bundle: BundleArgument, home: DataHome, json_output: JsonOption = False) -> None:
    """Try a bundle on this machine: its files, and what its network makes of drawn pictures."""
    from vicinal.service.cli.server import print_findings
    from vicinal.service.doctor import examine_network

    print_findings([examine_network(home.settings(bundle=bundle))], json_output=json_output)


def _at_hand(settings: Settings) -> Iterator[tuple[Path, BundleManifest]]:
    """Folders of bundles, each once: that of the settings, and those in the folders of bundles."""
    from vicinal.models.bundle import read_manifest
    from vicinal.models.errors import BundleError

    below = (one for folder in settings.bundle_folders for one in sorted(folder.iterdir()))
    for path in dict.fromkeys((settings.bundle, *below)):
        try:
            yield path, read_manifest(path)
        except BundleError:
            # What is no bundle is not listed; `check` says why.
            continue


def _told(path: Path, manifest: BundleManifest, used: dict[str, list[str]]) -> dict[str, Any]:
    return {
        "name": manifest.name,
        "fingerprint": manifest.fingerprint,
        "dim": manifest.dim,
        "precision": manifest.precision,
        "licence": manifest.licence,
        "source": manifest.source,
        "galleries": used.get(manifest.fingerprint, []),
        "path": str(path),
    }


def _galleries_by_fingerprint(settings: Settings) -> dict[str, list[str]]:
    """Names of the galleries by the bundle that the version in use was embedded with."""
    from vicinal.indexer.errors import GalleryError
    from vicinal.indexer.gallery import list_galleries

    found: dict[str, list[str]] = {}
    for gallery in list_galleries(settings.galleries_path):
        try:
            found.setdefault(gallery.snapshot().manifest.bundle, []).append(gallery.name)
        except GalleryError:
            continue
    return found
