"""A long run of everything at once, over HTTP: does the server keep its memory, handles and threads?

    python -m benchmarks.load.soak --folder build/soak

A gallery of rendered products is searched with images at a steady rate by a client of its own. Beside it,
items are added, changed and deleted every few seconds, the gallery is compacted, re-indexed, and its versions
are put in force in turn. Handles, threads and resident memory of the server are noted all along. What counts
is the median of each after the first minutes: in the second half, memory may be larger than in the first by a
twentieth, and threads and handles by one at most.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from PIL import Image, ImageEnhance

from benchmarks.common.record import save_result
from benchmarks.common.server_process import memory_of, running_server
from benchmarks.load.client import Plan, outcome, started
from benchmarks.load.requests import LIVEZ, image_requests
from vicinal.models.bundle import default_bundle_path
from vicinal.service.demo import prepare_demo
from vicinal.service.settings import Settings

_GALLERY = "/v1/galleries/demo"
_SAMPLE_SECONDS = 5.0
_MOST_GROWTH = 0.05
# Items that are added at once, and rounds after which they are deleted.
_N_ADDED, _N_KEPT_ROUNDS = 10, 3
_ROUND_SECONDS = 5.0


@dataclass
class Changes:
    """Changes to the gallery, one after the other.

    Attributes:
        client: Client of the server.
        images: JPEG files that are added, each time in other colors.
        source: Folder of which the gallery is made anew.
        done: What was done, and how often.
        failures: What was answered with anything else than success.
    """

    client: httpx.Client
    images: list[bytes]
    source: Path
    done: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def run(self, stop: threading.Event) -> None:
        """Make changes until told to stop."""
        for number in itertools.count():
            self._add(number)
            self._patch(number)
            if number >= _N_KEPT_ROUNDS:
                self._delete(number - _N_KEPT_ROUNDS)
            if number % 6 == 2:
                self._call("compact", "POST", f"{_GALLERY}/compaction")
            if number % 24 == 12:
                self._reindex(stop)
            if number % 6 == 5:
                self._swap()
            if stop.wait(_ROUND_SECONDS):
                return

    def _call(self, name: str, method: str, path: str, **arguments: Any) -> Any:
        answer = self.client.request(method, path, **arguments)
        self.done[name] += 1
        if answer.is_error:
            self.failures.append(f"{name}: {answer.status_code} {answer.text[:200]}")
        return answer.json() if answer.content and not answer.is_error else {}

    def _add(self, number: int) -> None:
        chosen = [self.images[(number * _N_ADDED + i) % len(self.images)] for i in range(_N_ADDED)]
        files = [
            ("image", (f"{i}.jpg", _recolored(one, number), "image/jpeg")) for i, one in enumerate(chosen)
        ]
        ids = [f"soak/{number}/{i}" for i in range(_N_ADDED)]
        self._call("add", "POST", f"{_GALLERY}/items", files=files, data={"id": ids, "label": "soak"})

    def _patch(self, number: int) -> None:
        path = f"{_GALLERY}/items/soak/{number}/0"
        self._call("patch", "PATCH", path, json={"metadata": {"round": number}})

    def _delete(self, number: int) -> None:
        ids = [f"soak/{number}/{i}" for i in range(_N_ADDED)]
        self._call("delete", "POST", f"{_GALLERY}/items/delete", json={"ids": ids})

    def _swap(self) -> None:
        found = self._call("versions", "GET", f"{_GALLERY}/versions").get("versions", [])
        if len(found) > 1:
            oldest = min(one["version"] for one in found)
            newest = max(one["version"] for one in found)
            for version in (oldest, newest):
                self._call("activate", "POST", f"{_GALLERY}/versions/{version}/activate")

    def _reindex(self, stop: threading.Event) -> None:
        job = self._call(
            "re-index", "POST", "/v1/admin/galleries/demo/reindex", json={"source": str(self.source)}
        )
        while job.get("state") in ("queued", "running") and not stop.wait(1.0):
            job = self.client.get(f"/v1/jobs/{job['id']}").json()
        if job.get("state") == "failed":
            self.failures.append(f"re-index: {job}")


def _recolored(image: bytes, number: int) -> bytes:
    with Image.open(io.BytesIO(image)) as opened:
        changed = ImageEnhance.Color(opened.convert("RGB")).enhance(0.5 + (number % 50) / 50)
    stream = io.BytesIO()
    changed.save(stream, "JPEG", quality=85 + number % 10)
    return stream.getvalue()


def sample(pid: int) -> dict[str, float]:
    """What a process holds: memory in MiB, threads and handles."""
    folder = Path(f"/proc/{pid}")
    memory = memory_of(pid)
    return {
        "resident": round(memory["anonymous"] + memory["file"], 1),
        **memory,
        "threads": float(len(list((folder / "task").iterdir()))),
        "handles": float(len(list((folder / "fd").iterdir()))),
    }


def growth(samples: list[dict[str, float]], settled: float) -> dict[str, dict[str, float]]:
    """Median and largest of each number in the two halves after it has settled, and the median's growth.

    Args:
        samples: In order of time, with `seconds` since the start.
        settled: Seconds that do not count.
    """
    counted = [one for one in samples if one["seconds"] >= settled]
    middle = len(counted) // 2
    found = {}
    for name in ("resident", "anonymous", "threads", "handles"):
        first, second = ([one[name] for one in half] for half in (counted[:middle], counted[middle:]))
        found[name] = {
            "first": round(median(first), 1),
            "second": round(median(second), 1),
            "most_first": max(first),
            "most_second": max(second),
            "growth": round(median(second) / median(first) - 1, 4),
        }
    return found


def soak(data_dir: Path, catalog: Path, *, minutes: float, settled: float, rate: float) -> dict[str, Any]:
    """Run everything for so many minutes.

    Args:
        data_dir: Data folder with the gallery.
        catalog: Its images.
        minutes: How long.
        settled: Minutes at the beginning that do not count.
        rate: Searches a second.
    """
    images = [path.read_bytes() for path in sorted(catalog.rglob("*.jpg"))[:300]]
    environment = {
        "VICINAL_QUERY_CACHE_ENTRIES": "0",
        "VICINAL_LOG_LEVEL": "warning",
        "VICINAL_SOURCES_DIR": str(catalog),
        # What a week of versions takes is no leak.
        "VICINAL_RETENTION": '{"versions": 3, "days": 0}',
    }
    with (
        running_server(data_dir, default_bundle_path(), environment) as (url, pid),
        httpx.Client(base_url=url, timeout=120.0) as client,
    ):
        port, seconds = int(url.rpartition(":")[2]), 60.0 * minutes
        searching = started(
            Plan("127.0.0.1", port, image_requests("demo", images), "open", 16, seconds, rate=rate)
        )
        probing = started(Plan("127.0.0.1", port, [LIVEZ], "open", 4, seconds, rate=10.0))
        changes, stop = Changes(client, images, catalog), threading.Event()
        changing = threading.Thread(target=changes.run, args=(stop,))
        changing.start()
        samples, begun = [], time.monotonic()
        while (spent := time.monotonic() - begun) < seconds:
            samples.append({"seconds": round(spent, 1), **sample(pid)})
            time.sleep(min(_SAMPLE_SECONDS, seconds / 50))
        stop.set()
        changing.join()
        seen, alive = outcome(searching), outcome(probing)
    return {
        "minutes": minutes,
        "settled_minutes": settled,
        "growth": growth(samples, 60.0 * settled),
        "changes": dict(changes.done),
        "failures": changes.failures[:20],
        "n_failures": len(changes.failures),
        "searches": seen,
        "livez": alive["statuses"],
        "samples": samples,
    }


def is_steady(result: dict[str, Any]) -> bool:
    """Whether memory, threads and handles stayed, and nothing failed."""
    found = result["growth"]
    return (
        found["resident"]["growth"] < _MOST_GROWTH
        and all(found[name]["second"] <= found[name]["first"] + 1 for name in ("threads", "handles"))
        and not result["n_failures"]
        and list(result["searches"]["statuses"]) == ["200"]
    )


def main() -> None:
    """Make the gallery, run, write the result; the exit status is 1 where something grew or failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--settled", type=float, default=5.0, help="minutes that do not count")
    parser.add_argument("--rate", type=float, default=20.0, help="searches a second")
    parser.add_argument("--no-result", action="store_true", help="write no result")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True)
    prepare_demo(arguments.folder, Settings(bundle=default_bundle_path()), lambda *_: None)
    result = soak(
        arguments.folder / "data",
        (arguments.folder / "catalog").resolve(),
        minutes=arguments.minutes,
        settled=arguments.settled,
        rate=arguments.rate,
    )
    print(json.dumps({name: found for name, found in result.items() if name != "samples"}, indent=1))
    if not arguments.no_result:
        save_result("soak", result)
    raise SystemExit(0 if is_steady(result) else 1)


if __name__ == "__main__":
    main()
