"""`vicinal demo`: a whole search service over a synthetic catalog, in one command."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from vicinal.service.cli.console import console, errors, print_json, progress_bar
from vicinal.service.cli.demo_catalog import GALLERY, CheckResult, PreparedDemo, check_demo, prepare_demo
from vicinal.service.cli.options import BundleOption, JsonOption, load_settings
from vicinal.service.http.app import create_app
from vicinal.service.http.server import listen, serve_until_stopped, serving

__all__ = ["demo"]


def demo(
    check: Annotated[
        bool, typer.Option("--check", help="Search over HTTP, print what was found, and stop.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option(help="Where to keep it; a temporary folder by default.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on.")] = 8321,
    bundle: BundleOption = None,
    json_output: JsonOption = False,
) -> None:
    """Render 70 products, index 60, calibrate for 5 % FPIR, and serve: nothing is downloaded."""
    settings = load_settings(bundle=bundle)
    with _kept_or_temporary(folder) as place, listen("127.0.0.1", 0 if check else port) as listener:
        with progress_bar() as update:
            prepared = prepare_demo(place, settings, update)
        if check:
            _check(prepared, json_output)
        else:
            _print_invitation(prepared, listener.getsockname()[1])
            serve_until_stopped(create_app(prepared.settings), listener)


def _check(prepared: PreparedDemo, json_output: bool) -> None:
    with serving(prepared.settings) as url, progress_bar() as update:
        result = check_demo(prepared, url, update)
    if json_output:
        print_json(asdict(result))
    else:
        _print_check(prepared, result)


@contextmanager
def _kept_or_temporary(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="vicinal-demo-") as temporary:
        yield Path(temporary)


def _print_check(prepared: PreparedDemo, result: CheckResult) -> None:
    record = prepared.record
    table = Table("measured over HTTP", "value", box=None)
    table.add_row(f"hit rate R@1 ({result.n_queries} queries)", f"{result.hit_rate_1:.1%}")
    table.add_row("queries that got a match of their product", f"{result.found_rate:.1%}")
    table.add_row(
        f"absent products answered with 'no match' ({result.n_absent})", f"{result.no_match_rate:.1%}"
    )
    table.add_row("p50 latency of a request", f"{result.p50_milliseconds:.1f} ms")
    console.print(table)
    console.print(f"Threshold {record.threshold:.4f}, calibrated for {record.target} by leave-one-out")


def _print_invitation(prepared: PreparedDemo, port: int) -> None:
    url = f"http://127.0.0.1:{port}"
    catalog = prepared.catalog
    known, absent = catalog.query_images[0], catalog.absent_images[0]
    post = f"curl -s {url}/v1/galleries/{GALLERY}/search -F limit=3 -F"
    errors.print(f"\nServing {url} (no API keys: this machine only). Stop with Ctrl-C.", soft_wrap=True)
    errors.print("Three things to try:\n")
    for text in (
        f"1. A product of the gallery:     {post} image=@{known}",
        f"2. A product that it lacks:      {post} image=@{absent}",
        f"3. In the browser:               {url}/?gallery={GALLERY}&item={known.parent.name}/1.jpg",
    ):
        errors.print(text, markup=False, highlight=False, soft_wrap=True)
