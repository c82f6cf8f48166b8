"""Embedding models: bundles, decoding, the ONNX embedder; training and export in their own modules."""

from vicinal.models.bundle import ModelBundle, Preprocessing, default_bundle_path
from vicinal.models.decoding import DecodeLimits, decode_image
from vicinal.models.embedder import Embedder

__all__ = [
    "DecodeLimits",
    "Embedder",
    "ModelBundle",
    "Preprocessing",
    "decode_image",
    "default_bundle_path",
]
