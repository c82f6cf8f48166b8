"""Galleries over a team's collection, by the real server of the package `milvus` (2.3.5)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import vicinal
from tests.milvus_collections import make_collection, milvus_client
from tests.milvus_server import PASSWORD, MilvusServer
from tests.service.test_team_tables import DIM, OPTIONS, QUERIES, ROWS, N, told
from tests.waiting import wait_until
from vicinal.indexer.errors import EngineTableError
from vicinal.service.measuring.table_watch import TableWatch

pytestmark = pytest.mark.slow
ADDRESS = "?collection=photos&embedding=vector&id=code&label=sku"


def row(n: int, **changed: Any) -> dict[str, Any]:
    return {"code": n, "sku": f"sku {n // 8}", "price": n / 4, "vector": ROWS[n % N]} | changed


@pytest.fixture(scope="module")
def client(milvus_server: MilvusServer) -> Iterator[Any]:
    with milvus_client(milvus_server.url) as client:
        yield client


@pytest.fixture
def galleries(
    client: Any, milvus_server: MilvusServer, tmp_path: Path
) -> Iterator[tuple[vicinal.LocalGallery, vicinal.LocalGallery]]:
    """Galleries over a collection of 240 products, 8 photos each, and of copies; prices are in no schema."""
    index = ("HNSW", "COSINE", {"M": 16, "efConstruction": 100})
    make_collection(client, "photos", [row(n) for n in range(N)], dim=DIM, index=index, sku="VARCHAR")
    made = []
    for name in ("over", "copied"):
        gallery = vicinal.open_gallery(name, data_dir=tmp_path, milvus_url=milvus_server.url)
        gallery.index(address(milvus_server), space="clip", copy_vectors=name == "copied")
        made.append(gallery)
    yield made[0], made[1]
    for gallery in made:
        gallery.bundles.engines.close()
    client.drop_collection("photos")


def address(server: MilvusServer) -> str:
    """Without a user: it is that of the setting."""
    return f"milvus://{server.address}{ADDRESS}"


def test_answers_are_those_of_a_copy_bit_for_bit(
    galleries: tuple[vicinal.LocalGallery, vicinal.LocalGallery],
) -> None:
    """Whatever a search asks for, and with the calibration that each has measured; no vectors are kept."""
    over, copied = galleries
    for gallery in galleries:
        gallery.calibrate("fpir=10%")
    assert over.matcher.threshold().value == copied.matcher.threshold().value
    for options in OPTIONS:
        there, here = (one.search_many(QUERIES, include_candidates=True, **options) for one in galleries)
        assert [told(one) for one in there] == [told(one) for one in here], options
        assert [one.no_match for one in there] == [one.no_match for one in here]
    assert told(over.search(item="7")) == told(copied.search(item="7"))
    for file in (one for one in over.gallery.path.rglob("*") if one.is_file()):
        content = file.read_bytes()
        assert ROWS[5].tobytes()[:16] not in content, file
        assert PASSWORD.encode() not in content, file
    assert over.matcher.snapshot.manifest.index == "over-milvus"


def test_what_becomes_of_the_collection_is_read_told_and_taken_over(
    client: Any,
    milvus_server: MilvusServer,
    galleries: tuple[vicinal.LocalGallery, vicinal.LocalGallery],
) -> None:
    """A hit is told as the collection has it; rows that came are none before it is indexed again, and what
    went is said in a sentence.
    """
    over, _ = galleries
    client.upsert("photos", [row(16, sku="new", price=7)])
    client.delete("photos", ids=[17])
    client.insert("photos", [row(n) for n in range(N, N + 4)])
    client.query("photos", output_fields=["count(*)"], consistency_level="Strong")
    over.matcher.snapshot.team_vectors._recent.clear()  # type: ignore[union-attr]

    def found() -> dict[str, Any]:
        answer = over.search(ROWS[16], include_candidates=True, limit=50)
        return {one["id"]: one for one in told(answer)}

    wait_until(lambda: found()["16"]["label"] == "new")
    assert found()["16"]["metadata"] == {"price": 7}
    assert "17" not in found()
    assert all(int(one) < N for one in found())
    watch = TableWatch.of(over.gallery, over.matcher.view)
    assert watch is not None
    assert "table 'photos' has 3 rows more since it was read" in str(watch.words(watch.look()))
    result = over.index(address(milvus_server))
    assert result.counts == {"added": 4, "updated": 1, "unchanged": N - 2, "removed": 1}
    assert len(over) == N + 3
    client.drop_collection("photos")
    with pytest.raises(EngineTableError, match="does not have the collection 'photos' any more") as caught:
        over.search(QUERIES[1])
    assert f":{PASSWORD}" not in str(caught.value)
