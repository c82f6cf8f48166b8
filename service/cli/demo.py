"""`vicinal demo`: a whole search service over a synthetic catalog, in one command."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from vicinal.service.cli.console import errors, print_json, print_table, progress_bar, say
from vicinal.service.cli.options import BundleOption, JsonOption, load_settings

if TYPE_CHECKING:
    from vicinal.service.demo import CheckResult, PreparedDemo


def demo(
    check: Annotated[
        bool, typer.Option("--check", help="Search over HTTP, print what was found, and stop.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option(help="Where to keep it; a temporary folder by default.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Port to listen on; VICINAL_PORT, or 8321.")
    ] = None,
    bundle: BundleOption = None,
    json_output: JsonOption = False,
) -> None:
    """Render 70 products, index 60, calibrate for 5 % FPIR, and serve: nothing is downloaded."""
    from vicinal.service.demo import prepare_demo
    from vicinal.service.http.app import create_app
    from vicinal.service.http.serving.server import listen, serve_until_stopped

    settings = load_settings(bundle=bundle, port=port)
    kept = TemporaryDirectory(prefix="vicinal-demo-") if folder is None else nullcontext(str(folder))
    with kept as place, listen("127.0.0.1", 0 if check else settings.port) as listener:
        with progress_bar() as update:
            prepared = prepare_demo(Path(place), settings, update)
        if check:
            _check(prepared, json_output)
        else:
            _print_invitation(prepared, listener.getsockname()[1])
            serve_until_stopped(create_app(prepared.settings), listener)


def _check(prepared: PreparedDemo, json_output: bool) -> None:
    from vicinal.service.demo import check_demo
    from vicinal.service.http.serving.server import serving

    with serving(prepared.settings) as url, progress_bar() as update:
        result = check_demo(prepared, url, update)
    if json_output:
        print_json(result)
    else:
        _print_check(prepared, result)


def _print_check(prepared: PreparedDemo, result: CheckResult) -> None:
    record = prepared.record
    table = Table(
        "measured over HTTP", "hit rate R@1", "found at the threshold", "'no match' right", box=None
    )
    for one in result.stages:
        rates = (one.hit_rate_1, one.found_rate, one.no_match_rate)
        table.add_row(one.stage, *(f"{rate:.1%}" for rate in rates))
    print_table(table)
    say(
        f"Asked for: {result.n_queries} photos of products in the gallery, and {result.n_absent} of products "
        "that it lacks."
    )
    thresholds = "Each row has a threshold of its own" if len(result.stages) > 1 else "The threshold is"
    say(f"{thresholds}, calibrated for {record.target} by leave-one-out.")
    say(
        f"Searches do what the last row says, with threshold {record.threshold:.4f}; the p50 latency of a "
        f"request is {result.p50_milliseconds:.1f} ms."
    )


def _print_invitation(prepared: PreparedDemo, port: int) -> None:
    from vicinal.service.demo import GALLERY

    url = f"http://127.0.0.1:{port}"
    catalog = prepared.catalog
    known, absent = catalog.query_images[0], catalog.absent_images[0]
    post = f"curl -s {url}/v1/galleries/{GALLERY}/search -F limit=3 -F"
    say(
        "",
        f"Serving {url} (no API keys: this machine only). Stop with Ctrl-C.",
        "Three things to try:",
        "",
        f"1. A product of the gallery:     {post} image=@{known}",
        f"2. A product that it lacks:      {post} image=@{absent}",
        f"3. In the browser:               {url}/?gallery={GALLERY}&item={known.parent.name}/1.jpg",
        to=errors,
    )
