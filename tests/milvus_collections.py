"""Collections of a team, made in a real server of Milvus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from vicinal.indexer.milvus_connection import MilvusConnection


@contextmanager
def milvus_client(url: str) -> Iterator[Any]:
    """A client of the library at an address with a password."""
    connection = MilvusConnection(url)
    with connection.asking("") as client:
        yield client
    connection.close()


def make_collection(
    client: Any,
    name: str,
    rows: Sequence[Mapping[str, Any]] = (),
    *,
    dim: int,
    key: str = "INT64",
    index: tuple[str, str, dict[str, int]] | None = ("FLAT", "COSINE", {}),
    **fields: str,
) -> None:
    """Make a collection with the key `code`, the embedding `vector` and further fields by their types, loaded
    where it has an index: its kind, metric and what it is built with. What it had before goes.
    """
    from pymilvus import DataType

    client.drop_collection(name)
    schema = client.create_schema(auto_id=False, enable_dynamic_field=True)
    schema.add_field("code", DataType[key], is_primary=True, max_length=100)
    schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dim)
    for field, kind in fields.items():
        schema.add_field(field, DataType[kind], max_length=100)
    client.create_collection(name, schema=schema, num_shards=1, consistency_level="Strong")
    for start in range(0, len(rows), 2000):
        client.insert(name, [*rows[start : start + 2000]])
    if index is None:
        return
    kind, metric, params = index
    if len(rows) > 2000:
        # What lies in memory alone is compared row by row.
        client.flush(name)
    prepared = client.prepare_index_params()
    prepared.add_index("vector", index_name="vector", index_type=kind, metric_type=metric, params=params)
    client.create_index(name, prepared)
    client.load_collection(name)
    # Until all that was written is seen.
    client.query(name, output_fields=["count(*)"], consistency_level="Strong")
