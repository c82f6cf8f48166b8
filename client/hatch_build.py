"""Makes models and options when the package is built from a checkout; a source distribution holds them."""

import runpy
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class GenerateModels(BuildHookInterface):  # type: ignore[type-arg]
    """Runs `generate.py` where the document of the API is."""

    def initialize(self, *_: Any) -> None:
        """Write the modules before files are collected."""
        if Path(self.root, "..", "openapi.json").is_file():
            runpy.run_path(str(Path(self.root, "generate.py")), run_name="__main__")
