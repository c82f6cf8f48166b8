"""Duplicates: copies of pictures among the items of a gallery."""
