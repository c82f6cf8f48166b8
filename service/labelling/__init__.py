"""Labelling: a threshold for a gallery without labels, from a person's answers about pairs of its photos."""
