"""Caching embedder: an embedder that remembers the pictures of queries."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vicinal.models.bundle import ModelBundle
from vicinal.models.decoding import ImageSource, read_encoded
from vicinal.models.embedder import Embedder
from vicinal.models.similarity import FloatArray
from vicinal.service.matcher.query_cache import QueryCache
from vicinal.service.redis_link import RedisLink
from vicinal.service.settings import Settings

__all__ = ["CachingEmbedder"]


class CachingEmbedder(Embedder):
    """Embedder of one bundle, with a cache for queries.

    Args:
        settings: Device, limits and size of the cache.
        link: Link to Redis, if the cache is to be shared.
        bundle: The bundle; that of the settings when None.

    Raises:
        BundleError: The bundle cannot be used.
    """

    def __init__(
        self, settings: Settings, link: RedisLink | None = None, bundle: ModelBundle | None = None
    ) -> None:
        bundle = bundle or ModelBundle.open(settings.bundle)
        super().__init__(
            bundle, device=settings.device, threads=settings.threads, limits=settings.decode_limits
        )
        self.cache = QueryCache(
            bundle.fingerprint,
            bundle.dim,
            n_entries=settings.query_cache_entries,
            seconds=settings.query_cache_seconds,
            link=link,
        )

    def embed_queries(self, images: Sequence[ImageSource], milliseconds: dict[str, float]) -> FloatArray:
        """Embed pictures, decoding only those that the cache does not know; PIL images are never cached."""
        started = time.perf_counter()
        sources = [self._encoded(image) for image in images]
        keys = [self.cache.key(source) if isinstance(source, bytes) else None for source in sources]
        known = self.cache.get([key for key in keys if key is not None])
        looked_up = 1e3 * (time.perf_counter() - started)
        rows = {i: known[key] for i, key in enumerate(keys) if key in known}
        unknown = [i for i in range(len(images)) if i not in rows]
        fresh = super().embed_queries([sources[i] for i in unknown], milliseconds)
        rows |= zip(unknown, fresh, strict=True)
        milliseconds["decode"] += looked_up
        self.cache.put({key: rows[i] for i in unknown if (key := keys[i]) is not None})
        return np.stack([rows[i] for i in range(len(images))]) if rows else fresh

    def _encoded(self, image: ImageSource) -> ImageSource:
        return read_encoded(image, self.limits) if isinstance(image, (str, Path, bytes)) else image
