"""Types of the fixtures that are functions; each is described where the fixture is."""

from __future__ import annotations

from collections.abc import Callable

from PIL import Image
from typer.testing import Result

from vicinal.indexer.views.snapshot import Snapshot
from vicinal.service.settings import Settings

Calibrate = Callable[..., str]
Encode = Callable[..., bytes]
Fail = Callable[..., str]
MakeSettings = Callable[..., Settings]
Run = Callable[..., Result]
View = Callable[[int, int], Image.Image]
WriteGallery = Callable[..., Snapshot]
