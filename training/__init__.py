"""Training: networks and refiners, their losses, data sets, measurements and files (`train` extra)."""
