"""`vicinal doctor`: whether what an installation needs is there and works."""

from __future__ import annotations

from dataclasses import asdict

import typer
from rich.table import Table
from rich.text import Text

from vicinal.service.cli.console import print_json, print_table
from vicinal.service.cli.options import BundleOption, DataDirOption, JsonOption, load_settings

_STYLES = {"ok": "green", "absent": "dim", "warning": "yellow", "failed": "red"}


def doctor(
    data_dir: DataDirOption = None, bundle: BundleOption = None, json_output: JsonOption = False
) -> None:
    """Try what an installation needs: packages, network, Faiss, GPUs, Redis, disk; fails if one does."""
    from vicinal.service.doctor import examine

    findings = list(examine(load_settings(data_dir=data_dir, bundle=bundle)))
    if json_output:
        print_json([asdict(one) for one in findings])
    else:
        table = Table("", "", "", show_header=False, box=None)
        for one in findings:
            table.add_row(Text(one.state, style=_STYLES[one.state]), one.name, one.says)
        print_table(table)
    if any(one.state == "failed" for one in findings):
        raise typer.Exit(1)
