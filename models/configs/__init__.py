"""Configurations: settings of a run, read from TOML files and checked; and JSON with its own checksum."""
