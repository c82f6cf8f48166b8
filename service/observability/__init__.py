"""Observability: what a process says of its requests: logs."""
