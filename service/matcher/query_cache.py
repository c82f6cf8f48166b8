"""Cache of query embeddings: the same picture is not embedded twice with the same bundle.

Always in this process, and in Redis too when there is a link, so that replicas share it.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from prometheus_client import CollectorRegistry, Counter

from vicinal.models.similarity import FloatArray
from vicinal.service.errors import RedisAwayError
from vicinal.service.redis_link import RedisLink

if TYPE_CHECKING:
    from redis import Redis

__all__ = ["QueryCache"]

_PREFIX = "vicinal:embedding"
# Embeddings have length 1 up to float32 rounding; anything else in Redis is not ours.
_LENGTH_TOLERANCE = 1e-3


class QueryCache:
    """Embeddings by the SHA-256 of the encoded picture, for one bundle.

    Args:
        bundle: Fingerprint of the bundle: another one never finds these embeddings.
        dim: Length d of its embeddings.
        n_entries: Most embeddings kept in this process, those used last; 0 keeps none anywhere.
        seconds: How long Redis keeps one.
        link: Link to Redis, if it is to be used.
    """

    def __init__(
        self, bundle: str, dim: int, *, n_entries: int, seconds: int = 86_400, link: RedisLink | None = None
    ) -> None:
        self._bundle = bundle
        self._dim = dim
        self._n_entries = n_entries
        self._seconds = seconds
        self._link = link if n_entries else None
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, FloatArray] = OrderedDict()
        self._lookups: Counter | None = None

    def register(self, registry: CollectorRegistry) -> None:
        """Count lookups by where they were answered in a registry of metrics."""
        self._lookups = Counter(
            "vicinal_query_cache", "Looked up query embeddings by source", ["source"], registry=registry
        )

    def count_with(self, other: QueryCache) -> None:
        """Count lookups together with those of another bundle's cache."""
        self._lookups = other._lookups

    def key(self, encoded: bytes) -> str:
        """Key of an encoded picture."""
        return hashlib.sha256(encoded).hexdigest()

    def get(self, keys: Sequence[str]) -> dict[str, FloatArray]:
        """The embeddings that are known.

        Args:
            keys: Keys of pictures.

        Returns:
            (d,) float32 by key, read-only; without those that have to be embedded.
        """
        found = self._from_process(keys)
        self._count("process", len(found))
        missing = [key for key in dict.fromkeys(keys) if key not in found]
        shared = self._from_redis(missing)
        self._count("redis", len(shared))
        self._count("none", len(missing) - len(shared))
        self._keep(shared)
        return found | shared

    def put(self, embeddings: Mapping[str, FloatArray]) -> None:
        """Keep fresh embeddings, (d,) float32 by key."""
        self._keep(embeddings)
        if self._link is None or not embeddings:
            return
        encoded = {self._redis_key(key): one.astype("<f4").tobytes() for key, one in embeddings.items()}
        try:
            self._link.ask(lambda redis: _set_all(redis, encoded, self._seconds))
        except RedisAwayError:
            # The link has said so; the next query of this picture is embedded again elsewhere.
            return

    def _from_process(self, keys: Sequence[str]) -> dict[str, FloatArray]:
        with self._lock:
            found = {key: self._entries[key] for key in keys if key in self._entries}
            for key in found:
                self._entries.move_to_end(key)
        return found

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
        with self._lock:
            for key, embedding in embeddings.items():
                own = np.array(embedding, dtype=np.float32)
                own.flags.writeable = False
                self._entries[key] = own
                self._entries.move_to_end(key)
            while len(self._entries) > self._n_entries:
                self._entries.popitem(last=False)

    def _decoded(self, value: object) -> FloatArray | None:
        if not isinstance(value, bytes) or len(value) != 4 * self._dim:
            return None
        embedding = np.frombuffer(value, "<f4").astype(np.float32)
        length = float(np.linalg.norm(embedding.astype(np.float64)))
        return embedding if abs(length - 1.0) <= _LENGTH_TOLERANCE else None

    def _redis_key(self, key: str) -> str:
        return f"{_PREFIX}:{self._bundle}:{key}"

    def _count(self, source: str, n: int) -> None:
        if self._lookups is not None and n:
            self._lookups.labels(source).inc(n)


def _set_all(redis: Redis, values: Mapping[str, bytes], seconds: int) -> None:
    with redis.pipeline(transaction=False) as pipeline:
        for name, value in values.items():
            pipeline.set(name, value, ex=seconds)
        pipeline.execute()
