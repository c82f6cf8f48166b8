"""Open bundles and galleries of a process, uploads, maintenance, notices of changes."""
