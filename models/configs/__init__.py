"""Configurations: settings of a run from TOML files, JSON with its own checksum, and the text of a value."""
