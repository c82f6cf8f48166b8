"""Comparisons: variants of a gallery tried on the same queries."""
