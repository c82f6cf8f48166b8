"""Section of a bundle about its context refiner; the refiner itself lives in the `refine` package."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from pydantic import Field, model_validator

from vicinal.calibration.frozen import Frozen

REFINER_FILE = "refiner.onnx"
REFINER_WEIGHTS_FILE = "refiner.npy"

RefinerForm = Literal["bare", "attention", "attention_mlp", "gated"]
RerankVerdict = Literal["off", "contextual"]
Sides = Literal["off", "gallery", "query", "both"]


class RefinerArchitecture(Frozen):
    """Architecture of a refiner, apart from its weights."""

    dim: int = Field(ge=1)  # Length d of the embeddings
    n_steps: int = Field(ge=1)  # T, each with weights of its own
    n_neighbors: int = Field(ge=1)  # k that it was trained with
    n_heads: int = Field(ge=1)  # Divides `dim`
    # `bare` has no biases and no output projection, `attention` both, `attention_mlp` also an MLP with one
    # hidden layer of width d; `gated` has no matrix of width d, but softmax query expansion whose attention
    # and weight follow from the similarities in the neighborhood; see `refine.step`
    form: RefinerForm
    expansion: bool = False  # Each step adds softmax query expansion to what it learned
    neighbors: Literal["context", "none"] = "context"  # `none` attends to the item itself instead: a control
    level: bool = False  # Queries get a length of at most 1, which says how sure a mate is; see `refine.step`
    gate_width: int = Field(32, ge=1)  # Hidden units of gates and level

    @model_validator(mode="after")
    def _heads_divide(self) -> RefinerArchitecture:
        if self.dim % self.n_heads:
            raise ValueError(f"n_heads {self.n_heads} does not divide the {self.dim} dimensions")
        return self


class RefinerManifest(Frozen):
    """The section `refiner` of `bundle.json`."""

    architecture: RefinerArchitecture
    sides: Sides  # What is refined by default, as its validation decided; `off` where refining did not help
    rerank: RerankVerdict  # Of refined results by default, as its validation decided
    # Figures on held-out classes, by what was refined
    validation: dict[str, dict[str, float]] = Field(default_factory=dict)
    training: dict[str, Any] = Field(default_factory=dict)  # Data, recipe and chosen step, for people
    backbone_fingerprint: str  # Of the bundle whose embeddings it was trained on
    files: dict[str, str]  # SHA-256 by file name; the bundle is opened only if all fit

    @model_validator(mode="after")
    def _names_its_files(self) -> RefinerManifest:
        # The graph is for a GPU and other runtimes; what a gallery's labels chose is written without torch.
        if {*self.files, REFINER_FILE} != {REFINER_FILE, REFINER_WEIGHTS_FILE}:
            raise ValueError(f"files must name {REFINER_WEIGHTS_FILE}, maybe {REFINER_FILE}, and no others")
        return self

    def starting_threshold(self, sides: Sides, rerank: str) -> float | None:
        """Lowest final score that held FPIR 5 % in its validation; None where that was not tried."""
        tried = (
            sides if rerank == "off" else "rerank" if (sides, rerank) == (self.sides, "contextual") else ""
        )
        return self.validation.get(tried, {}).get("threshold")

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that change when a refined embedding could change, and only then."""
        parts = {
            "architecture": self.architecture.model_dump(),
            "backbone": self.backbone_fingerprint,
            "files": self.files,
        }
        canonical = json.dumps(parts, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]
