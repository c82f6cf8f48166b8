"""Requests that Schemathesis makes of the OpenAPI document, against a server in a process of its own.

    pip install schemathesis && python -m benchmarks.attacks.api_run [--examples 150] [--schemathesis PATH]

Once without keys and once with them, with every check but one, that requests of the right form are
accepted: what JSON Schema cannot say is refused too, such as two queries at once. The exit status is 1 when
an answer was 5xx, or another than the document says.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.attacks.image_run import GALLERY, make_gallery
from benchmarks.common.record import save_result
from benchmarks.common.server_process import running_server
from vicinal.models.bundle import default_bundle_path

_KEY = "a-key-of-the-run"
# Requests name a gallery that is there, and that stays there.
_CONFIGURATION = f"""
[parameters]
"path.gallery" = "{GALLERY}"

[[operations]]
include-operation-id = "delete_gallery"
parameters = {{ "path.gallery" = "another" }}
"""
# What is found and right: an address below one that takes any id answers to the methods of that too, a form
# has no types, and the name of the gallery that a request was to have wrong is the one of above.
_RIGHT = {
    ("AllowHeaderMismatch", "OPTIONS /v1/galleries/{gallery}/items/delete"),
    ("AllowHeaderMismatch", "OPTIONS /v1/admin/galleries/{gallery}/calibrations/dry_run"),
    ("AllowHeaderMismatch", "OPTIONS /v1/admin/galleries/{gallery}/calibrations/roll_back"),
    ("UnsupportedMethodResponse", "PATCH /v1/galleries/{gallery}/items/delete"),
    ("AcceptedNegativeData", "POST /v1/admin/galleries/{gallery}/calibrations"),
    ("AcceptedNegativeData", "POST /v1/admin/galleries/{gallery}/calibrations/{calibration}/check"),
    ("AcceptedNegativeData", "POST /v1/galleries/{gallery}/versions/{version}/activate"),
}


def tried(
    schemathesis: str, folder: Path, *, examples: int, variables: Mapping[str, str], options: list[str]
) -> dict[str, Any]:
    """What comes of a run.

    Args:
        schemathesis: Path of the program.
        folder: Empty folder to work in.
        examples: Most requests that are drawn for a call.
        variables: Environment of the server.
        options: Further options of the program.
    """
    make_gallery(folder)
    (folder / "schemathesis.toml").write_text(_CONFIGURATION, encoding="utf-8")
    environment = {"VICINAL_SOURCES_DIR": str(folder / "catalog"), "OMP_NUM_THREADS": "1", **variables}
    report = folder / "report.json"
    with running_server(folder / "data", default_bundle_path(), environment) as (url, _):
        command = [schemathesis, "run", f"{url}/openapi.json", "--checks", "all", "--continue-on-failure"]
        command += ["--max-examples", str(examples), "--phases", "examples,coverage,fuzzing", "--no-shrink"]
        command += ["--report", "json", "--report-json-path", str(report), "--seed", "1"]
        command += ["--suppress-health-check", "all", "--request-timeout", "60", *options]
        answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    said = json.loads(report.read_text(encoding="utf-8"))
    said.pop("valid_rates", None)
    found = [(one["type"], operation) for one in said["failures"] for operation in one["operations"]]
    wrong = [" ".join(one) for one in found if one not in _RIGHT]
    return {"wrong": wrong, "errors": said["errors"], "report": said, "output": answer.stdout}


def main() -> int:
    """Run both ways, print, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schemathesis", default="schemathesis")
    parser.add_argument("--examples", type=int, default=150)
    parser.add_argument("--no-result", action="store_true", help="write no result")
    given = parser.parse_args()
    keys = {"VICINAL_API_KEYS": json.dumps({_KEY: ["search", "write", "admin"]})}
    ways = {
        # Nothing is asked for, so that leaving it out changes nothing.
        "without keys": ({}, ["--exclude-checks", "positive_data_acceptance,ignored_auth"]),
        "with keys": (
            keys,
            ["--exclude-checks", "positive_data_acceptance", "-H", f"Authorization: Bearer {_KEY}"],
        ),
    }
    result = {}
    for name, (variables, options) in ways.items():
        with tempfile.TemporaryDirectory() as folder:
            result[name] = tried(
                given.schemathesis,
                Path(folder),
                examples=given.examples,
                variables=variables,
                options=options,
            )
        print(name, result[name].pop("output"), flush=True)
    for name, one in result.items():
        print(f"{name}: wrong {one['wrong']}, errors {one['errors']}")
    if not given.no_result:
        save_result("api_run", result)
    return int(any(one["wrong"] or one["errors"] for one in result.values()))


if __name__ == "__main__":
    sys.exit(main())
