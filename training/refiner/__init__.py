"""Training of a context refiner (needs torch)."""
