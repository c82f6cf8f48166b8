"""Training of a network on labelled images."""
