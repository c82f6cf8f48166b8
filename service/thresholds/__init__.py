"""Thresholds: records that are kept and put in force, and whether one is stale."""
