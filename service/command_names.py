"""Names on the command line of what errors advise to: commands of operations, options of fields."""

from __future__ import annotations

import shlex
from typing import Any

from vicinal.calibration.advice import AdvisedError

# Commands of operations, with blanks for the values that an error may give.
COMMANDS = {
    "activate": "vicinal calibration activate ID -g {gallery}",
    "activate_version": "vicinal gallery activate {gallery} {version} --data-dir {data_dir}",
    "calibrate": "vicinal calibrate -g NAME",
    "compare": "vicinal compare -g {gallery}",
    "check": "vicinal calibration check -g {gallery} --queries FOLDER",
    "duplicates": "vicinal duplicates -g {gallery}",
    "export": "vicinal export",
    "index": "vicinal index SOURCE --gallery {gallery}",
    "create_key": "vicinal keys create NAME --scope admin",
    "keys_off": "vicinal keys off",
    "label": "vicinal label -g NAME",
    "label_anew": "vicinal label -g {gallery} --restart",
    "list_calibrations": "vicinal calibration list -g {gallery}",
    "refine": "vicinal gallery refine {gallery}",
    "train_refiner": "vicinal train-refiner",
    "use_settings": "vicinal use -g {gallery} --reset",
}
# Fields whose option goes by another name.
_OPTIONS = {"setting": "--set"}


def command_names(name: str, values: dict[str, Any] | None) -> str:
    """Command of an operation in backticks, or the option of a field."""
    if values is None:
        return _OPTIONS.get(name, f"--{name.replace('_', '-')}")
    quoted = {key: shlex.quote(str(value)) for key, value in values.items()}
    return f"`{COMMANDS[name].format_map(quoted)}`"


def in_commands(error: Exception) -> str:
    """Words of an error on one line, for who types commands."""
    said = error.said(command_names) if isinstance(error, AdvisedError) else str(error)
    return " ".join(said.split()) or type(error).__name__
