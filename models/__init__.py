"""Embedding models: bundles, decoding, the ONNX embedder; training and export in their own modules."""

from models.bundle import ModelBundle, default_bundle_path
from models.decoding import DecodeLimits, decode_image
from models.embedder import Embedder
from models.preprocessing import Preprocessing

__all__ = [
    "DecodeLimits",
    "Embedder",
    "ModelBundle",
    "Preprocessing",
    "decode_image",
    "default_bundle_path",
]
