"""Storage: the item table, derived files, the pointer to the active version."""
