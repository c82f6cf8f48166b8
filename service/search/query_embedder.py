"""Query embedder: remembers the pictures of queries in this process, and in Redis, which replicas share."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from cachetools import LRUCache
from prometheus_client import Counter

from vicinal.calibration.arrays import FloatArray
from vicinal.models.bundle import ModelBundle
from vicinal.models.decoding import DecodeLimits, ImageSource, read_encoded
from vicinal.models.embedder import Embedder, PreparedQueries
from vicinal.models.runtime import Device
from vicinal.service.errors import RedisAwayError
from vicinal.service.search.redis_link import RedisLink

if TYPE_CHECKING:
    from redis import Redis

_PREFIX = "vicinal:embedding"
# Embeddings have length 1 up to float32 rounding; anything else in Redis is not ours.
_LENGTH_TOLERANCE = 1e-3


def lookup_counter() -> Counter:
    """Counts looked up embeddings by where they were found; one for all bundles of a process."""
    return Counter("vicinal_query_cache", "Looked up query embeddings by source", ["source"], registry=None)


class CachingEmbedder(Embedder):
    """Embedder of one bundle, with a cache for queries."""

    def __init__(
        self,
        bundle: ModelBundle,
        cache: QueryCache,
        *,
        device: Device = "auto",
        threads: int = 0,
        limits: DecodeLimits | None = None,
    ) -> None:
        super().__init__(bundle, device=device, threads=threads, limits=limits)
        self._cache = cache

    def prepare_queries(
        self, images: Sequence[ImageSource], milliseconds: dict[str, float]
    ) -> PreparedQueries:
        """Look pictures up, and decode those that the cache does not know; PIL images are never cached."""
        started = time.perf_counter()
        sources = [
            read_encoded(one, self.limits) if isinstance(one, (str, Path, bytes)) else one for one in images
        ]
        keys = tuple(hashlib.sha256(one).hexdigest() if isinstance(one, bytes) else None for one in sources)
        found = self._cache.get([key for key in keys if key is not None])
        looked_up = 1e3 * (time.perf_counter() - started)
        known = {i: found[key] for i, key in enumerate(keys) if key in found}
        unknown = [source for i, source in enumerate(sources) if i not in known]
        prepared = super().prepare_queries(unknown, milliseconds)
        milliseconds["decode"] += looked_up
        return PreparedQueries(prepared.tensors, keys, known)

    def finish_queries(self, prepared: PreparedQueries, raw: FloatArray) -> FloatArray:
        """Put what was embedded to what was known, and remember it."""
        keys, rows = prepared.keys, dict(prepared.known)
        unknown = [i for i in range(len(keys)) if i not in rows]
        fresh = super().finish_queries(prepared, raw)
        rows |= zip(unknown, fresh, strict=True)
        self._cache.put({key: rows[i] for i in unknown if (key := keys[i]) is not None})
        return np.stack([rows[i] for i in range(len(keys))]) if rows else fresh


class QueryCache:
    """Embeddings by the SHA-256 of the encoded picture: `n_entries` here, and in Redis for `seconds`."""

    def __init__(
        self,
        bundle: str,
        dim: int,
        *,
        n_entries: int,
        seconds: int = 86_400,
        link: RedisLink | None = None,
        lookups: Counter | None = None,
    ) -> None:
        self._bundle = bundle
        self._dim = dim
        self._seconds = seconds
        self._link = link if n_entries else None
        self._lock = threading.Lock()
        self._entries: LRUCache[str, FloatArray] = LRUCache(n_entries)
        self._lookups = lookup_counter() if lookups is None else lookups

    def get(self, keys: Sequence[str]) -> dict[str, FloatArray]:
        """The (d,) embeddings that are known, by key, read-only; the others have to be embedded."""
        with self._lock:
            found = {key: self._entries[key] for key in keys if key in self._entries}
        missing = [key for key in dict.fromkeys(keys) if key not in found]
        shared = self._from_redis(missing)
        self._keep(shared)
        counts = {"process": len(found), "redis": len(shared), "none": len(missing) - len(shared)}
        for source, n in counts.items():
            self._lookups.labels(source).inc(n)
        return found | shared

    def put(self, embeddings: Mapping[str, FloatArray]) -> None:
        """Keep fresh embeddings, (d,) float32 by key."""
        self._keep(embeddings)
        if self._link is None or not embeddings:
            return
        encoded = {self._redis_key(key): one.astype("<f4").tobytes() for key, one in embeddings.items()}
        # The link says so where Redis is away; the next query of this picture is embedded again elsewhere.
        with suppress(RedisAwayError):
            self._link.ask(lambda redis: _set_all(redis, encoded, self._seconds))

    def _from_redis(self, keys: list[str]) -> dict[str, FloatArray]:
        if self._link is None or not keys:
            return {}
        names = [self._redis_key(key) for key in keys]
        try:
            stored = self._link.ask(lambda redis: list(redis.mget(names)))
        except RedisAwayError:
            return {}
        decoded = {key: self._decoded(value) for key, value in zip(keys, stored, strict=True)}
        return {key: one for key, one in decoded.items() if one is not None}

    def _keep(self, embeddings: Mapping[str, FloatArray]) -> None:
        if not self._entries.maxsize:
            return
        with self._lock:
            for key, embedding in embeddings.items():
                own = np.array(embedding, dtype=np.float32)
                own.flags.writeable = False
                self._entries[key] = own

    def _decoded(self, value: object) -> FloatArray | None:
        if not isinstance(value, bytes) or len(value) != 4 * self._dim:
            return None
        embedding = np.frombuffer(value, "<f4").astype(np.float32)
        length = float(np.linalg.norm(embedding.astype(np.float64)))
        return embedding if abs(length - 1.0) <= _LENGTH_TOLERANCE else None

    def _redis_key(self, key: str) -> str:
        return f"{_PREFIX}:{self._bundle}:{key}"


def _set_all(redis: Redis, values: Mapping[str, bytes], seconds: int) -> None:
    with redis.pipeline(transaction=False) as pipeline:
        for name, value in values.items():
            pipeline.set(name, value, ex=seconds)
        pipeline.execute()
