"""Backbones: networks to start from, and the parts of them that stay as they are."""
