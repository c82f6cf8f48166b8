"""Answering: searches that were kept, what persons said of them, and what follows."""
