"""Report of a command that made a bundle: name, speed of each form, and the next command."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from rich.table import Table

from vicinal.service.cli.console import print_json, print_table, say

if TYPE_CHECKING:
    from vicinal.models.bundle import ModelBundle

_COLUMNS = {
    "images_per_second": ("images/s", "{:,.0f}"),
    "milliseconds": ("ms for one", "{:,.1f}"),
    "megabytes": ("MB", "{:,.1f}"),
    "mean_cosine": ("agreement", "{:.4f}"),
    "hit_rate_1": ("first is right (R@1)", "{:.3f}"),
    "map_at_r": ("MAP@R", "{:.3f}"),
}


def name_of(model: str) -> str:
    """Name of a bundle from that of an architecture, of a model on the hub, or of a file."""
    name = "".join(c if c.isalnum() or c in "._-" else "-" for c in model.rpartition("/")[2].lower())
    return name.lstrip("._-")[:64] or "model"


def report_bundle(bundle: ModelBundle, *, json_output: bool) -> None:
    """Print what was made: a line, the forms that were measured, and how to use it; or JSON for a script."""
    manifest = bundle.manifest
    if json_output:
        document = manifest.model_dump(mode="json", exclude={"refiner", "files"})
        print_json({**document, "fingerprint": bundle.fingerprint, "path": str(bundle.path)})
        return
    form = f", {manifest.precision}" if manifest.precision else ""
    say(f"Bundle {bundle.name} {bundle.fingerprint}: {bundle.dim} numbers an image{form}, in {bundle.path}")
    if manifest.forms:
        print_table(_forms(bundle))
    say(f"Next: vicinal index photos/ --gallery shop --bundle {shlex.quote(str(bundle.path))}")


def _forms(bundle: ModelBundle) -> Table:
    forms = bundle.manifest.forms
    shown = {key: column for key, column in _COLUMNS.items() if any(key in one for one in forms.values())}
    table = Table(title="Speed on this machine")
    for title in ("form", *(title for title, _ in shown.values())):
        table.add_column(title, justify="left" if title == "form" else "right")
    for form, figures in forms.items():
        is_taken = len(forms) > 1 and form == bundle.manifest.precision
        cells = [text.format(figures[key]) if key in figures else "" for key, (_, text) in shown.items()]
        table.add_row(f"{form} (taken)" if is_taken else form, *cells)
    return table
