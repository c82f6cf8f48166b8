"""Configurations: settings of a run, read from TOML files and checked."""
