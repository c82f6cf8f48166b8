"""Synchronization: what becomes of every item of a gallery when a source is indexed into it."""
