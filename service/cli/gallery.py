"""`vicinal gallery`: list, show, change, roll back and delete galleries."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table

from vicinal.indexer.gallery import list_galleries
from vicinal.indexer.reader import GalleryReader
from vicinal.service.cli import gallery_changes
from vicinal.service.cli.console import console, print_json
from vicinal.service.cli.gallery_compare import compare
from vicinal.service.cli.options import DataDirOption, JsonOption, load_settings, open_gallery
from vicinal.service.errors import RequestError
from vicinal.service.thresholds.store import CalibrationStore

__all__ = ["app"]

app = typer.Typer(help="List, show, change, roll back and delete galleries.", no_args_is_help=True)
app.command("add")(gallery_changes.add)
app.command("remove")(gallery_changes.remove)
app.command("compact")(gallery_changes.compact_gallery)
app.command("refine")(gallery_changes.refine)
app.command("versions")(gallery_changes.versions)
app.command("compare")(compare)
app.command("activate")(gallery_changes.activate)
app.command("check")(gallery_changes.check)

NameArgument = Annotated[str, typer.Argument(help="Name of the gallery.")]


@app.command("list")
def list_all(data_dir: DataDirOption = None, json_output: JsonOption = False) -> None:
    """All galleries."""
    settings = load_settings(data_dir=data_dir)
    rows = [_summary(gallery.name, data_dir) for gallery in list_galleries(settings.galleries_path)]
    if json_output:
        print_json(rows)
        return
    if not rows:
        console.print(f"No galleries in {settings.galleries_path}: make one with `vicinal index`")
        return
    table = Table("name", "version", "items", "labels", "index", "bundle", box=None)
    for row in rows:
        table.add_row(
            *(str(row[key]) for key in ("name", "version", "n_items", "n_labels", "index", "bundle"))
        )
    console.print(table)


@app.command("show")
def show(name: NameArgument, data_dir: DataDirOption = None) -> None:
    """Everything about one gallery, as JSON: counts, versions, hygiene and calibrations."""
    settings = load_settings(data_dir=data_dir)
    gallery = open_gallery(settings, name)
    summary = _summary(name, data_dir)
    calibrations = CalibrationStore(gallery.calibrations_path).history()
    print_json(
        {
            **summary,
            "versions": gallery.versions(),
            "report": gallery.reports.of(summary["version"]),
            "calibrations": [record.model_dump(mode="json") for record in calibrations],
        }
    )


@app.command("delete")
def delete(
    name: NameArgument,
    data_dir: DataDirOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Remove a gallery with all its versions and calibrations."""
    gallery = open_gallery(load_settings(data_dir=data_dir), name)
    if not yes and not typer.confirm(f"Delete gallery {name} and all its versions?"):
        raise RequestError("nothing was deleted")
    gallery.delete()
    console.print(f"Gallery {name} is gone")


def _summary(name: str, data_dir: Any) -> dict[str, Any]:
    view = GalleryReader(open_gallery(load_settings(data_dir=data_dir), name)).view()
    present = {
        "revision": view.revision,
        "n_items": len(view),
        "n_labels": view.n_labels,
        "graph_staleness": view.graph_staleness,
    }
    built = view.snapshot.manifest.model_dump(exclude={"files", "next_number"})
    return {"name": name, **built, **present}
