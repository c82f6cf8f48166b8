"""Duplicates: which photos of a gallery are copies of others, and which of them could go."""
