"""Home: where the galleries of all replicas lie, and the mirror of it in each replica's data folder."""

from vicinal.indexer.storage.home.follower import Lag
from vicinal.indexer.storage.home.mirror import Mirror

__all__ = ["Lag", "Mirror"]
