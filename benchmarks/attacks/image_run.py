"""The hostile images through search, additions and an index job of a server in a process of its own.

    python -m benchmarks.attacks.image_run [--label after]

Says how each was answered, and the server's largest memory in each part beside what it had before. With
the folder of other sources first in PYTHONPATH and another label these are tried.
"""

from __future__ import annotations

import argparse
import base64
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from benchmarks.attacks.hostile_images import corpus
from benchmarks.common.record import RESULTS, save_result
from benchmarks.common.server_process import running_server
from vicinal.models.bundle import default_bundle_path
from vicinal.models.demo_catalog import make_catalog, render_view
from vicinal.service.settings import Settings

__all__ = ["Outcomes", "send_all"]

GALLERY = "shop"
_LARGE = ("bomb-png-16-bit-40-megapixels.png", "bomb-webp-0.webp", "bomb-tiff-I.tif", "bomb-png-stripe.png")
_AT_ONCE = 16


class Outcomes:
    """How requests were answered.

    Attributes:
        by_status: Number of answers by status and problem type.
        failed: Names of what was answered by 5xx or not at all.
    """

    def __init__(self) -> None:
        self.by_status: Counter[str] = Counter()
        self.failed: list[str] = []

    def note(self, name: str, answer: httpx.Response) -> None:
        """Count one answer."""
        kind = answer.json().get("type", "") if answer.status_code >= 400 else ""
        self.by_status[f"{answer.status_code} {kind.rpartition(':')[2]}".strip()] += 1
        if answer.status_code >= 500:
            self.failed.append(name)

    def as_dict(self) -> dict[str, Any]:
        """As it is written down."""
        return {"n": sum(self.by_status.values()), "by_status": dict(self.by_status), "failed": self.failed}


def send_all(client: httpx.Client, images: Mapping[str, bytes], path: str, **fields: str) -> Outcomes:
    """Send each image alone.

    Args:
        client: Client of the server.
        images: Files by name.
        path: Where to.
        fields: Further fields of the form.
    """
    outcomes = Outcomes()
    for name, content in images.items():
        files = {"image": (name, content, "image/jpeg")}
        outcomes.note(name, client.post(path, files=files, data=fields))
    return outcomes


def main() -> None:
    """Run, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--label", default="after")
    label = parser.parse_args().label
    images = corpus()
    print(len(images), "images", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_gallery(root)
        (root / "sources" / "hostile").mkdir(parents=True)
        for name, content in images.items():
            (root / "sources" / "hostile" / name).write_bytes(content)
        variables = {"VICINAL_SOURCES_DIR": str(root / "sources"), "OMP_NUM_THREADS": "1"}
        with (
            running_server(root / "data", default_bundle_path(), variables) as (url, pid),
            httpx.Client(base_url=url, timeout=600.0) as client,
        ):
            result = parts(client, pid, images)
    earlier = RESULTS / "hostile_images.json"
    runs = json.loads(earlier.read_text(encoding="utf-8"))["runs"] if earlier.exists() else {}
    limits = Settings().model_dump(include={"max_image_pixels", "decode_memory_bytes"})
    runs[label] = {"limits": limits, **result}
    save_result("hostile_images", {"runs": runs})


def make_gallery(root: Path) -> None:
    """A gallery of drawn products in `root/data`."""
    source = root / "catalog"
    for number, product in enumerate(make_catalog(0, 8)):
        (source / str(number)).mkdir(parents=True)
        for view in range(4):
            render_view(product, view, size=128).save(source / str(number) / f"{view}.jpg")
    command = [sys.executable, "-m", "vicinal", "index", str(source), "-g", GALLERY, "--data-dir"]
    subprocess.run([*command, str(root / "data")], check=True, capture_output=True)


def parts(client: httpx.Client, pid: int, images: Mapping[str, bytes]) -> dict[str, Any]:
    """Every way in, with the memory that each took."""
    at = f"/v1/galleries/{GALLERY}"
    good = images["mode-jpeg-RGB.jpg"]
    client.post(f"{at}/search", files={"image": good}).raise_for_status()
    large = {name: images[name] for name in _LARGE}
    ways: dict[str, Callable[[], dict[str, Any]]] = {
        "search": lambda: send_all(client, images, f"{at}/search").as_dict(),
        "items": lambda: send_all(client, images, f"{at}/items", on_conflict="replace").as_dict(),
        "index job": lambda: index_job(client),
        "one batch of 32": lambda: one_batch(client, large),
        f"{_AT_ONCE} at once": lambda: at_once(client, large),
    }
    result: dict[str, Any] = {"n_images": len(images)}
    for name, way in ways.items():
        Path(f"/proc/{pid}/clear_refs").write_text("5")
        before, started = memory(pid, "VmRSS"), time.perf_counter()
        found = way()
        peak = memory(pid, "VmHWM")
        found |= {"seconds": round(time.perf_counter() - started, 1)}
        found |= {"before_mib": before, "peak_mib": peak, "above_mib": peak - before}
        print(name, found, flush=True)
        result[name] = found
        client.post(f"{at}/search", files={"image": good}).raise_for_status()
    return result


def index_job(client: httpx.Client) -> dict[str, Any]:
    """A re-index job over the folder of them."""
    answer = client.post(f"/v1/admin/galleries/{GALLERY}/reindex", json={"source": "hostile"})
    answer.raise_for_status()
    while True:
        job = client.get(f"/v1/jobs/{answer.json()['id']}").json()
        if job["state"] in ("failed", "cancelled", "succeeded"):
            return {
                "state": job["state"],
                "done": job["progress"]["done"],
                "failed": job["progress"]["failed"],
            }
        time.sleep(0.5)


def one_batch(client: httpx.Client, large: Mapping[str, bytes]) -> dict[str, Any]:
    """One request with the large ones, eight times each."""
    # Each is another file, so that none is known from before.
    files = [one + bytes(100 + number) for number, one in enumerate(list(large.values()) * 8)]
    queries = [{"image_base64": base64.b64encode(one).decode()} for one in files]
    outcomes = Outcomes()
    outcomes.note("batch", client.post(f"/v1/galleries/{GALLERY}/search/batch", json={"queries": queries}))
    return outcomes.as_dict()


def at_once(client: httpx.Client, large: Mapping[str, bytes]) -> dict[str, Any]:
    """Requests with the large ones, all at a time."""
    outcomes = Outcomes()

    def send(number: int) -> None:
        name = list(large)[number % len(large)]
        # Each is another file, so that none is known from before.
        content = large[name] + bytes(1 + number)
        outcomes.note(name, client.post(f"/v1/galleries/{GALLERY}/search", files={"image": content}))

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(send, range(4 * _AT_ONCE)))
    return outcomes.as_dict()


def memory(pid: int, field: str) -> int:
    """A field of the memory of a process, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    found = dict(line.split(":", 1) for line in lines)
    return int(found[field].split()[0]) // 1024


if __name__ == "__main__":
    main()
