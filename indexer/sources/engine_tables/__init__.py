"""Tables of engines that hold embeddings, and what else is known of them.

    postgres://user@host:5432/shop?table=public.products&embedding=vector&label=sku&id=code
    milvus://user@host:19530/shop?collection=products&embedding=vector&label=sku

`table` names the table or view, `collection` the collection; `id`, `label`, `path` and `embedding` their
columns, as far as they are not called so; all others become metadata. `postgres` and `milvus` say what else
an address may hold, and which columns are read.

Rows are copied to a file before any is used: whoever owns the table waits for no index job, and all that is
read of PostgreSQL is of one moment.
"""

from vicinal.indexer.sources.engine_tables.copied import CopiedRows, TableAddress, is_same_database, let_in

__all__ = ["CopiedRows", "TableAddress", "is_same_database", "let_in"]
