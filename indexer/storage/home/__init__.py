"""Home: where the galleries of all replicas lie, and the mirror of it in each replica's data folder."""

from vicinal.indexer.storage.home.mirror import Lag, Mirror

__all__ = ["Lag", "Mirror"]
