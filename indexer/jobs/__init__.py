"""Jobs that write a gallery: indexing, live changes, compaction, refinement, retention."""
