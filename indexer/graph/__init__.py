"""Neighbor graph of a gallery's items, and the vector index that finds candidates."""
