"""Surfaces: options of commands, forms and kinds of jobs, made of the requests of operations."""
