"""The cache of query embeddings: exact, bounded, shared through Redis, and never in the way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.service.redis_server import RedisServer
from tests.service.types import Encode, MakeSettings, View
from vicinal.models.bundle import ModelBundle
from vicinal.models.similarity import normalize
from vicinal.service.search.query_embedder import CachingEmbedder, QueryCache
from vicinal.service.search.redis_link import RedisLink

DIM = 24


@pytest.fixture
def vectors() -> np.ndarray:
    return normalize(np.random.default_rng(0).normal(size=(6, DIM)))


@pytest.fixture
def link(redis_server: RedisServer, patience: float) -> RedisLink:
    return RedisLink(redis_server.url, timeout_seconds=patience, retry_seconds=60.0)


@pytest.fixture
def caching(tmp_path: Path, make_settings: MakeSettings, tiny_bundle: ModelBundle) -> CachingEmbedder:
    cache = QueryCache(tiny_bundle.fingerprint, tiny_bundle.dim, n_entries=16)
    return CachingEmbedder(tiny_bundle, cache)


@pytest.fixture
def pictures(view: View, encode: Encode) -> list[bytes]:
    return [encode(view(label, 7)) for label in range(4)]


def test_an_embedding_comes_back_bit_for_bit(vectors: np.ndarray) -> None:
    cache = QueryCache("bundle", DIM, n_entries=4)
    cache.put({"a": vectors[0]})
    np.testing.assert_array_equal(cache.get(["a", "b"])["a"], vectors[0])
    assert list(cache.get(["b"])) == []


def test_what_was_kept_cannot_be_changed_from_outside(vectors: np.ndarray) -> None:
    cache = QueryCache("bundle", DIM, n_entries=2)
    given = vectors[0].copy()
    cache.put({"a": given})
    given[:] = 0.0
    found = cache.get(["a"])["a"]
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1.0
    np.testing.assert_array_equal(found, vectors[0])


def test_replicas_share_embeddings_of_one_bundle_only(vectors: np.ndarray, shared_link: RedisLink) -> None:
    QueryCache("bundle", DIM, n_entries=4, link=shared_link).put({"a": vectors[0]})
    same, other = (QueryCache(name, DIM, n_entries=4, link=shared_link) for name in ("bundle", "another"))
    np.testing.assert_array_equal(same.get(["a"])["a"], vectors[0])
    assert other.get(["a"]) == {}


@pytest.mark.parametrize(
    "stored",
    [b"", b"short", b"\0" * 4 * DIM, np.full(DIM, np.nan, "<f4").tobytes(), b"\x7f" * 4 * DIM],
    ids=["empty", "short", "zero", "nan", "huge"],
)
def test_what_is_no_embedding_in_redis_is_not_taken_for_one(shared_link: RedisLink, stored: bytes) -> None:
    shared_link.ask(lambda redis: redis.set("vicinal:embedding:bundle:a", stored))
    assert QueryCache("bundle", DIM, n_entries=4, link=shared_link).get(["a"]) == {}


@pytest.mark.slow
@pytest.mark.parametrize(("way", "patience"), [("stop", 60.0), ("freeze", 1.0)], indirect=["patience"])
def test_without_redis_the_process_remembers_alone(
    vectors: np.ndarray, link: RedisLink, redis_server: RedisServer, way: str
) -> None:
    cache = QueryCache("bundle", DIM, n_entries=4, link=link)
    getattr(redis_server, way)()
    cache.put({"a": vectors[0]})
    assert set(cache.get(["a", "b"])) == {"a"}


def test_a_known_picture_is_not_embedded_again(
    caching: CachingEmbedder, pictures: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = caching.embed_queries(pictures, {})
    monkeypatch.setattr(caching, "decode", None)
    np.testing.assert_array_equal(caching.embed_queries(pictures[::-1], {}), first[::-1])
