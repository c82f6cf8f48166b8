"""Searches by image over HTTP where searches are kept and where they are not, in turns on one machine.

    python -m benchmarks.load.kept_searches --folder build/kept

Two servers over one gallery of 60 rendered products: one keeps searches, 1,000 a gallery, and is full
before it is measured, so that what is new is compared with as many as there can be. Pictures of 1,600 x 1,200
pixels are sent at half of what a closed loop of four clients reaches without keeping. The turns alternate
(off, on, on, off), each after a second that does not count. Two servers of one kind differ by a tenth, so
that both are started anew in each block of turns, now the one first and now the other.
"""

from __future__ import annotations

import argparse
import io
import json
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.common.record import save_result
from benchmarks.common.server_process import running_server
from benchmarks.load.client import Plan, outcome, started
from benchmarks.load.requests import image_requests
from vicinal.models.bundle import default_bundle_path
from vicinal.service.answering.kept import KeptCandidate, KeptSearch
from vicinal.service.answering.store import SearchStore
from vicinal.service.demo import prepare_demo
from vicinal.service.settings import Settings

_MOST = 1000
_SIDE = (1600, 1200)
# What the first searches of a server, which are all kept, may need after the clients have stopped.
_SECONDS_TO_KEEP = 5.0


def photo(path: Path) -> bytes:
    """A JPEG file of the size that telephones send to a page."""
    stream = io.BytesIO()
    Image.open(path).convert("RGB").resize(_SIDE, Image.Resampling.BICUBIC).save(stream, "JPEG", quality=90)
    return stream.getvalue()


def fill(gallery: Path, dim: int) -> None:
    """Keep as many searches as are wanted, drawn at random."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(_MOST, dim)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    search = KeptSearch(
        embedding=rows[0],
        bundle="b",
        version=1,
        revision=1,
        pipeline="p",
        candidates=(KeptCandidate("a", "a", 0.5),) * 20,
        verdict="match",
        threshold=0.5,
        calibration=None,
    )
    made = [
        (
            replace(
                search,
                id=f"{number:032x}",
                visit=str(number),
                embedding=row,
                signature=rng.integers(0, 256, 768, dtype=np.uint8).tobytes(),
            ),
            rng.bytes(40_000),
        )
        for number, row in enumerate(rows)
    ]
    SearchStore(gallery).keep(made, most=_MOST, days=30.0)


def on_to_off(blocks: list[dict[str, Any]], which: str) -> dict[str, float]:
    """Median over turns with keeping to that without, and where 95 of 100 draws of the blocks' turns put it.

    One search in ten seconds is kept, and two or three beside it wait for it: of a turn of four seconds they
    would be the slowest hundredth, as they are of no minute. Turns of one server differ twofold.
    """
    seen = np.array(
        [
            [
                [turn["statuses"]["200"]["milliseconds"][which] for turn in block["turns"][name]]
                for block in blocks
            ]
            for name in ("on", "off")
        ]
    ).reshape(2, -1)
    drawn = np.random.default_rng(0).integers(seen.shape[1], size=(2000, seen.shape[1]))
    on, off = np.median(seen[:, drawn], axis=2)
    low, high = np.quantile(on / off, (0.025, 0.975))
    on_all, off_all = np.median(seen, axis=1)
    return {
        "ratio": round(float(on_all / off_all), 3),
        "low": round(float(low), 3),
        "high": round(float(high), 3),
    }


def main() -> None:
    """Make the gallery, measure in turns, write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=12.0, help="of each turn")
    parser.add_argument("--turns", type=int, default=4, help="of each server in a block")
    parser.add_argument("--blocks", type=int, default=6, help="of two servers that are started anew")
    arguments = parser.parse_args()
    data_dir, bundle = arguments.folder / "data", default_bundle_path()
    arguments.folder.mkdir(parents=True)
    prepare_demo(arguments.folder, Settings(bundle=bundle), lambda *_: None)
    paths = sorted((arguments.folder / "catalog").rglob("*.jpg"))[:100]
    requests = image_requests("demo", [photo(path) for path in paths])
    gallery = data_dir / "galleries" / "demo"
    dim = json.loads((bundle / "bundle.json").read_text())["dim"]
    fill(gallery, dim)
    best, blocks = 0.0, []
    for block in range(arguments.blocks):
        with ExitStack() as running:
            ports = {}
            order = ("off", "on") if block % 2 == 0 else ("on", "off")
            for name in order:
                environment = {
                    "VICINAL_QUERY_CACHE_ENTRIES": "0",
                    "VICINAL_RUN_JOBS": "false",
                    "VICINAL_KEEP_SEARCHES": str(_MOST if name == "on" else 0),
                    "VICINAL_LOG_LEVEL": "warning",
                }
                url, _ = running.enter_context(running_server(data_dir, bundle, environment))
                ports[name] = int(url.rpartition(":")[2])
            time.sleep(3.0)
            plan = Plan("127.0.0.1", ports["off"], requests, connections=4, seconds=arguments.seconds)
            for name in order:
                # Until all that may be kept at once was kept.
                seen = outcome(started(replace(plan, port=ports[name])))
                best = best or seen["statuses"]["200"]["per_second"]
            time.sleep(_SECONDS_TO_KEEP)
            turns: dict[str, list[dict[str, Any]]] = {"off": [], "on": []}
            for turn in range(arguments.turns):
                for name in order if turn % 2 == 0 else order[::-1]:
                    half = replace(plan, port=ports[name], kind="open", connections=64, rate=best / 2)
                    turns[name].append(outcome(started(half)))
        blocks.append({"order": order, "turns": turns})
        print(json.dumps({which: on_to_off(blocks, which) for which in ("p50", "p99")}), flush=True)
    ratio = {which: on_to_off(blocks, which) for which in ("p50", "p99")}
    save_result("kept_searches", {"best": best, "blocks": blocks, "on_to_off": ratio})


if __name__ == "__main__":
    main()
